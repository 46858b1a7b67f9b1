"""A driver of its own that reads and writes over SASL_SSL, and tells all that Spark tells.

    python -m tests.support.spark_canary BOOTSTRAP CA DIRECTORY WAY

The password comes by the way asked for: `plain` and `jaas` from standard input into an option,
`file` and `env` by what they name. What is printed, logged and written below DIRECTORY is searched
for it. Topic "archived" is in a tier, at DIRECTORY/store.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from ottla.spark.session import local_session
from tests.support.spark import pyspark_warnings

COUNT = 20
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule"


def main(bootstrap: str, ca: str, directory: Path, way: str) -> None:
    given = sys.stdin.readline().strip()
    jaas = f'{JAAS} required username="alice" password="{given}";'
    password = {
        "plain": {"kafka.sasl.password": given},
        "jaas": {"kafka.sasl.jaas.config": jaas},
        "file": {"kafka.sasl.password.file": str(directory / "secrets" / "password")},
        "env": {"kafka.sasl.password.env": "OTTLA_SECRET_PASSWORD"},
    }[way]
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.ssl.truststore.location": ca,
        **({} if way == "jaas" else {"kafka.sasl.username": "alice"}),
        **password,
    }
    events = directory / "events"
    events.mkdir()
    config = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    with pyspark_warnings():
        spark = local_session(config=config)
    spark.sparkContext.setLogLevel("DEBUG")
    found: dict[str, Any] = {}
    try:
        _run(spark, options, directory, found)
        found["pages"] = _pages(spark)
    finally:
        print("RESULT", json.dumps(found), flush=True)
        spark.stop()


def _run(spark: Any, options: dict[str, str], directory: Path, found: dict[str, Any]) -> None:
    rows = spark.range(COUNT).selectExpr("cast(id as string) as value")
    rows.write.format("ottla").options(**options, topic="written").mode("append").save()

    read = spark.read.format("ottla").options(**options, subscribe="written").load()
    read.explain(True)
    read.explain("formatted")
    found["read"] = read.count()

    stream = (
        spark.readStream.format("ottla")
        .options(**options, subscribe="written", startingOffsets="earliest")
        .load()
    )
    query = (
        stream.selectExpr("value")
        .writeStream.format("ottla")
        .options(**options, topic="copied", delivery="exactly-once")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    query.explain(True)
    found["progress"] = [json.loads(one.json) for one in query.recentProgress]
    copied = spark.read.format("ottla").options(
        **options, subscribe="copied", **{"kafka.isolation.level": "read_committed"}
    )
    found["copied"] = copied.load().count()

    shared = (
        spark.readStream.format("ottla")
        .options(**options, subscribe="written", shareGroup="crew", startingOffsets="earliest")
        .load()
        .writeStream.format("memory")
        .queryName("shared")
        .option("checkpointLocation", str(directory / "share-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    shared.awaitTermination(120)
    found["shared"] = spark.sql("select * from shared").count()

    tier = {"subscribe": "archived", "tierUrl": f"file://{directory}/store", "tierMinBytes": "0"}
    archived = spark.read.format("ottla").options(**options, **tier).load()
    archived.explain(True)
    found["archived"] = archived.count()

    try:
        wrong = {
            name: value.replace('username="alice"', 'username="nobody"')
            for name, value in options.items()
        }
        if "kafka.sasl.username" in wrong:
            wrong["kafka.sasl.username"] = "nobody"
        spark.read.format("ottla").options(**wrong, subscribe="written").load().count()
    except Exception as error:  # noqa: BLE001  # its text is what is looked at
        found["error"] = str(error)


def _pages(spark: Any) -> int:
    """What the web page and its REST interface say; printed, to be searched."""
    base = spark.sparkContext.uiWebUrl
    application = spark.sparkContext.applicationId
    paths = [
        f"/api/v1/applications/{application}/{one}"
        for one in ("sql?details=true&length=1000", "environment", "jobs", "stages", "executors")
    ]
    paths += ["/SQL/", "/StreamingQuery/", "/environment/", "/SQL/execution/?id=1"]
    count = 0
    for path in paths:
        with urllib.request.urlopen(base + path, timeout=30) as answer:
            print(path, answer.read().decode(), flush=True)
            count += 1
    return count


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
