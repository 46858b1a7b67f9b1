"""Share groups as a source inside Spark: the cases of the share source, by their numbers.

Case 38, asynchronous progress, is the runner's: a source cannot see the options of a writer.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from ottla.spark.backend import Limit
from ottla.spark.share.machine import parse_offset
from ottla.spark.share.ranges import offsets, pieces, size
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark import NO_PAUSE, PATIENCE
from tests.support.spark_share import (
    BROKER_CONFIG,
    kill,
    lags,
    member,
    new_group,
    share_backend,
    take,
)
from tests.support.spark_source import fill, new_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOCK = {"share_record_lock_duration_ms": "1000"}


@pytest.fixture(scope="module")
def queues() -> Iterator[EmbeddedBroker]:
    """A broker that allows short locks and large windows."""
    with EmbeddedBroker(config=BROKER_CONFIG) as running:
        yield running


class Sink:
    """What each batch held; a batch that is run again replaces itself."""

    def __init__(self, before: Callable[[DataFrame, int], None] = lambda frame, number: None):
        self.batches: dict[int, list[Row]] = {}
        self._before = before

    def __call__(self, frame: DataFrame, number: int) -> None:
        self._before(frame, number)
        self.batches[number] = frame.collect()

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return sorted((row.partition, row.offset) for rows in self.batches.values() for row in rows)


class Query:
    """A stream of a group, to be started again and again."""

    def __init__(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        group: str,
        checkpoint: Path,
        topic: str,
        **options: str,
    ) -> None:
        given = {name.replace("__", "."): value for name, value in options.items()}
        self.frame = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .options(subscribe=topic, shareGroup=group, columns="partition,offset,deliveryCount")
            .options(**given)
            .load()
        )
        self.group, self.checkpoint = group, checkpoint

    def start(self, sink: Callable[[DataFrame, int], None], **trigger: Any) -> StreamingQuery:
        writer = self.frame.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger or NO_PAUSE).start()

    def run(self, sink: Callable[[DataFrame, int], None]) -> StreamingQuery:
        query = self.start(sink, availableNow=True)
        assert query.awaitTermination(PATIENCE), "the query has not ended"
        return query

    def fail(self, sink: Callable[[DataFrame, int], None]) -> None:
        with pytest.raises(PySparkException):
            self.run(sink)

    def logged(self, batch: int) -> Any:
        return parse_offset(
            json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]),
            self.group,
        )


def wait_for(done: Callable[[], object], query: StreamingQuery | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert query is None or query.isActive
        assert time.monotonic() < deadline
        time.sleep(0.05)


def expected(**counts: int) -> list[tuple[int, int]]:
    return [(int(key[1:]), at) for key, count in counts.items() for at in range(count)]


def explode(frame: DataFrame, number: int) -> None:
    raise RuntimeError(f"batch {number} is not to be")


def test_case_29_batches_are_accepted_without_waiting_for_the_next(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, group = new_topic(queues, 2), new_group(queues.bootstrap)
    fill(queues, topic, {0: 30, 1: 20})
    query = Query(spark, queues, group, tmp_path, topic, share__maxRecords="25")
    sink = Sink()
    query.run(sink)
    assert len(sink.batches) >= 2
    assert sink.offsets == expected(p0=30, p1=20)
    # Also the last one, though no batch came after it.
    assert lags(queues.bootstrap, group) == {0: 0, 1: 0}
    fill(queues, topic, {0: 5})
    running = query.start(sink)
    try:
        wait_for(lambda: len(sink.offsets) == 55, running)
        wait_for(lambda: lags(queues.bootstrap, group) == {0: 0, 1: 0}, running)
    finally:
        running.stop()
    assert take(queues.bootstrap, group, topic, 0.3) == []


def test_case_30_what_was_acquired_and_never_logged_comes_again(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(queues)
    # With a grace the locks outlive the process, and end by time.
    group = new_group(queues.bootstrap, share_session_grace_ms="60000", **LOCK)
    fill(queues, topic, {0: 20})
    source = share_backend(queues.bootstrap, group, topic)
    assert source.advance(source.bounds().first, Limit()) != source.bounds().first
    kill(source)
    sink = Sink()
    running = Query(spark, queues, group, tmp_path, topic).start(sink)
    try:
        wait_for(lambda: len(sink.offsets) >= 20, running)
    finally:
        running.stop()
    assert sink.offsets == expected(p0=20)
    assert {row.deliveryCount for rows in sink.batches.values() for row in rows} == {2}


@pytest.mark.parametrize("grace", ["60000", "0"])
def test_case_31_a_logged_batch_is_replayed_and_never_repeated(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path, grace: str
) -> None:
    topic = new_topic(queues, 2)
    group = new_group(queues.bootstrap, share_session_grace_ms=grace)
    fill(queues, topic, {0: 10, 1: 10})
    query = Query(spark, queues, group, tmp_path, topic)
    query.fail(explode)
    first = query.logged(0)
    assert size(first.ranges) in (10, 20)  # a partition whose state is read later comes later
    fill(queues, topic, {1: 10})
    sink = Sink()
    query.run(sink)
    assert sink.offsets == expected(p0=10, p1=20)
    assert {(row.partition, row.offset) for row in sink.batches[0]} == {
        (place.partition, at) for place, at in offsets(first.ranges)
    }
    assert query.logged(1).member == first.member
    # One more: whatever was a ghost has been laid.
    fill(queues, topic, {0: 1})
    query.run(sink)
    assert sink.offsets == expected(p0=11, p1=20)
    assert not query.logged(2).ghosts
    assert lags(queues.bootstrap, group) == {0: 0, 1: 0}


@pytest.mark.parametrize("renewal", ["true", "false"])
def test_case_32_a_batch_three_times_as_long_as_its_locks(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path, renewal: str
) -> None:
    topic = new_topic(queues)
    group = new_group(queues.bootstrap, share_renew_acknowledge_enable=renewal, **LOCK)
    fill(queues, topic, {0: 10})
    others: list[int] = []

    def work(frame: DataFrame, number: int) -> None:
        if not number:
            # Meanwhile somebody else asks, and accepts what it gets.
            deadline = time.monotonic() + 3.0
            asking = accept(
                queues.bootstrap, group, topic, others, lambda: time.monotonic() > deadline
            )
            asyncio.run(asking)

    sink = Sink(work)
    running = Query(spark, queues, group, tmp_path, topic).start(sink)
    try:
        wait_for(lambda: sink.offsets == expected(p0=10), running)
        fill(queues, topic, {0: 1})
        wait_for(lambda: (running.lastProgress or {"batchId": 0})["batchId"] == 1, running)
        [told] = [one for one in running.recentProgress if one["batchId"] == 1][:1]
    finally:
        running.stop()
    assert sink.offsets == expected(p0=11)
    lost = json.loads(told["sources"][0]["latestOffset"])["lostLocks"]
    if renewal == "true":
        assert (others, lost) == ([], 0)
    else:
        # At least once, and the query knows of which.
        assert (sorted(others), lost) == (list(range(10)), 10)


async def accept(
    bootstrap: str, group: str, topic: str, found: list[int], done: Callable[[], bool]
) -> None:
    async with member(bootstrap, group, topic) as consumer:
        while not done():
            for record in await consumer.poll(0.2):
                consumer.acknowledge(record, "accept")
                found.append(record.offset)
        await consumer.commit()


def test_case_33_another_member_takes_its_share(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, group = new_topic(queues), new_group(queues.bootstrap)
    others: list[int] = []
    done = threading.Event()
    asking = accept(queues.bootstrap, group, topic, others, done.is_set)
    helper = threading.Thread(target=lambda: asyncio.run(asking))
    helper.start()
    sink = Sink()
    running = Query(spark, queues, group, tmp_path, topic).start(sink)
    sent = 0
    try:
        deadline = time.monotonic() + PATIENCE
        while not (others and sink.offsets) or sent < 1000:
            assert time.monotonic() < deadline, "one of them is never given anything"
            fill(queues, topic, {0: 50})
            sent += 50
        wait_for(lambda: len(others) + len(sink.offsets) >= sent, running)
    finally:
        done.set()
        helper.join()
        running.stop()
    assert sorted([*others, *(at for _, at in sink.offsets)]) == list(range(sent))


def test_case_34_a_poison_row_ends_in_the_dead_letters(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(queues)
    queues.create_topic("dlq.poison", configs={"errors.deadletterqueue.group.enable": "true"})
    group = new_group(queues.bootstrap, errors_deadletterqueue_topic_name="dlq.poison")
    fill(queues, topic, {0: 1})
    for delivery in (1, 2):
        [record] = take(queues.bootstrap, group, topic, 10.0)
        assert record.delivery_count == delivery
    fill(queues, topic, {0: 4})
    verdicts = tmp_path / "verdicts"

    def judge(frame: DataFrame, number: int) -> None:
        bad = frame.selectExpr(f"'{topic}' as topic", "partition", "offset", "deliveryCount")
        bad.where("deliveryCount >= 3").write.mode("append").json(str(verdicts))

    sink = Sink(judge)
    options = {"share__verdicts": str(verdicts)}
    Query(spark, queues, group, tmp_path / "checkpoint", topic, **options).run(sink)
    counts = {row.offset: row.deliveryCount for rows in sink.batches.values() for row in rows}
    assert counts == {0: 3, 1: 1, 2: 1, 3: 1, 4: 1}
    assert lags(queues.bootstrap, group) == {0: 0}
    assert dead_letters(spark, queues, "dlq.poison") == ["0"]


@pytest.mark.parametrize("place", ["file", "topic"])
def test_case_35_verdicts_reject_and_the_rest_is_accepted(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path, place: str
) -> None:
    topic, bad = new_topic(queues), new_topic(queues)
    letters = f"dlq.verdicts.{place}"
    queues.create_topic(letters, configs={"errors.deadletterqueue.group.enable": "true"})
    group = new_group(queues.bootstrap, errors_deadletterqueue_topic_name=letters)
    fill(queues, topic, {0: 20})
    verdicts = tmp_path / "verdicts.json"

    def judge(frame: DataFrame, number: int) -> None:
        if place == "topic":
            named = frame.selectExpr(f"'{topic}' as topic", "partition", "offset")
            rows = named.where("offset in (3, 4, 11)").selectExpr("to_json(struct(*)) as value")
            writer = rows.write.format("ottla").mode("append").option("topic", bad)
            writer.option("kafka.bootstrap.servers", queues.bootstrap).save()
            return
        lines = [json.dumps({"topic": topic, "partition": 0, "offset": at}) for at in (3, 4, 11)]
        verdicts.write_text("\n".join(lines) + "\n")

    sink = Sink(judge)
    options = {"share__verdicts": f"topic:{bad}" if place == "topic" else str(verdicts)}
    Query(spark, queues, group, tmp_path / "checkpoint", topic, **options).run(sink)
    assert sink.offsets == expected(p0=20)
    assert lags(queues.bootstrap, group) == {0: 0}
    assert dead_letters(spark, queues, letters) == ["11", "3", "4"]


def dead_letters(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> list[str]:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.options(subscribe=topic, includeHeaders="true").load()
    return sorted(
        bytes(header.value).decode()
        for row in frame.select("headers").collect()
        for header in row.headers
        if header.key == "__dlq.errors.offset"
    )


def test_case_36_ten_thousand_fragments(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(queues)
    group = new_group(queues.bootstrap, share_partition_max_record_locks="1000000")
    fill(queues, topic, {0: 20_100})

    async def accept_odd_ones() -> None:
        async with member(queues.bootstrap, group, topic) as consumer:
            records = await consumer.take(20_100, 5.0)
            while len(records) < 20_100:
                records += await consumer.take(20_100, 5.0)
            for record in records:
                consumer.acknowledge(record, "accept" if record.offset % 2 else "release")
            await consumer.commit()

    asyncio.run(accept_odd_ones())
    query = Query(spark, queues, group, tmp_path, topic)
    sink = Sink()
    query.run(sink)
    assert sink.offsets == [(0, at) for at in range(0, 20_100, 2)]
    assert [pieces(query.logged(number).ranges) for number in sink.batches] == [10_000, 50]
    assert (tmp_path / "offsets" / "0").stat().st_size < 300_000
    assert lags(queues.bootstrap, group) == {0: 0}


def test_case_37_a_frame_that_is_read_twice_is_the_same(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, group = new_topic(queues, 2), new_group(queues.bootstrap)
    fill(queues, topic, {0: 100, 1: 100})
    twice: list[list[Row]] = []

    def write_twice(frame: DataFrame, number: int) -> None:
        twice.extend(sorted(frame.collect()) for _ in range(2))

    sink = Sink(write_twice)
    Query(spark, queues, group, tmp_path, topic).run(sink)
    assert twice[::2] == twice[1::2]
    assert sink.offsets == expected(p0=100, p1=100)


def test_a_batch_query_and_a_strange_checkpoint_are_refused(
    spark: SparkSession, queues: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, group = new_topic(queues), new_group(queues.bootstrap)
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", queues.bootstrap)
    frame = reader.options(subscribe=topic, shareGroup=group).load()
    assert frame.schema["deliveryCount"].dataType.simpleString() == "int"
    with pytest.raises(AnalysisException, match="shareGroup is for streaming queries"):
        frame.collect()
    fill(queues, topic, {0: 3})
    Query(spark, queues, group, tmp_path, topic).run(Sink())
    other = Query(spark, queues, new_group(queues.bootstrap), tmp_path, topic)
    with pytest.raises(PySparkException, match="is not one of share group"):
        other.run(Sink())
