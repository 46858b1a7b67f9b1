"""The source inside Spark: what only Spark can show."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.broker.serving.dispatch import Dispatcher
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.spark.schema import TYPES
from ottla.wire.arrow import SCHEMA
from tests.support.spark import run, start
from tests.support.spark_source import fill, new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from ottla.testing.embedded import EmbeddedBroker

_names = itertools.count(1)


def read(spark: SparkSession, broker: EmbeddedBroker, **options: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(**options).load()


def stream(spark: SparkSession, broker: EmbeddedBroker, **options: str) -> DataFrame:
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(**options).load()


def source_processes() -> set[int]:
    """The source processes of queries of this very session."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"python_streaming_source_runner" in command and is_ours(int(entry.name)):
                found.add(int(entry.name))
    return found


def is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def raw(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def test_case_02_schemas(spark: SparkSession, broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    plain = read(spark, broker, subscribe=topic).schema
    assert plain.fieldNames() == list(TYPES)[:-1]
    headers = read(spark, broker, subscribe=topic, includeHeaders="true").schema
    assert headers.fieldNames() == list(TYPES)
    assert headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    by_option = read(spark, broker, subscribe=topic, columns="offset, value").schema
    given = StructType([headers["offset"], headers["value"]])
    by_schema = (
        spark.read.format("ottla")
        .schema(given)
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic})
        .load()
    )
    fill(broker, topic, {0: 3})
    assert by_option == by_schema.schema == given
    pruned = read(spark, broker, subscribe=topic, columns="offset,value")
    assert by_schema.collect() == pruned.collect()


def test_case_11_arrow_schemas_are_those_spark_derives() -> None:
    for name, kind in TYPES.items():
        derived = to_arrow_schema(StructType().add(name, kind), timezone="UTC")
        assert derived.field(name).equals(SCHEMA.field(name)), name


@pytest.mark.parametrize(
    ("schema", "said"),
    [("value string", "column value string cannot be read"), ("price int", "column price int")],
)
def test_case_03_a_wrong_schema_errors_before_any_task(
    spark: SparkSession, broker: EmbeddedBroker, schema: str, said: str
) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "no matter"}
    frame = spark.read.format("ottla").schema(schema).options(**options).load()
    with pytest.raises(AnalysisException, match=said):
        frame.collect()


