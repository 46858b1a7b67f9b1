"""Option by option beside Spark's own `kafka` format: the same rows, the same offsets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ottla.spark.pipelines.converting import convert
from tests.support.jvm import NoJvm
from tests.support.spark import connector_jars, run
from tests.support.spark_source import fill, new_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ottla.testing.embedded import EmbeddedBroker

_missing = connector_jars()
pytestmark = pytest.mark.skipif(isinstance(_missing, NoJvm), reason=str(_missing))

long = pytest.mark.soak("refusals have tests without Spark's format beside them")

BATCH = [
    {},
    {"includeHeaders": "true"},
    {"startingOffsets": '{"TOPIC": {"0": 5, "1": -2, "2": 0}}'},
    {"endingOffsets": '{"TOPIC": {"0": 5, "1": -1, "2": 0}}'},
    {"startingTimestamp": "2000", "startingOffsetsByTimestampStrategy": "latest"},
    {"startingOffsetsByTimestamp": '{"TOPIC": {"0": 2000, "1": 500, "2": 1000}}'},
    {"endingTimestamp": "2000"},
    {"endingOffsetsByTimestamp": '{"TOPIC": {"0": 2000, "1": 500, "2": 1000}}'},
    {"minPartitions": "7"},
    {"maxRecordsPerPartition": "11"},
    {"kafka.isolation.level": "read_committed"},
    {"assign": '{"TOPIC": [0, 2]}'},
    {"subscribePattern": "TOPIC"},
    {"kafka.group.id": "a-group"},
    # What changes no row of a log that is well.
    {
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "60000",
        "fetchOffset.numRetries": "2",
        "fetchOffset.retryIntervalMs": "10",
        "groupIdPrefix": "a-prefix",
    },
]
STREAM = [
    {"maxOffsetsPerTrigger": "7"},
    {"maxOffsetsPerTrigger": "40", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "1h"},
    {"subscribePattern": "TOPIC"},
]
REFUSED_BATCH = [
    {"kafka.auto.offset.reset": "latest"},
    {"kafka.key.deserializer": "x"},
    {"kafka.value.deserializer": "x"},
    {"kafka.enable.auto.commit": "true"},
    {"kafka.interceptor.classes": "x"},
    {"startingOffsets": "latest"},
    {"startingOffsets": '{"TOPIC": {"0": -1, "1": 0, "2": 0}}'},
    {"startingOffsets": '{"TOPIC": {"0": 5}}'},
    {"startingOffsets": "no JSON"},
    {"endingOffsets": "earliest"},
    {"assign": '{"TOPIC": [0]}', "subscribe": "TOPIC"},
    {"assign": "no JSON"},
    {"subscribePattern": ""},
    {"startingTimestamp": "3000000000000"},
    {"startingOffsetsByTimestampStrategy": "guess", "startingTimestamp": "5"},
    {"minPartitions": "0"},
]
REFUSED_STREAM = [
    # Not endingTimestamp, which Spark's format takes and forgets; ours says that it means nothing.
    {"endingOffsets": "latest"},
    {"endingOffsetsByTimestamp": '{"TOPIC": {"0": 5}}'},
    {"minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "7"},
]
# Those that the documentation of Spark's format has; `subscribe` is given unless another is.
OPTIONS = {
    *("assign", "subscribe", "subscribePattern", "startingOffsets", "startingTimestamp"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "endingOffsets"),
    *("endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss", "includeHeaders"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions"),
    *("maxRecordsPerPartition", "groupIdPrefix", "kafka.group.id"),
}


def test_each_option_of_the_kafka_format_is_compared() -> None:
    given = {name for options in [*BATCH, *STREAM] for name in options} | {"subscribe"}
    assert OPTIONS - given == set()


@pytest.fixture(scope="module")
def topic(broker: EmbeddedBroker) -> str:
    name = new_topic(broker, 3)
    fill(broker, name, {0: 20, 1: 50, 2: 3}, timestamp=1000)
    fill(broker, name, {0: 20, 1: 5}, timestamp=2000)
    return name


def frame(
    spark: SparkSession,
    broker: EmbeddedBroker,
    topic: str,
    options: dict[str, str],
    name: str,
    *,
    stream: bool,
) -> DataFrame:
    reader = (spark.readStream if stream else spark.read).format(name)
    given = {key: value.replace("TOPIC", topic) for key, value in options.items()}
    if not {"assign", "subscribePattern"} & given.keys():
        given["subscribe"] = topic
    return reader.options(**{"kafka.bootstrap.servers": broker.bootstrap, **given}).load()


def frames(
    spark: SparkSession,
    broker: EmbeddedBroker,
    topic: str,
    options: dict[str, str],
    *,
    stream: bool,
) -> list[DataFrame]:
    return [
        frame(spark, broker, topic, options, name, stream=stream) for name in ("kafka", "ottla")
    ]


@pytest.mark.parametrize("options", BATCH, ids=str)
def test_batches_have_the_same_rows(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, options: dict[str, str]
) -> None:
    theirs, ours = frames(spark, broker, topic, options, stream=False)
    assert ours.schema == theirs.schema
    rows = [sorted(one.collect(), key=lambda r: (r.partition, r.offset)) for one in (theirs, ours)]
    assert rows[0] == rows[1]
    assert rows[0]


@pytest.mark.parametrize("options", STREAM, ids=str)
def test_streams_have_the_same_offsets(
    spark: SparkSession,
    broker: EmbeddedBroker,
    topic: str,
    tmp_path: Path,
    options: dict[str, str],
) -> None:
    ends = []
    for name, frame in zip(
        ("kafka", "ottla"),
        frames(spark, broker, topic, {**options, "startingOffsets": "earliest"}, stream=True),
        strict=True,
    ):
        query = run(frame, tmp_path / name, sink="noop", availableNow=True)
        found = [json.loads(one["sources"][0]["endOffset"]) for one in query.recentProgress]
        ends.append([one[topic] for one in found])
    assert ends[0] == ends[1]
    assert ends[0][-1] == {"0": 40, "1": 55, "2": 3}


@long
@pytest.mark.parametrize("options", REFUSED_BATCH, ids=str)
def test_case_01_both_refuse_a_batch(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, options: dict[str, str]
) -> None:
    for name in ("kafka", "ottla"):
        with pytest.raises((PySparkException, Py4JError)):
            frame(spark, broker, topic, options, name, stream=False).collect()


@long
@pytest.mark.parametrize("options", REFUSED_STREAM, ids=str)
def test_case_01_both_refuse_a_stream(
    spark: SparkSession,
    broker: EmbeddedBroker,
    topic: str,
    tmp_path: Path,
    options: dict[str, str],
) -> None:
    for name in ("kafka", "ottla"):
        with pytest.raises((PySparkException, Py4JError)):
            run(
                frame(spark, broker, topic, options, name, stream=True),
                tmp_path / name,
                sink="noop",
                availableNow=True,
            )


def test_case_21_a_checkpoint_moves_both_ways(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 2)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    theirs, ours = frames(spark, broker, topic, options, stream=True)
    rows = []
    for frame in (theirs, ours, theirs, ours):
        fill(broker, topic, {0: 10, 1: 20})
        query = run(frame, tmp_path, sink="noop", availableNow=True)
        rows.append(sum(one["numInputRows"] for one in query.recentProgress))
    assert rows == [30, 30, 30, 30]


def test_case_21_a_checkpoint_of_one_batch_moves_when_it_is_converted(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Also one whose only batch has to be run again."""
    topic = new_topic(broker, 2)
    fill(broker, topic, {0: 10, 1: 20})
    theirs, ours = frames(spark, broker, topic, {"startingOffsets": "earliest"}, stream=True)
    for there, back, to in ((ours, theirs, "kafka"), (theirs, ours, "ottla")):
        checkpoint = tmp_path / to
        run(there, checkpoint, sink="noop", availableNow=True)
        (checkpoint / "commits" / "0").unlink()
        (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
        assert convert(checkpoint, to)
        query = run(back, checkpoint, sink="noop", availableNow=True)
        assert [one["numInputRows"] for one in query.recentProgress] == [30]
