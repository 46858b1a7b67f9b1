"""Source, share source and sink against Apache Kafka itself, transactions included.

Only the last test has Spark around it: backends show as much in less time.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from ottla.client.cluster.view import TopicPartition
from ottla.spark.backend import Limit
from ottla.spark.errors import BatchLost, OwnerRule
from ottla.spark.log.backend import LogBackend
from ottla.spark.options import parse_source
from ottla.spark.sink.options import parse_sink
from ottla.spark.sink.sink import write_rows
from ottla.wire.records import Record
from tests.support.jvm import why_no_jvm
from tests.support.spark import NO_PAUSE
from tests.support.spark_share import kill, lags, new_group, share_backend, take
from tests.support.spark_share import rows as share_rows
from tests.support.spark_sink import Sink, task
from tests.support.spark_sink import rows as batch_of
from tests.support.spark_source import rows
from tests.support.topics import create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.backend import Offset
    from ottla.spark.share.backend import ShareBackend

FOREVER: Final = "-1"
"""Records here are of 1970."""
LOCK_SECONDS: Final = 2.0
PATIENCE: Final = 60.0
pytestmark = pytest.mark.skipif(why_no_jvm() is not None, reason=str(why_no_jvm()))


@pytest.fixture(scope="module")
def bootstrap(apache_bootstrap: str) -> str:
    return apache_bootstrap


def source(bootstrap: str, topic: str, **options: str) -> LogBackend:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
    return LogBackend(parse_source(given, "batch"))


def values(found: LogBackend) -> list[bytes | None]:
    return [value for _, _, value in rows(found, *found.bounds())]


def test_case_08_transactions(bootstrap: str) -> None:
    create_topic(bootstrap, "transactions", retention_ms=FOREVER)

    def send(value: bytes, transaction: bool | None) -> None:
        config = {} if transaction is None else {"transactional.id": "spark"}
        records = [Record(0, 1000, None, value, ())] * 3
        produce(bootstrap, "transactions", records, transaction=transaction, config=config)

    send(b"plain", None)
    send(b"committed", True)
    send(b"aborted", False)
    send(b"after", None)
    all_of_them = source(bootstrap, "transactions")
    assert (
        values(all_of_them)
        == [b"plain"] * 3 + [b"committed"] * 3 + [b"aborted"] * 3 + [b"after"] * 3
    )
    committed = source(bootstrap, "transactions", **{"kafka.isolation.level": "read_committed"})
    assert values(committed) == [b"plain"] * 3 + [b"committed"] * 3 + [b"after"] * 3


def test_case_40_41_43_the_sink_writes_exactly_once(bootstrap: str) -> None:
    create_topic(bootstrap, "once", 2, retention_ms=FOREVER)
    sink = Sink(bootstrap, "once")
    older = sink.planned()
    left_open = task(older, [batch_of(0, b"left open")])
    planned = sink.planned()
    with pytest.raises(BatchLost, match="another run of the query has taken over"):
        sink.writer().commit([left_open], 0)
    written = [task(planned, [batch_of(n, b"a", b"b")], number=n) for n in (0, 1)]
    assert sink.seen() == []
    sink.writer().commit([*written], 0)
    # To Spark the commit has failed, so it asks for the end of the batch, and repeats it.
    sink.writer().abort([*written], 0)
    assert task(sink.planned(), [batch_of(0, b"again")]).rows == {}
    planned = sink.planned()
    written = [task(planned, [batch_of(0, b"c")], batch=1)]
    with pytest.raises(OwnerRule, match="each partition has to be written by one task"):
        task(planned, [batch_of(0, b"d", b"e")], number=1, batch=1)
    sink.writer().abort([*written, None], 1)
    assert sink.seen() == [(n, value) for n in (0, 1) for value in (b"a", b"b")]


def test_what_the_sink_writes_the_source_reads(bootstrap: str) -> None:
    create_topic(bootstrap, "written", 3, retention_ms=FOREVER)
    schema = StructType().add("key", "binary").add("value", "binary")
    options = parse_sink(
        {"kafka.bootstrap.servers": bootstrap, "topic": "written", "compression": "zstd"},
        schema,
        overwrite=False,
    )
    numbers = [str(number).encode() for number in range(1000)]
    batch = pa.record_batch({"key": pa.array(numbers), "value": pa.array(numbers)})
    written = write_rows([batch] * 3, options)
    assert written.rows.keys() == {TopicPartition("written", number) for number in range(3)}
    assert sorted(values(source(bootstrap, "written"))) == sorted(numbers * 3)  # type: ignore[type-var]  # none is null


def test_case_12_a_limit_in_bytes(bootstrap: str) -> None:
    create_topic(bootstrap, "bytes", 2, retention_ms=FOREVER)
    for partition, size in enumerate((1000, 100)):
        records = [Record(0, 1000, None, bytes(size), ())] * 100
        produce(bootstrap, "bytes", records, partition=partition)
    limited = source(bootstrap, "bytes")
    end = limited.advance(limited.bounds().first, Limit(max_bytes=11_000))
    assert 5 <= end["bytes"]["0"] == end["bytes"]["1"] <= 10
    limited.close()


def fill(bootstrap: str, topic: str, count: int) -> None:
    records = [Record(0, 1000, None, b"%d" % number, ()) for number in range(count)]
    produce(bootstrap, topic, records)


def next_batch(source: ShareBackend, start: Offset) -> Offset:
    """What comes after an offset; a member that has just joined waits for its partitions."""
    deadline = time.monotonic() + PATIENCE
    while (end := source.advance(start, Limit())) == start:
        assert time.monotonic() < deadline
    return end


def test_case_29_31_32_a_share_group_with_none_of_our_helps(bootstrap: str) -> None:
    """The records of a batch travel to the driver, locks end with its connection: no more."""
    group = new_group(
        bootstrap,
        share_record_lock_duration_ms=str(int(LOCK_SECONDS * 1000)),
        share_renew_acknowledge_enable="true",
    )
    topic = f"queue-of-{group}"
    create_topic(bootstrap, topic, retention_ms=FOREVER)
    fill(bootstrap, topic, 20)
    source = share_backend(bootstrap, group, topic)
    start = source.bounds().first
    first = next_batch(source, start)
    assert share_rows(source, start, first) == [(0, at, 1) for at in range(20)]
    # A batch that takes longer than its locks: they are renewed, nobody else is given a record.
    assert take(bootstrap, group, topic, 1.5 * LOCK_SECONDS) == []
    source.settle(first)
    assert source.latest() == {"held": 0, "waiting": 0, "ghosts": 0, "lostLocks": 0}
    assert lags(bootstrap, group) == {0: 0}
    # A driver that dies with a batch in Spark's log: its locks are gone at once, the next driver
    # reads the same rows, and what is delivered again is accepted and not read again.
    fill(bootstrap, topic, 30)
    second = next_batch(source, first)
    assert len(share_rows(source, first, second)) == 30
    kill(source)
    again = share_backend(bootstrap, group, topic)
    assert share_rows(again, first, second) == [(0, at, 1) for at in range(20, 50)]
    again.settle(second)
    fill(bootstrap, topic, 5)
    third = next_batch(again, second)
    assert [row[:2] for row in share_rows(again, second, third)] == [
        (0, at) for at in range(50, 55)
    ]
    again.settle(third)
    assert again.latest() == {"held": 0, "waiting": 0, "ghosts": 0, "lostLocks": 30}
    assert lags(bootstrap, group) == {0: 0}
    again.close()


@pytest.mark.soak("a JVM for Kafka and one for Spark")
def test_case_29_31_35_a_share_group_in_spark(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    group = new_group(bootstrap, share_record_lock_duration_ms=str(int(LOCK_SECONDS * 1000)))
    topic, bad = f"queue-of-{group}", f"verdicts-of-{group}"
    create_topic(bootstrap, topic, retention_ms=FOREVER)
    create_topic(bootstrap, bad, retention_ms=FOREVER)
    fill(bootstrap, topic, 30)
    batches: dict[int, list[int]] = {}
    progress: list[dict[str, int]] = []

    def explode(frame: DataFrame, number: int) -> None:
        raise RuntimeError(f"batch {number} is not to be")

    def keep(frame: DataFrame, number: int) -> None:
        rows = frame.where("offset = 7").selectExpr(f"'{topic}' as topic", "partition", "offset")
        verdicts = rows.selectExpr("to_json(struct(*)) as value")
        to_topic = verdicts.write.format("ottla").mode("append").option("topic", bad)
        to_topic.option("kafka.bootstrap.servers", bootstrap).save()
        batches[number] = sorted(row.offset for row in frame.collect())

    def run(work: Callable[[DataFrame, int], None], records: int) -> None:
        reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.options(subscribe=topic, shareGroup=group, columns="partition,offset")
        frame = reader.option("share.maxRecords", "20").option("share.verdicts", f"topic:{bad}")
        writer = frame.load().writeStream.foreachBatch(work).trigger(**NO_PAUSE)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        deadline = time.monotonic() + 2 * PATIENCE
        try:
            while not (
                sum(map(len, batches.values())) == records
                and lags(bootstrap, group) == {0: 0}
                and query.lastProgress
            ):
                assert time.monotonic() < deadline, (batches, query.status)
                if not query.isActive:
                    query.processAllAvailable()  # raises what has ended it
                time.sleep(0.1)
            progress.append(json.loads(query.lastProgress["sources"][0]["latestOffset"]))
        finally:
            query.stop()

    with pytest.raises(PySparkException, match="batch 0 is not to be"):
        run(explode, 1)
    assert batches == {}
    # The locks of the batch that failed ended with its driver; it is run again all the same.
    run(keep, 30)
    fill(bootstrap, topic, 12)
    run(keep, 42)
    assert sorted(at for some in batches.values() for at in some) == list(range(42))
    assert progress[-1]["badVerdicts"] == 0
    assert values(source(bootstrap, bad)) == [
        json.dumps({"topic": topic, "partition": 0, "offset": 7}, separators=(",", ":")).encode()
    ]
    assert take(bootstrap, group, topic, 2 * LOCK_SECONDS) == []
