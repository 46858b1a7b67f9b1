"""The log as a source, against a broker and without Spark."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.cluster.connection import Connection
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import KafkaError, UnsupportedApi
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.spark import cluster
from ottla.spark.backend import Limit
from ottla.spark.cluster import Cluster
from ottla.spark.errors import BadOption
from ottla.spark.log.mirror import Mirror
from ottla.spark.log.record_sizes import RecordSizes
from ottla.spark.readers import StreamReader
from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark_source import (
    backend,
    fill,
    new_topic,
    rows,
    task_rows,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.spark.log.backend import LogBackend

ALL = Limit()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def everything(source: LogBackend) -> list[tuple[int, int, bytes | None]]:
    first, last = source.bounds()
    return rows(source, first, last)


def test_case_05_a_batch_from_one_offset_to_another(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, {0: 10, 1: 10})
    start = f'{{"{topic}": {{"0": 3, "1": -2}}}}'
    end = f'{{"{topic}": {{"0": -1, "1": 4}}}}'
    source = backend(broker, "batch", subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert everything(source) == values({0: (3, 10), 1: (0, 4)})
    some = backend(broker, "batch", assign=f'{{"{topic}": [1]}}')
    assert everything(some) == values({1: (0, 10)})
    with pytest.raises(BadOption, match="has to name all partitions"):
        backend(
            broker, "batch", subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 3}}}}'
        ).bounds()
    with pytest.raises(BadOption, match="assign"):
        backend(broker, "batch", assign=f'{{"{topic}": [7]}}').bounds()
    with pytest.raises(KafkaError, match="no-such-topic"):
        backend(broker, "batch", subscribe="no-such-topic").bounds()


def test_case_05_patterns_match_in_full(broker: EmbeddedBroker) -> None:
    one, other = new_topic(broker), new_topic(broker)
    fill(broker, one, {0: 2})
    fill(broker, other, {0: 3})
    assert len(everything(backend(broker, "batch", subscribePattern=f"{one}|{other}"))) == 5
    assert len(everything(backend(broker, "batch", subscribePattern=one))) == 2
    assert not everything(backend(broker, "batch", subscribePattern=one[:-1]))


def test_case_06_times_and_both_strategies(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, {0: 5, 1: 5}, timestamp=1000)
    fill(broker, topic, {0: 5}, timestamp=2000)
    early = backend(broker, "batch", subscribe=topic, startingTimestamp="1000")
    assert len(everything(early)) == 15
    with pytest.raises(BadOption, match=f"startingTimestamp: {topic}-1 have no record"):
        backend(broker, "batch", subscribe=topic, startingTimestamp="1500").bounds()
    late = backend(
        broker,
        "batch",
        subscribe=topic,
        startingTimestamp="1500",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert [row[:2] for row in everything(late)] == [(0, number) for number in range(5, 10)]
    until = backend(broker, "batch", subscribe=topic, endingTimestamp="1500")
    assert len(everything(until)) == 10
    each = f'{{"{topic}": {{"0": 1500, "1": 500}}}}'
    by_partition = backend(broker, "batch", subscribe=topic, startingOffsetsByTimestamp=each)
    assert len(everything(by_partition)) == 10


def test_case_17_the_first_offset_stays_though_the_log_grows(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, {0: 5})
    options = backend(broker, subscribe=topic)._options
    reader = StreamReader(options, ("value",))
    first = reader.initialOffset()
    fill(broker, topic, {0: 5})
    assert reader.initialOffset() is first
    assert first == {topic: {"0": 5}}
    reader.stop()
    reader.stop()


def test_case_20_a_replay_needs_no_memory_and_the_first_end_no_start(
    broker: EmbeddedBroker,
) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, {0: 4, 1: 4})
    source = backend(broker, subscribe=topic)
    first = source.bounds().first
    fill(broker, topic, {0: 3})
    end = source.advance(first, ALL)
    batch = rows(source, first, end)
    assert [row[:2] for row in batch] == [(0, 4), (0, 5), (0, 6)]
    fill(broker, topic, {0: 3, 1: 1})
    # Spark asks a new process for the start once more, and would get another "latest".
    again = backend(broker, subscribe=topic)
    anew = again.bounds().first
    assert anew != first
    assert rows(again, anew, end) == batch
    second = again.advance(end, ALL)
    assert second == {topic: {"0": 10, "1": 5}}
    assert rows(backend(broker, subscribe=topic), end, second) == rows(again, end, second)


def test_case_22_nothing_new_is_the_same_offset(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, {0: 3})
    source = backend(broker, subscribe=topic, startingOffsets="earliest")
    end = source.advance(source.bounds().first, ALL)
    assert all(source.advance(end, ALL) is end for _ in range(5))
    assert source.latest() == {topic: {"0": 3}}
    assert source.advance({topic: {"0": 3}}, ALL) == {topic: {"0": 3}}


def test_case_23_an_idle_call_is_one_request(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker, 5)
    source = backend(broker, subscribe=topic)
    start = source.bounds().first
    assert source.advance(start, ALL) is start
    sent = []
    send = Connection.send

    async def counted(self: Connection, request: object, *rest: object) -> object:
        sent.append(type(request).__name__)
        return await send(self, request, *rest)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(Connection, "send", counted)
    for _ in range(10):
        assert source.advance(start, ALL) is start
        source.latest()
    assert sent == ["FetchRequest"] * 10, "each waits at the broker for as long as a long poll"
    source.close()


def test_a_waiting_source_hears_of_new_records_at_once(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    source = backend(broker, subscribe=topic, longPollMs="20000")
    first = source.bounds().first
    timer = threading.Timer(0.3, fill, (broker, topic, {0: 1}))
    timer.start()
    began = time.monotonic()
    end = source.advance(first, ALL)
    timer.join()
    assert time.monotonic() - began < 15
    assert end[topic] == {"0": 1}
    source.close()


def test_case_12_13_14_limits_and_available_now(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, {0: 30, 1: 90})
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    source = backend(broker, **options)
    first = source.bounds().first
    assert source.advance(first, Limit(40))[topic] == {"0": 10, "1": 30}
    source.freeze()
    fill(broker, topic, {0: 50})
    ends = [first]
    while (end := source.advance(ends[-1], Limit(60))) is not ends[-1]:
        ends.append(end)
    assert ends[-1][topic] == {"0": 30, "1": 90}
    assert [sum(one[topic].values()) for one in ends] == [0, 60, 120]
    few = backend(broker, **options, minOffsetsPerTrigger="500", maxTriggerDelay="200ms")
    due = few.advance(first, Limit(None, waits=True))
    assert sum(due[topic].values()) == 170, "the first batch does not wait"
    fill(broker, topic, {0: 1})
    assert few.advance(due, Limit(None, waits=True)) is due
    time.sleep(0.2)
    assert few.advance(due, Limit(None, waits=True)) is not due


def test_case_12_a_limit_in_bytes(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(broker, 3)
    write_values(broker, topic, {0: [bytes(1000)] * 100, 1: [bytes(100)] * 100})
    source = backend(broker, subscribe=topic, startingOffsets="earliest")
    sent = []
    send = Connection.send

    async def counted(self: Connection, request: object, *rest: object) -> object:
        sent.append(type(request).__name__)
        return await send(self, request, *rest)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(Connection, "send", counted)
    ends = [source.bounds().first]
    while (end := source.advance(ends[-1], Limit(max_bytes=11_000))) is not ends[-1]:
        ends.append(end)
    # An offset takes what its record has and a little more, in the log as in a request.
    assert 5 <= ends[1][topic]["0"] == ends[1][topic]["1"] <= 10
    assert ends[-1] == {topic: {"0": 100, "1": 100, "2": 0}}
    assert len(ends) > 10
    assert sent.count("DescribeLogDirsRequest") == 1, "sizes are kept for a while"
    both = source.advance(ends[0], Limit(max_rows=4, max_bytes=11_000))
    assert both[topic] == {"0": 2, "1": 2, "2": 0}
    source.close()


def write_values(broker: EmbeddedBroker, topic: str, values: dict[int, list[bytes]]) -> None:
    async def send() -> None:
        records = [
            ProducerRecord(value, partition=partition)
            for partition, some in values.items()
            for value in some
        ]
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many(topic, records)

    asyncio.run(send())


def test_an_old_broker_is_asked_where_its_log_begins(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker)
    write_values(broker, topic, {0: [bytes(1000)] * 10})
    place = TopicPartition(topic, 0)
    known = Cluster(backend(broker, subscribe=topic)._options.client)
    [size] = known.record_sizes([place]).values()
    assert 1000 <= size <= 1100
    monkeypatch.setattr(cluster, "OLDEST_EARLIEST_LOCAL", 99)
    assert known.record_sizes([place]) == {place: size}
    empty = new_topic(broker)
    assert known.record_sizes([TopicPartition(empty, 0)]) == {}
    known.close()


def test_brokers_that_tell_no_sizes_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    place = TopicPartition("t", 0)
    answers: list[dict[TopicPartition, float]] = [{place: 5.0}]

    def ask(places: object) -> dict[TopicPartition, float]:
        if not answers:
            raise UnsupportedApi("the broker does not serve DescribeLogDirs")
        return answers.pop()

    sizes = RecordSizes(ask, ttl=0.0)
    assert [sizes.of([place]) for _ in range(3)] == [{place: 5.0}] * 3
    assert len(caplog.records) == 1


def test_case_15_a_new_partition_is_read_by_the_next_run(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, {0: 3})
    options = {"subscribe": topic, "startingOffsets": "earliest", "metadataTtlMs": "0"}
    source = backend(broker, **options)
    source.freeze()
    first = source.bounds().first

    async def add() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_partitions(topic, 2)

    asyncio.run(add())
    fill(broker, topic, {1: 4})
    end = source.advance(first, ALL)
    assert end[topic] == {"0": 3}
    assert source.advance(end, ALL) is end
    following = backend(broker, **options)
    following.freeze()
    last = following.advance(end, ALL)
    assert last == {topic: {"0": 3, "1": 4}}
    assert rows(following, end, last) == values({1: (0, 4)})


def test_case_10_and_16_large_values_and_many_small_batches(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 40, max_message_bytes=str(8 << 20))

    async def send() -> None:
        async with Producer(broker.bootstrap, max_request_size=8 << 20) as producer:
            for size in (0, 1, 1 << 20, 5 << 20):
                await producer.send(topic, bytes(size), partition=0)

    asyncio.run(send())
    fill(broker, topic, dict.fromkeys(range(1, 40), 20))
    source = backend(broker, "batch", subscribe=topic)
    first, last = source.bounds()
    [task] = source.plan(first, last)
    found = task_rows(source, task)
    assert [len(value or b"") for p, _, value in found if p == 0] == [0, 1, 1 << 20, 5 << 20]
    assert len(found) == 4 + 39 * 20
    batches = list(source.read(task, ("partition", "offset")))
    assert len(batches) < 10, "small partitions are put together"
    assert batches[0].schema.names == ["partition", "offset"]


def test_case_47_a_group_mirrors_the_query_and_seeds_another(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, {0: 5, 1: 5})
    told: list[object] = []
    monkeypatch.setitem(sys.modules, "their_hooks", SimpleNamespace(tell=told.append))
    options = {"offsetsGroup": "lag-tools", "onSettled": "their_hooks:tell"}
    source = backend(broker, subscribe=topic, **options)
    source.settle({topic: {"0": 3}, "@initial": {topic: {"0": 1}}})
    source.close()
    assert told == [{topic: {"0": 3}}]
    seeded = backend(broker, subscribe=topic, startingOffsets="group:lag-tools")
    assert seeded.bounds().first == {topic: {"0": 3, "1": 0}}


@pytest.mark.parametrize("kind", ["", "sqlite:///"])
def test_case_47_a_store_mirrors_the_query_and_seeds_another(
    broker: EmbeddedBroker, tmp_path: Path, kind: str
) -> None:
    topic = new_topic(broker, 2)
    fill(broker, topic, {0: 5, 1: 5})
    url = f"{kind}{tmp_path}/offsets"
    source = backend(broker, subscribe=topic, offsetStore=url, offsetStoreKey="totals")
    source.settle({topic: {"0": 4}})
    source.settle({topic: {"0": 3}})
    source.close()
    options = {"subscribe": topic, "startingOffsets": "store:totals"}
    seeded = backend(broker, **options, offsetStore=url)
    assert seeded.bounds().first == {topic: {"0": 3, "1": 0}}
    seeded.close()
    with pytest.raises(BadOption, match="offsetStore: 'ftp' names no offset store"):
        backend(broker, **options, offsetStore="ftp://x").bounds()
    with pytest.raises(BadOption, match="needs the option offsetStore"):
        backend(broker, **options)


def test_the_last_position_is_saved_before_the_last_call_returns(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark kills the process then: what a thread has not saved by then is not saved."""
    topic = new_topic(broker)
    fill(broker, topic, {0: 5})
    started, go = threading.Event(), threading.Event()
    told: list[object] = []

    def tell(offsets: object) -> None:
        started.set()
        go.wait(30)
        told.append(offsets)

    monkeypatch.setitem(sys.modules, "their_hooks", SimpleNamespace(tell=tell))
    waits: list[float] = []
    flush = Mirror.flush

    def counted(mirror: Mirror, within: float = 30.0) -> None:
        waits.append(within)
        flush(mirror, within)

    monkeypatch.setattr(Mirror, "flush", counted)
    options = {"onSettled": "their_hooks:tell", "longPollMs": "0"}
    source = backend(broker, subscribe=topic, startingOffsets="earliest", **options)
    source.freeze()
    end = {topic: {"0": 5}}
    source.settle(end)
    assert started.wait(30)
    threading.Timer(0.2, go.set).start()
    assert source.advance(end, ALL) == end
    assert told == [end]
    # Once for a position: a query that is idle does not wait each time it looks for more.
    source.settle(end)
    assert source.advance(end, ALL) == end
    assert len(waits) == 1
    source.close()


def test_a_driver_does_not_load_what_only_workers_need() -> None:
    code = "import sys, ottla.spark.log.backend as _; print({'numba', 'pyarrow'} & {*sys.modules})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"