def test_case_01_a_refused_option_is_told_by_load(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    with pytest.raises(AnalysisException, match=r"kafka\.auto\.offset\.reset is not supported"):
        read(spark, broker, subscribe="t", **{"kafka.auto.offset.reset": "latest"})
    with pytest.raises(PySparkException, match="find topic no-such-topic"):
        read(spark, broker, subscribe="no-such-topic").collect()


def test_case_04_each_record_once_whatever_it_holds(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    topic = new_topic(broker, 3)
    records = [
        ProducerRecord(None, b"only a key", timestamp_ms=1_000),
        ProducerRecord(b"", None, timestamp_ms=2_000),
        ProducerRecord(b"v", b"", (("h", b"1"), ("h", None), ("", b"")), timestamp_ms=3_000),
    ]

    async def send(codec: str, size: int) -> None:
        async with Producer(broker.bootstrap, compression_type=codec, batch_size=size) as producer:
            await producer.send_many(topic, records * 5)

    for codec, size in itertools.product(("none", "gzip", "snappy", "lz4", "zstd"), (1, 100_000)):
        asyncio.run(send(codec, size))
    rows = read(spark, broker, subscribe=topic, includeHeaders="true").collect()
    assert len(rows) == len({(row.partition, row.offset) for row in rows}) == 150
    found = {
        (
            raw(row.key),
            raw(row.value),
            row.timestamp.timestamp(),
            tuple((one.key, raw(one.value)) for one in row.headers or ()),
        )
        for row in rows
    }
    assert found == {
        (b"only a key", None, 1.0, ()),
        (None, b"", 2.0, ()),
        (b"", b"v", 3.0, (("h", b"1"), ("h", None), ("", b""))),
    }


def test_case_16_min_partitions_is_a_number_of_tasks(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    topic = new_topic(broker, 3)
    fill(broker, topic, {0: 500, 1: 10, 2: 10})
    options = {"subscribe": topic, "columns": "partition,offset"}
    assert read(spark, broker, **options).rdd.getNumPartitions() == 1
    split = read(spark, broker, **options, minPartitions="6")
    assert split.rdd.getNumPartitions() >= 6
    assert split.distinct().count() == 520
    assert read(spark, broker, **options, maxRecordsPerPartition="100").rdd.getNumPartitions() == 6


def test_case_28_filters_are_pushed_where_spark_is_told_to(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    topic = new_topic(broker, 4)
    fill(broker, topic, dict.fromkeys(range(4), 50))
    frame = read(spark, broker, subscribe=topic, pushdown="true")
    wanted = frame.where((col("partition") == 2) & (col("offset") >= 40))
    with pytest.raises(AnalysisException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        wanted.collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        again = read(spark, broker, subscribe=topic, pushdown="true")
        found = again.where((col("partition") == 2) & (col("offset") >= 40)).collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert [(row.partition, row.offset) for row in found] == [(2, at) for at in range(40, 50)]


def test_case_12_14_limits_and_the_checkpoint(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, {0: 30, 1: 90})
    frame = stream(
        spark, broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="60"
    )
    query = run(frame, tmp_path, sink="noop", availableNow=True)
    ends = [json.loads(one["sources"][0]["endOffset"]) for one in query.recentProgress]
    assert [end[topic] for end in ends] == [{"0": 15, "1": 45}, {"0": 30, "1": 90}]
    assert [one["numInputRows"] for one in query.recentProgress] == [60, 60]
    logged = (tmp_path / "offsets" / "1").read_text().splitlines()[-1]
    assert json.loads(logged) == {topic: {"0": 30, "1": 90}}
    # Another run of the same query goes on where this one ended.
    fill(broker, topic, {0: 5})
    query = run(frame, tmp_path, sink="noop", once=True)
    assert query.lastProgress is not None
    assert query.lastProgress["numInputRows"] == 5


def test_case_12_a_limit_in_bytes(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, {0: 40})
    limits = {"maxBytesPerTrigger": "1", "maxOffsetsPerTrigger": "100"}
    frame = stream(spark, broker, subscribe=topic, startingOffsets=at(topic, 38), **limits)
    query = run(frame, tmp_path, sink="noop", availableNow=True)
    # A record is more than a byte, and a batch has one all the same.
    assert [one["numInputRows"] for one in query.recentProgress] == [1, 1]


def at(topic: str, offset: int) -> str:
    return json.dumps({topic: {"0": offset}})


@pytest.fixture
def running(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> Iterator[tuple[object, set[int]]]:
    topic = new_topic(broker)
    before = source_processes()
    query = start(stream(spark, broker, subscribe=topic, longPollMs="30000"), tmp_path, sink="noop")
    deadline = time.monotonic() + 30
    while not (query.status["message"] or "").startswith("Getting offsets"):
        assert time.monotonic() < deadline, query.status
        time.sleep(0.02)
    yield query, source_processes() - before
    query.stop()


def gone(pids: set[int]) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


def test_case_24_stop_does_not_wait_for_a_blocked_call(running: tuple[object, set[int]]) -> None:
    query, processes = running
    assert processes
    query.stop()  # type: ignore[attr-defined]  # a StreamingQuery
    assert gone(processes)


def test_case_25_a_signal_closes_the_source_once(running: tuple[object, set[int]]) -> None:
    query, processes = running
    for pid in processes:
        os.kill(pid, signal.SIGTERM)
    assert gone(processes)
    query.stop()  # type: ignore[attr-defined]  # a StreamingQuery


def test_case_23_an_idle_query_asks_the_broker_less_than_15_times_a_second(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker, 5)
    fill(broker, topic, dict.fromkeys(range(5), 1))
    frame = stream(spark, broker, subscribe=topic, startingOffsets="earliest")
    query = start(frame, tmp_path, sink="noop")
    asked: list[float] = []
    dispatch = Dispatcher.dispatch

    def counted(self: Dispatcher, *given: Any) -> object:
        asked.append(time.monotonic())
        return dispatch(self, *given)

    try:
        query.processAllAvailable()
        monkeypatch.setattr(Dispatcher, "dispatch", counted)
        began = time.monotonic()
        while len(asked) < 20:
            assert time.monotonic() - began < 60, "an idle query still asks"
            time.sleep(0.05)
        assert len(asked) / (asked[-1] - began) < 15
        assert query.lastProgress is not None
        assert query.lastProgress["batchId"] == 0, "and has no empty batches"
    finally:
        query.stop()
