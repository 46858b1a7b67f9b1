"""Fetch on a node: what it waits for, what it tells, and what a look costs."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio

from ottla.broker.handlers.fetch import fetch
from ottla.broker.running.node import Node
from ottla.broker.serving.answer_memory import MAX_READ_BYTES
from ottla.broker.serving.context import Peer, RequestContext
from ottla.broker.topics import create_topic
from ottla.broker.workers import READER_THREADS
from ottla.log.os_storage import OsStorage
from ottla.log.producer_state import Origin
from ottla.metadata.config.broker import load_broker_config
from ottla.wire.error_codes import ErrorCode
from ottla.wire.records import ControlType
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.log_batches import batch_of, marker
from tests.support.raw_client import values_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence
    from pathlib import Path

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.wire.schema.fetch import PartitionData

FETCH: Final = 1
VERSION: Final = 12  # the last that names topics
LONG_MS: Final = 600_000
PATIENCE: Final = 60.0


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path, ephemeral=True)
    await create_topic(node.cluster, "orders", partitions=1)
    yield node
    await node.stop()


def ask(node: Node, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    return fetch(
        RequestContext(Peer("127.0.0.1", "PLAINTEXT"), FETCH, VERSION, None),
        request,
        node.cluster,
        node.partitions,
        node.services.tiering,
        node.fetch_sessions,
        node.settings,
        node.clock,
        node.services.answers,
        node.workers,
    )


def write(partition: HostedPartition, value: bytes) -> None:
    log = partition.log
    log.append(batch_of(value), leader_epoch=partition.leader_epoch, now_ms=0)
    partition.advance(log.log_end_offset)


async def test_what_is_written_before_the_wait_begins_is_not_waited_for(node: Node) -> None:
    """The answer is waited for in a task of its own: others are served before its first step."""
    partition = await node.partitions.open("orders", 0, write=True)
    wanted = FetchTopic("orders", partitions=[FetchPartition(partition_max_bytes=1000)])
    answer = ask(node, FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, topics=[wanted]))
    assert not isinstance(answer, FetchResponse)
    waiting = asyncio.ensure_future(answer)
    write(partition, b"1")
    found = await asyncio.wait_for(waiting, PATIENCE)
    assert found.responses[0].partitions[0].high_watermark == 1
    assert found.responses[0].partitions[0].records


async def test_an_answer_holds_what_one_turn_may_read_and_does_not_wait_for_more(
    node: Node,
) -> None:
    partition = await node.partitions.open("orders", 0, write=True)
    size = 900_000
    for number in range(12):
        write(partition, bytes([number]) * size)
    wanted = FetchTopic("orders", partitions=[FetchPartition(partition_max_bytes=12 * size)])
    most = 12 * size
    request = FetchRequest(max_wait_ms=LONG_MS, min_bytes=most, max_bytes=most, topics=[wanted])
    answer = ask(node, request)
    assert isinstance(answer, FetchResponse)
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, list)
    assert MAX_READ_BYTES - 2 * size < sum(map(len, records)) <= MAX_READ_BYTES


# -- aborted transactions ----------------------------------------------------------------------

ABORTED: Final = 300


def aborted_transactions(partition: HostedPartition, *, count: int) -> None:
    """One record and a marker each, of three producers in turn; every seventh is committed."""
    for number in range(count):
        producer, epoch = number % 3, number
        sent = batch_of(b"v", producer_id=producer, epoch=epoch, sequence=0, transactional=True)
        kind = ControlType.COMMIT if number % 7 == 0 else ControlType.ABORT
        for batch, origin in (
            (sent, Origin.CLIENT),
            (marker(kind, producer, epoch), Origin.COORDINATOR),
        ):
            partition.log.append(batch, leader_epoch=0, now_ms=0, origin=origin)
    partition.advance(partition.log.log_end_offset)


def committed_read(node: Node, offset: int, max_bytes: int) -> PartitionData:
    wanted = FetchPartition(0, -1, offset, partition_max_bytes=max_bytes)
    topic = FetchTopic("orders", partitions=[wanted])
    answer = ask(node, FetchRequest(isolation_level=1, topics=[topic], max_bytes=max_bytes))
    assert isinstance(answer, FetchResponse)
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("tail", [True, False], ids=["from memory", "from the file"])
async def test_only_the_aborted_transactions_of_what_was_read_are_told(
    node: Node, tail: bool
) -> None:
    partition = await node.partitions.open("orders", 0, write=True)
    aborted_transactions(partition, count=ABORTED)
    if not tail:
        partition.log._tail.clear()  # the reads below come from the segment
    one = committed_read(node, 0, 1)  # the first batch comes whole; it is committed
    assert [(each.producer_id, each.first_offset) for each in one.aborted_transactions or ()] == []
    assert one.last_stable_offset == 2 * ABORTED
    one = committed_read(node, 2, 1)
    assert [(each.producer_id, each.first_offset) for each in one.aborted_transactions or ()] == [
        (1, 2)
    ]
    some = committed_read(node, 0, 700)
    assert isinstance(some.records, list)
    read = sum(len(chunk) for chunk in some.records)
    assert 0 < read <= 700
    assert len(some.aborted_transactions or ()) <= read // 70
    everything = committed_read(node, 0, 10_000_000)
    expected = [(n % 3, 2 * n) for n in range(ABORTED) if n % 7]
    told = [(each.producer_id, each.first_offset) for each in everything.aborted_transactions or ()]
    assert told == expected


async def test_a_full_answer_lists_what_was_open_and_what_had_to_be_opened(tmp_path: Path) -> None:
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path)
    await create_topic(node.cluster, "orders", partitions=2)
    for index in range(2):
        write(await node.partitions.open("orders", index, write=True), b"1")
    await node.stop()
    node = await Node.start(config, tmp_path)
    try:
        await node.partitions.open("orders", 0)
        # At the end of each: the first look settles partition 0, and may not lose it.
        wanted = [FetchPartition(i, -1, 1, partition_max_bytes=1000) for i in range(2)]
        topic = FetchTopic("orders", partitions=wanted)
        answer = ask(node, FetchRequest(session_epoch=0, topics=[topic]))
        assert not isinstance(answer, FetchResponse), "partition 1 is opened first"
        found = await asyncio.wait_for(answer, PATIENCE)
        assert found.session_id
        listed = {data.partition_index: data for data in found.responses[0].partitions}
        assert {index: data.high_watermark for index, data in listed.items()} == {0: 1, 1: 1}
        assert not any(data.error_code for data in listed.values())
    finally:
        await node.stop()


class ColdDisk(OsStorage):
    """The page cache has nothing of a log until somebody has read it; who reads is noted."""

    def __init__(self) -> None:
        self.readers: list[str] = []
        self.warm = False

    def is_cached(self, fd: int, start: int, size: int) -> bool | None:
        return self.warm

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.readers.append(threading.current_thread().name)
        return super().pread(fd, size, position)


async def _values(answer: FetchResponse | Awaitable[FetchResponse]) -> Sequence[bytes | None]:
    response = answer if isinstance(answer, FetchResponse) else await answer
    return _values_in(response.responses[0].partitions[0])


def _values_in(data: PartitionData) -> Sequence[bytes | None]:
    """The parts of an answer that was not sent are not joined yet."""
    assert isinstance(data.records, list)
    return values_of(data._replace(records=b"".join(data.records)))


async def test_records_in_no_cache_are_read_by_a_worker_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = ColdDisk()
    monkeypatch.setattr("ottla.broker.hosting.data.OsStorage", lambda: disk)
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "ottla.tail.cache.bytes=0"]
    node = await Node.start(load_broker_config(sets=sets), tmp_path)
    try:
        await create_topic(node.cluster, "orders", partitions=1)
        partition = await node.partitions.open("orders", 0, write=True)
        write(partition, b"cold")
        await node.durability.sync([partition])
        topic = FetchTopic("orders", partitions=[FetchPartition(partition_max_bytes=1000)])
        wanted = FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=10_000, topics=[topic])
        disk.readers.clear()
        assert await _values(ask(node, wanted)) == [b"cold"]
        assert disk.readers[0].startswith("ottla-read")
        disk.readers.clear()
        disk.warm = True
        assert await _values(ask(node, wanted)) == [b"cold"]
        assert {name.startswith("ottla-read") for name in disk.readers} == {False}
    finally:
        await node.stop()


async def test_an_offset_that_is_wrong_is_told_though_others_are_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.hosting.data.OsStorage", ColdDisk)
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "ottla.tail.cache.bytes=0"]
    node = await Node.start(load_broker_config(sets=sets), tmp_path)
    try:
        await create_topic(node.cluster, "orders", partitions=2)
        for index in range(2):
            partition = await node.partitions.open("orders", index, write=True)
            write(partition, b"cold")
            await node.durability.sync([partition])
        wanted = [
            FetchPartition(0, fetch_offset=0, partition_max_bytes=1000),
            FetchPartition(1, fetch_offset=99, partition_max_bytes=1000),
        ]
        asked = FetchRequest(
            max_wait_ms=LONG_MS,
            min_bytes=1,
            max_bytes=10_000,
            topics=[FetchTopic("orders", partitions=wanted)],
        )
        answer = ask(node, asked)
        response = answer if isinstance(answer, FetchResponse) else await answer
        first, second = response.responses[0].partitions
        assert _values_in(first) == [b"cold"]
        assert second.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    finally:
        await node.stop()


class StuckReads(ColdDisk):
    """Nothing is in the page cache, and workers wait for the disk until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self.inside = 0
        self._lock = threading.Lock()

    def pread(self, fd: int, size: int, position: int) -> bytes:
        if threading.current_thread().name.startswith("ottla-read") and not self.let_go.is_set():
            with self._lock:
                self.inside += 1
            self.let_go.wait(PATIENCE)
        return super().pread(fd, size, position)


