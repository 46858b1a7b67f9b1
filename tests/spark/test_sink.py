"""The sink inside Spark, and the hash of keys against librdkafka's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import IntegerType, StringType, StructType

from tests.support.spark import run
from tests.support.spark_source import fill, new_topic
from tests.support.topics import read_all

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.testing.embedded import EmbeddedBroker

SCHEMA = (
    "key string, value string, topic string, partition int, "
    "headers array<struct<key:string,value:binary>>, ignored int"
)


def test_columns_say_where_a_row_goes(spark: SparkSession, broker: EmbeddedBroker) -> None:
    one, other = new_topic(broker, 3), new_topic(broker, 2)
    rows = [
        ("k", "first", one, 2, [("h", b"x"), ("h", None)], 1),
        (None, None, one, 0, None, 2),
        ("k", "by key", other, None, [], 3),
    ]
    frame = spark.createDataFrame(rows, SCHEMA)
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    frame.write.format("ottla").mode("append").options(**options).save()
    found = [(at.partition, at.record) for at in read_all(broker.bootstrap, one)]
    assert [(place, record.key, record.value) for place, record in found] == [
        (0, None, None),
        (2, b"k", b"first"),
    ]
    assert found[1][1].headers == (("h", b"x"), ("h", None))
    assert [at.record.value for at in read_all(broker.bootstrap, other)] == [b"by key"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sinkId": "s"}, "sinkId belongs to delivery=exactly-once"),
        ({"partitioner": "spark"}, "partitioner is murmur2"),
        ({"kafka.value.serializer": "x"}, r"kafka\.value\.serializer"),
        ({}, "no topic is given"),
    ],
)
def test_case_01_what_a_sink_refuses(
    spark: SparkSession, broker: EmbeddedBroker, options: dict[str, str], said: str
) -> None:
    frame = spark.range(1).selectExpr("cast(id as string) as value")
    options = {"topic": "t", **options} if options else {}
    writer = frame.write.format("ottla").mode("append").options(**options)
    with pytest.raises(AnalysisException, match=said):
        writer.option("kafka.bootstrap.servers", broker.bootstrap).save()


def test_rows_that_cannot_be_sent_are_named(spark: SparkSession, broker: EmbeddedBroker) -> None:
    schema = (
        StructType()
        .add("value", StringType())
        .add("topic", StringType())
        .add("partition", IntegerType())
    )
    topic = new_topic(broker)
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    for row, said in [
        (("a", None, 0), "row 0 of the task has no topic"),
        (("a", topic, -1), "row 0 of the task has partition -1"),
        (("a", topic, 7), "its partitions are 0 to 0"),
    ]:
        frame = spark.createDataFrame([row], schema)
        with pytest.raises(PySparkException, match=said):
            frame.write.format("ottla").mode("append").options(**options).save()


def test_case_39_a_stream_is_written_in_order_and_a_replay_again(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    source, target = new_topic(broker, 2), new_topic(broker, 2)
    fill(broker, source, {0: 500, 1: 500})
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": target}
    frame = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="400")
        .load()
        .selectExpr("value", "partition")
    )
    run(frame, tmp_path, sink="ottla", options=options, availableNow=True)
    written = [(one.partition, one.record.value) for one in read_all(broker.bootstrap, target)]
    expected = [(p, f"{p}:{number}".encode()) for p in (0, 1) for number in range(500)]
    assert written == expected
    # The last batch was written but its commit is lost: it is written again, and there is no gap.
    last = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    run(frame, tmp_path, sink="ottla", options=options, availableNow=True)
    again = [(one.partition, one.record.value) for one in read_all(broker.bootstrap, target)]
    assert len(again) == 1200
    assert set(again) == set(expected)
