"""Rows to topics and partitions, without Spark."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.types import StructType

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import ClientError
from ottla.spark.errors import BadOption, BadSchema
from ottla.spark.sink.options import SinkOptions, parse_sink
from ottla.spark.sink.sink import BadRow, divided, write_rows
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_source import new_topic
from tests.support.topics import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = StructType().add("key", "binary").add("value", "binary")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def options(broker: EmbeddedBroker, schema: StructType = SCHEMA, /, **given: str) -> SinkOptions:
    return parse_sink(
        {"kafka.bootstrap.servers": broker.bootstrap, **given}, schema, overwrite=False
    )


def parts(rows: dict[str, Any], topic: str | None = None) -> list[tuple[str, int | None, Any]]:
    table = pa.table({name: pa.array(values) for name, values in rows.items()})
    found = divided(table, topic, position=7)
    return [(one.topic, one.partition, one.rows.to_pydict()["value"]) for one in found]


def test_rows_go_where_their_columns_say() -> None:
    rows = {
        "value": ["a", "b", "c", "d"],
        "topic": ["x", "y", "x", "x"],
        "partition": [1, 0, 1, None],
    }
    assert parts(rows) == [("x", 1, ["a", "c"]), ("x", None, ["d"]), ("y", 0, ["b"])]
    assert parts({"value": ["a", "b"]}, "t") == [("t", None, ["a", "b"])]


def test_rows_that_go_nowhere_are_named_by_their_place() -> None:
    with pytest.raises(BadRow, match="row 8 of the task has no topic"):
        parts({"value": ["a", "b"], "topic": ["x", None]})
    with pytest.raises(BadRow, match="row 9 of the task has partition -2"):
        parts({"value": ["a", "b", "c"], "partition": [0, None, -2]}, "t")


def test_what_a_sink_refuses(broker: EmbeddedBroker) -> None:
    for given, said in [
        ({"delivery": "maybe"}, "at-least-once"),
        ({"partitioner": "spark"}, "murmur2"),
    ]:
        with pytest.raises(BadOption, match=said):
            options(broker, topic="t", **given)
    with pytest.raises(BadSchema, match="column key has to be binary or string"):
        options(broker, StructType().add("key", "integer").add("value", "string"), topic="t")
    with pytest.raises(BadSchema, match="no column value"):
        options(broker, StructType().add("key", "string"), topic="t")
    with pytest.raises(BadSchema, match="set the option topic"):
        options(broker)
    with pytest.raises(BadOption, match="overwrite"):
        parse_sink({"kafka.bootstrap.servers": "x:1"}, SCHEMA, overwrite=True)


def test_case_45_keys_have_the_partitions_librdkafka_gives_them(broker: EmbeddedBroker) -> None:
    ours, theirs = new_topic(broker, 50), new_topic(broker, 50)
    rng = random.Random(45)
    keys = [rng.randbytes(rng.randrange(40)) for _ in range(10_000)]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(theirs, b"", key)
        producer.poll(0)
    assert producer.flush(30) == 0
    rows = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(keys)})
    written = write_rows([rows], options(broker, topic=ours))
    assert sum(written.rows.values()) == 10_000
    # An empty key is a key to Java's client and to us, and none to librdkafka.
    placed = [
        sorted(
            (one.record.key, one.partition)
            for one in read_all(broker.bootstrap, topic)
            if one.record.key
        )
        for topic in (ours, theirs)
    ]
    assert len(placed[0]) > 9_000
    assert placed[0] == placed[1]


def test_case_39_a_failed_task_gives_its_producer_up_and_the_next_one_works(
    broker: EmbeddedBroker,
) -> None:
    topic = new_topic(broker)
    schema = StructType().add("value", "binary").add("partition", "integer")
    given = options(broker, schema, topic=topic)

    def rows(partition: int) -> pa.RecordBatch:
        return pa.record_batch(
            {"value": pa.array([b"x"] * 10), "partition": pa.array([partition] * 10, pa.int32())}
        )

    with pytest.raises(ClientError, match="its partitions are 0 to 0"):
        write_rows([rows(0), rows(9)], given)
    assert write_rows([rows(0), rows(0)], given).rows == {TopicPartition(topic, 0): 20}
    # At least once: what the failed task had written may be there too.
    assert len(read_all(broker.bootstrap, topic)) in (20, 30)
    assert write_rows([], given).rows == {}
