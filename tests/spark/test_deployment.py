"""The same pipeline elsewhere: Spark Connect, a standalone cluster, Declarative Pipelines.

Each starts several JVMs, which takes minutes on a busy machine: all are part of `make soak`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

import ottla
from ottla.sync import Producer, Reader
from ottla.testing.embedded import EmbeddedBroker
from tests.support import spark_cluster
from tests.support.spark_source import new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.soak("several JVMs, which a busy machine takes minutes to start")
PATIENCE: Final = 500

PIPELINE: Final = """
from ottla.spark.pipelines import flow, reject, source, topic

source("numbers", topic="{topic}", schema="n long")

@flow("doubled", reads=["numbers"], writes=topic("{topic}-doubled"))
def doubled(numbers):
    return numbers.selectExpr("n * 2 AS m")

@flow("even", reads=["doubled"], writes=topic("{topic}-even"))
@reject(to="{topic}-odd", when="m % 4 != 0")
def even(doubled):
    return doubled
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def numbers(broker: EmbeddedBroker, count: int, topic: str | None = None) -> str:
    """A topic with numbers from 0 on."""
    name = topic or new_topic(broker, 2)
    with Producer(broker.bootstrap) as producer:
        records = [ottla.ProducerRecord(json.dumps({"n": n}).encode()) for n in range(count)]
        producer.send_many(name, records)
    return name


def values(broker: EmbeddedBroker, topic: str, name: str) -> list[int]:
    """What is in a topic of JSON objects, sorted."""
    with Reader(broker.bootstrap, topic, start="earliest", stop="latest") as reader:
        return sorted(
            json.loads(value)[name] for batch in reader for value in batch["value"].to_pylist()
        )


def run(file: Path, *args: str, cwd: Path, **environ: str) -> list[dict[str, Any]]:
    """`ottla run FILE --once`; what it tells."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", "run", str(file), "--once", "--json", *args],
        cwd=cwd,
        env={**spark_cluster.environment(PYTHONPATH=str(spark_cluster.SOURCES)), **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def write(directory: Path, topic: str, settings: Mapping[str, Any]) -> Path:
    file = directory / "p.py"
    file.write_text(PIPELINE.format(topic=topic))
    file.with_suffix(".yaml").write_text(json.dumps(settings))  # JSON is YAML too
    return file


def check_result(broker: EmbeddedBroker, topic: str, events: list[dict[str, Any]]) -> None:
    assert values(broker, f"{topic}-doubled", "m") == [2 * n for n in range(100)]
    assert values(broker, f"{topic}-even", "m") == [4 * n for n in range(50)]
    assert values(broker, f"{topic}-odd", "m") == [4 * n + 2 for n in range(50)]
    told = {one["flow"]: one["rows"] for one in events if one["event"] == "progress"}
    assert told == {"doubled": 100, "even": 100}


def test_case_52_the_same_pipeline_through_spark_connect(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = numbers(broker, 100)
    with spark_cluster.connect_server(tmp_path) as url:
        file = write(tmp_path, topic, {"bootstrap": broker.bootstrap})
        events = run(file, "--remote", url, cwd=tmp_path)
    check_result(broker, topic, events)


def test_case_53_the_same_pipeline_on_a_cluster(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Ottla comes in a packed environment, then as a zip beside an environment without it."""
    here = tmp_path / "environment"
    packages = spark_cluster.make_environment(here)
    common = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "600m",
    }
    with spark_cluster.standalone_cluster(tmp_path) as url:
        topic = numbers(broker, 100)
        zipped = {
            **common,
            "spark.submit.pyFiles": str(spark_cluster.zip_sources(tmp_path)),
            "spark.pyspark.python": str(here / "bin" / "python"),
        }
        settings = {"bootstrap": broker.bootstrap, "spark": zipped, "state": str(tmp_path / "one")}
        events = run(write(tmp_path, topic, settings), "--master", url, cwd=tmp_path)
        check_result(broker, topic, events)

        topic = numbers(broker, 100)
        archive = tmp_path / "environment.tar.gz"
        spark_cluster.pack_environment(here, packages, archive)
        packed = {
            **common,
            "spark.archives": f"{archive}#environment",
            "spark.pyspark.python": "./environment/bin/python",
        }
        settings = {"bootstrap": broker.bootstrap, "spark": packed, "state": str(tmp_path / "two")}
        events = run(write(tmp_path, topic, settings), "--master", url, cwd=tmp_path)
        check_result(broker, topic, events)


DEFINITIONS: Final = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
broker = {{"kafka.bootstrap.servers": "{bootstrap}"}}

@dp.table
def numbers():
    reader = spark.readStream.format("ottla").options(**broker).option("subscribe", "{topic}")
    rows = reader.option("startingOffsets", "earliest").load()
    return rows.selectExpr("CAST(value AS STRING) AS value")

dp.create_sink("out", "ottla", {{**broker, "topic": "{topic}-out"}})

@dp.append_flow(target="out")
def to_out():
    return spark.readStream.table("numbers")
"""


def test_case_51_declarative_pipelines_have_the_format_as_source_and_sink(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Run twice: what is new goes through, and nothing goes through again."""
    topic = numbers(broker, 60)
    broker.create_topic(f"{topic}-out")
    (tmp_path / "definitions").mkdir()
    text = DEFINITIONS.format(bootstrap=broker.bootstrap, topic=topic)
    (tmp_path / "definitions" / "flows.py").write_text(text)
    spec = {
        "name": "numbers",
        "storage": f"file://{tmp_path}/storage",
        "libraries": [{"glob": {"include": "definitions/**"}}],
        "configuration": {"spark.sql.shuffle.partitions": "2"},
    }
    (tmp_path / "spark-pipeline.yml").write_text(json.dumps(spec))
    environ = spark_cluster.environment(
        PYTHONPATH=str(spark_cluster.SOURCES),
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    # The server stays: its catalog, which is in memory, has to know the table the second time.
    with spark_cluster.connect_server(tmp_path) as url:
        for turn in (1, 2):
            done = subprocess.run(
                [spark_cluster.SPARK_HOME / "bin" / "spark-pipelines", "--remote", url, "run"],
                cwd=tmp_path,
                env=environ,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
            assert values(broker, f"{topic}-out", "n") == sorted([*range(60)] * turn)
            numbers(broker, 60, topic)