async def test_47_eight_reads_wait_for_the_disk_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = StuckReads()
    monkeypatch.setattr("ottla.broker.hosting.data.OsStorage", lambda: disk)
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", "ottla.tail.cache.bytes=0"]
    node = await Node.start(load_broker_config(sets=sets), tmp_path)
    try:
        await create_topic(node.cluster, "orders", partitions=READER_THREADS + 2)
        for index in range(READER_THREADS + 1):
            partition = await node.partitions.open("orders", index, write=True)
            write(partition, b"cold")
            await node.durability.sync([partition])
        answers = []
        for index in range(READER_THREADS + 1):
            wanted = [FetchPartition(index, partition_max_bytes=1000)]
            topic = FetchTopic("orders", partitions=wanted)
            request = FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1000, topics=[topic])
            answers.append(asyncio.ensure_future(_values(ask(node, request))))
        async with asyncio.timeout(PATIENCE):
            while disk.inside < READER_THREADS:  # noqa: ASYNC110 (threads tell nobody)
                await asyncio.sleep(0.01)
            # A producer is not held up by them.
            other = await node.partitions.open("orders", READER_THREADS + 1, write=True)
            write(other, b"produced")
            await node.durability.sync([other])
        assert disk.inside == READER_THREADS
        assert not any(answer.done() for answer in answers)
        disk.let_go.set()
        assert await asyncio.gather(*answers) == [[b"cold"]] * (READER_THREADS + 1)
    finally:
        disk.let_go.set()
        await node.stop()
