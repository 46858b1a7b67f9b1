"""Partitions come, are opened, deleted and made again while workers are busy with them."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
import weakref
from collections import Counter
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from ottla.broker.errors import ApiError
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.list_offsets import (
    LOOKED_AT_ONCE,
    list_offsets,
    offset_for_leader_epoch,
)
from ottla.broker.handlers.log_dirs import describe_log_dirs
from ottla.broker.handlers.produce import TURN_BYTES, produce
from ottla.broker.handlers.producer_ids import describe_producers
from ottla.broker.hosting.hosted import NotOpen
from ottla.broker.running.node import Node
from ottla.broker.serving.context import Peer, RequestContext
from ottla.broker.shares.settings import resolve_start
from ottla.broker.topics import create_topic, delete_topic, existing
from ottla.broker.workers import BLOCKING_THREADS
from ottla.log.checkpoints import CLEAN_SHUTDOWN, Checkpoint, TopicPartition
from ottla.log.errors import LogError, StorageFailure
from ottla.log.partition import PartitionLog
from ottla.metadata.config.broker import load_broker_config
from ottla.wire.batch import iter_batches, read_batch
from ottla.wire.builder import BatchBuilder
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import read_response, request_parts
from ottla.wire.records import iter_records
from ottla.wire.schema.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.schema.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.schema.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.acks import durable
from tests.support.held_broker import copy_as_killed
from tests.support.pausable_workers import PausableWorkers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.workers import Workers
    from ottla.log.partition import PartitionLog as Log

PATIENCE: Final = 60.0
ORDERS: Final = TopicPartition("orders", 0)
NOW_MS: Final = 1_700_000_000_000
CONTEXT: Final = RequestContext(Peer("", "PLAINTEXT"), 0, 7, None)


@pytest.fixture(autouse=True)
def _pausable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.running.node.Workers", PausableWorkers)


@asynccontextmanager
async def started(path: Path, *sets: str) -> AsyncIterator[Node]:
    config = load_broker_config(
        sets=[
            "listeners=PLAINTEXT://127.0.0.1:0",
            "log.cleaner.min.cleanable.ratio=0",
            "log.cleaner.backoff.ms=3600000",  # the test is the cleaner
            *sets,
        ]
    )
    node = await Node.start(config, path)
    try:
        yield node
    finally:
        await node.stop()


def workers_of(node: Node) -> PausableWorkers:
    workers: Workers = node.workers
    assert isinstance(workers, PausableWorkers)
    return workers


async def create(node: Node, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    await create_topic(node.cluster, "orders", partitions=partitions, configs=configs)


async def delete(node: Node) -> None:
    await delete_topic(node.cluster, lambda image: existing(image, "orders"))


def record(value: bytes) -> bytes:
    """A batch of one."""
    builder = BatchBuilder()
    builder.append(value, key=b"k", timestamp=NOW_MS)
    return bytes(builder.build())


async def write(node: Node, value: bytes, name: TopicPartition = ORDERS) -> int:
    hosted = await node.partitions.open(*name, write=True)
    batch = read_batch(memoryview(record(value)))
    result = hosted.log.append(batch, leader_epoch=hosted.leader_epoch, now_ms=NOW_MS)
    await cast("Any", node.durability.join([hosted]))
    assert hosted.log.online
    return result.base_offset


async def values(node: Node, name: TopicPartition = ORDERS) -> list[bytes | None]:
    log = (await node.partitions.open(*name)).log
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        chunks, _ = log.read(
            offset, 1 << 20, upper_bound_offset=log.high_watermark, min_one_message=True
        )
        for chunk in chunks:
            for batch in iter_batches(memoryview(chunk)):
                found += [record.value for record in iter_records(batch)]
                offset = batch.next_offset
    return found


def directories(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path) if (path / name).is_dir())  # noqa: PTH208


def open_files(path: Path) -> list[str]:
    """Those of logs: a node opens others of its directory for a moment, in threads of its own."""
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):  # closed meanwhile
            found.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115
    return sorted(name for name in found if name.startswith(f"{path}/orders-"))


@pytest.mark.parametrize(("size", "is_kept"), [(0, False), (1 << 20, True)])
async def test_the_tail_cache_is_as_large_as_the_setting_says(
    tmp_path: Path, size: int, is_kept: bool
) -> None:
    async with started(tmp_path, f"ottla.tail.cache.bytes={size}") as node:
        await create(node)
        await write(node, b"x")
        log = node.partitions.find(*ORDERS).log
        assert (log._tail.read(0, 1, 1, at_least_one=True) is not None) == is_kept
        assert await values(node) == [b"x"]


@pytest.mark.long
@pytest.mark.parametrize("turns", range(5))
async def test_a_log_is_opened_although_both_openers_have_just_ended(
    tmp_path: Path, turns: int
) -> None:
    """Fault: it counted on an opener that had seen the empty queue, and waited for ever."""
    async with started(tmp_path) as node, asyncio.timeout(PATIENCE):
        await create(node, partitions=3)
        with workers_of(node).held("open_logs", done=True) as hold:
            opened = []
            for index in range(2):
                opening = node.partitions.open("orders", index, write=True)
                opened.append(asyncio.create_task(opening))
                while len(hold.jobs) <= index:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        for _ in range(turns):
            await asyncio.sleep(0)
        assert (await node.partitions.open("orders", 2, write=True)).name == ("orders", 2)
        await asyncio.gather(*opened)


# -- looking does not make ------------------------------------------------------------------------


async def test_looking_at_partitions_that_were_never_written_makes_nothing(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        await create(node, partitions=50)
        partitions, tiering, workers = node.partitions, node.services.tiering, node.workers
        everything = [*range(50)]
        for timestamp in (-1, -2, -3, -4, 0, NOW_MS):
            asked = [ListOffsetsPartition(index, -1, timestamp) for index in everything]
            request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("orders", asked)])
            answer: Any = list_offsets(
                RequestContext(CONTEXT.peer, 2, 8, None), request, partitions, tiering, workers
            )
            if asyncio.iscoroutine(answer):
                answer = await answer
            rows = answer.topics[0].partitions
            assert {row.error_code for row in rows} == {ErrorCode.NONE}
            assert {row.offset for row in rows} <= {0, -1}
        epochs = [OffsetForLeaderPartition(index, -1, 0) for index in everything]
        answer = await offset_for_leader_epoch(
            CONTEXT,
            OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("orders", epochs)]),
            partitions,
        )
        assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.NONE}
        producers = DescribeProducersRequest([TopicRequest("orders", everything)])
        answer = await describe_producers(CONTEXT, producers, partitions)
        assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.NONE}
        answer = await describe_log_dirs(
            CONTEXT, DescribeLogDirsRequest(None), node.cluster, node.data, partitions, node.workers
        )
        (found,) = answer.response.results[0].topics
        assert {row.partition_size for row in found.partitions} == {0}
        await node.jobs._retention().run()
        assert not await node.services.cleaner().compact_dirtiest()
        assert directories(tmp_path) == []
        assert open_files(tmp_path) == []
        assert not list(partitions)


async def test_a_fetch_of_an_unwritten_partition_wakes_with_its_first_record(
    tmp_path: Path,
) -> None:
    async with started(tmp_path) as node:
        await create(node)
        wanted = FetchTopic("orders", partitions=[FetchPartition(partition_max_bytes=1000)])
        request = FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=[wanted])
        answer = fetch(
            RequestContext(CONTEXT.peer, 1, 12, None),
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
        assert not isinstance(answer, FetchResponse)
        waiting = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        assert directories(tmp_path) == []
        assert await write(node, b"first") == 0
        found = await asyncio.wait_for(waiting, PATIENCE)
        assert found.responses[0].partitions[0].records


async def test_a_closed_log_stays_closed_until_it_is_asked_for(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        await create(node)
        await write(node, b"kept")
        size = node.partitions.find(*ORDERS).log.size_bytes
    async with started(tmp_path) as node:
        answer = await describe_log_dirs(
            CONTEXT,
            DescribeLogDirsRequest(None),
            node.cluster,
            node.data,
            node.partitions,
            node.workers,
        )
        assert answer.response.results[0].topics[0].partitions[0].partition_size == size
        assert not list(node.partitions)
        with pytest.raises(NotOpen):
            node.partitions.find(*ORDERS)
        assert await values(node) == [b"kept"]
        assert [hosted.name for hosted in node.partitions] == [ORDERS]


async def test_offsets_of_thousands_of_partitions_are_listed_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: 10,000 of them took one turn of the loop of 77 ms."""
    count = 3 * LOOKED_AT_ONCE + 7
    looks = 0
    async with started(tmp_path) as node:
        await create(node, partitions=count)
        await write(node, b"v", TopicPartition("orders", count - 1))
        find = node.partitions.find

        def counted(topic: str, index: int) -> HostedPartition:
            nonlocal looks
            looks += 1
            return find(topic, index)

        monkeypatch.setattr(node.partitions, "find", counted)
        asked = [ListOffsetsPartition(index, -1, -1) for index in range(count)]
        topics = [ListOffsetsTopic("orders", asked[:50]), ListOffsetsTopic("orders", asked[50:])]
        answer: Any = list_offsets(
            RequestContext(CONTEXT.peer, 2, 8, None),
            ListOffsetsRequest(-1, 0, topics),
            node.partitions,
            node.services.tiering,
            node.workers,
        )
        listing = asyncio.ensure_future(answer)
        seen = [0]
        while not listing.done():
            await asyncio.sleep(0)
            seen.append(looks)
        assert looks == count
        assert max(after - before for before, after in pairwise(seen)) <= LOOKED_AT_ONCE
        rows = [row for topic in listing.result().response.topics for row in topic.partitions]
        assert [row.partition_index for row in rows] == [*range(count)]
        assert [row.offset for row in rows] == [0] * (count - 1) + [1]


@pytest.mark.parametrize("deleted", [False, True])
async def test_thousands_of_closed_logs_are_freed_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, deleted: bool
) -> None:
    """Fault: the 10,000 logs of a node that stopped were freed in one turn of 50 ms."""
    count, a_turn = 100, 5
    monkeypatch.setattr("ottla.broker.hosting.partitions.NOTED_AT_ONCE", a_turn)
    async with started(tmp_path) as node:
        await create(node, partitions=count)
        names = [TopicPartition("orders", index) for index in range(count)]
        await asyncio.gather(*(write(node, b"v", name) for name in names))
        gc.collect()  # cycles that the writes left may hold logs
        alive, turn, own = count, 0, threading.get_ident()
        on_the_loop: Counter[int] = Counter()  # by turn; those that a thread frees cost no turn

        def freed() -> None:
            nonlocal alive
            alive -= 1
            on_the_loop[turn] += threading.get_ident() == own

        for hosted in node.partitions:
            weakref.finalize(hosted.log, freed)
        del hosted
        if deleted:
            await delete(node)
        closing = asyncio.create_task(node.partitions.close(clean=True))
        async with asyncio.timeout(PATIENCE):
            while alive or not closing.done():
                await asyncio.sleep(0)
                turn += 1
        assert max(on_the_loop.values()) <= a_turn * BLOCKING_THREADS


async def test_a_look_up_that_nobody_waits_for_leaves_no_coroutine_behind(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        await create(node)
        await write(node, b"v")
        topics = [ListOffsetsTopic("orders", [ListOffsetsPartition(0, -1, NOW_MS)])]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            answer: Any = list_offsets(
                RequestContext(CONTEXT.peer, 2, 8, None),
                ListOffsetsRequest(-1, 0, topics),
                node.partitions,
                node.services.tiering,
                node.workers,
            )
            asyncio.ensure_future(answer).cancel()  # as when the connection closes
            await asyncio.sleep(0)
            del answer
            gc.collect()
        assert [str(one.message) for one in told if "_find_in_files" in str(one.message)] == []


async def test_a_directory_is_given_back_after_the_last_worker_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []
    async with started(tmp_path) as node:
        for step in (node.workers, node.data):

            def closed(step: Any = step, close: Callable[[], None] = step.close) -> None:
                steps.append(step)
                close()

            monkeypatch.setattr(step, "close", closed)
    assert steps == [node.workers, node.data]


async def test_work_that_never_begins_leaves_no_coroutine_behind(tmp_path: Path) -> None:
    """What waits for a busy path is ended with the loop."""
    async with started(tmp_path) as node:
        goes_on = asyncio.Event()
        begun = []

        async def first() -> None:
            await goes_on.wait()

        async def second() -> None:
            begun.append(2)

        one = node.partitions._in_background(first, [ORDERS])
        other = node.partitions._in_background(second, [ORDERS])
        await asyncio.sleep(0)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            other.cancel()
            await asyncio.wait([other])
            gc.collect()
        assert [str(one.message) for one in told] == []
        goes_on.set()
        await asyncio.wait_for(one, PATIENCE)
        assert begun == []


# -- opening --------------------------------------------------------------------------------------


async def test_all_who_ask_share_one_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    really = PartitionLog.open

    def counted(directory: Path, *args: Any, **settings: Any) -> Log:
        opened.append(directory.name)
        return really(directory, *args, **settings)

    monkeypatch.setattr(PartitionLog, "open", counted)
    async with started(tmp_path) as node:
        await create(node, partitions=40)
        names = [TopicPartition("orders", index) for index in range(40)]
        async with asyncio.timeout(PATIENCE):
            found = await asyncio.gather(
                *(node.partitions.open(*name, write=True) for name in names * 5)
            )
        assert sorted(opened) == sorted(f"orders-{index}" for index in range(40))
        assert len(set(found)) == 40


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, Any]:
    async with asyncio.timeout(PATIENCE):
        size = int.from_bytes(await reader.readexactly(4), "big")
        return read_response(0, 9, memoryview(await reader.readexactly(size)))


async def test_requests_behind_a_first_write_have_their_logs_opened_with_it(
    tmp_path: Path,
) -> None:
    """One connection, one request for each of 40 new partitions: not one log after the other."""
    count = 40
    async with started(tmp_path) as node:
        await create(node, partitions=count)
        host, port = node.addresses["PLAINTEXT"]
        reader, writer = await asyncio.open_connection(host, port)
        # An empty request has the API loaded.
        writer.writelines(request_parts(0, 9, 0, "first", ProduceRequest(None, -1, 30_000, [])))
        await answer_of(reader)
        with workers_of(node).held("open_logs") as hold:
            for index in range(count):
                data = PartitionProduceData(index, memoryview(record(b"%d" % index)))
                topic = TopicProduceData("orders", partition_data=[data])
                body = ProduceRequest(None, -1, 30_000, [topic])
                writer.writelines(request_parts(0, 9, index, "first", body))
            async with asyncio.timeout(PATIENCE):
                await hold.reached.wait()
                while len(node.partitions._opening) < count:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        for index in range(count):
            correlation_id, response = await answer_of(reader)
            assert correlation_id == index
            (partition,) = response.responses[0].partition_responses
            assert (partition.index_, partition.error_code) == (index, ErrorCode.NONE)
        for index in range(count):
            assert await values(node, TopicPartition("orders", index)) == [b"%d" % index]
        writer.close()


async def test_an_open_log_costs_one_descriptor(tmp_path: Path) -> None:
    """Ten thousand of them have to fit into the usual limits."""
    async with started(tmp_path) as node:
        await create(node, partitions=30)
        await write(node, b"v")
        for index in range(1, 30):
            await write(node, b"v", TopicPartition("orders", index))
        async with asyncio.timeout(PATIENCE):
            while len(open_files(tmp_path)) > 30:  # noqa: ASYNC110  # an index is being made
                await asyncio.sleep(0.01)
        assert len({name.split("/")[-2] for name in open_files(tmp_path)}) == 30


async def test_lookers_see_an_unwritten_partition_while_its_log_is_made(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        await create(node)
        with workers_of(node).held("open_logs") as hold:
            opening = asyncio.ensure_future(node.partitions.open(*ORDERS, write=True))
            await asyncio.wait_for(hold.reached.wait(), PATIENCE)
            looker = node.partitions.find(*ORDERS)
            assert looker.log.log_end_offset == 0
        assert await opening is looker, "whoever waits at it is woken by the first append"
        assert isinstance(looker.log, PartitionLog)


async def test_a_log_that_cannot_be_opened_fails_alone_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path) as node:
        await create(node, partitions=2)
        really = PartitionLog.open

        def broken(directory: Path, *args: Any, **settings: Any) -> Log:
            if directory.name == "orders-0":
                raise RuntimeError("a fault of ours")
            return really(directory, *args, **settings)

        with monkeypatch.context() as patched:
            patched.setattr(PartitionLog, "open", broken)
            first, second = await asyncio.gather(
                *(write(node, b"v", TopicPartition("orders", index)) for index in range(2)),
                return_exceptions=True,
            )
            assert isinstance(first, StorageFailure)
            assert second == 0
        assert await write(node, b"v") == 0


@pytest.mark.parametrize("done", [False, True])
async def test_a_topic_that_is_deleted_while_its_log_is_opened(tmp_path: Path, done: bool) -> None:
    """Before or after the worker has made the directory: it goes, and the successor is empty."""
    async with started(tmp_path) as node:
        await create(node)
        with workers_of(node).held("open_logs", done=done) as hold:
            old = asyncio.ensure_future(node.partitions.open(*ORDERS, write=True))
            await asyncio.wait_for(hold.reached.wait(), PATIENCE)
            await delete(node)
            await create(node)
            new = asyncio.ensure_future(write(node, b"new"))
            await asyncio.sleep(0)
            assert not new.done()
        assert await asyncio.wait_for(new, PATIENCE) == 0
        # Whoever opened the old topic's log is answered for the topic that has the name now.
        assert (await old).topic_id == node.partitions.find(*ORDERS).topic_id
        assert await values(node) == [b"new"]
    async with started(tmp_path) as node:
        assert await values(node) == [b"new"]


async def test_times_are_looked_up_by_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are scanned for them: ListOffsets, and where a share group begins by duration."""
    threads = []

    def looked(_: Log, *timestamp: int) -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr(PartitionLog, "offset_for_timestamp", looked)
    monkeypatch.setattr(PartitionLog, "max_timestamp_offset", looked)
    async with started(tmp_path) as node:
        await create(node)
        await write(node, b"v")
        for timestamp in (NOW_MS, -3):
            asked = [ListOffsetsPartition(0, -1, timestamp)]
            answer: Any = list_offsets(
                RequestContext(CONTEXT.peer, 2, 8, None),
                ListOffsetsRequest(-1, 0, [ListOffsetsTopic("orders", asked)]),
                node.partitions,
                node.services.tiering,
                node.workers,
            )
            assert (await answer).topics[0].partitions[0].offset == -1
        hosted = node.partitions.find(*ORDERS)
        start = await resolve_start(
            "by_duration:PT1H", hosted, node.services.tiering, node.workers, node.clock
        )
        assert start == 1
    assert len(threads) == 3
    assert threading.current_thread() not in threads


async def test_a_log_that_cannot_be_opened_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(tmp_path) as node:
        await create(node)
        await write(node, b"v")
    (log,) = (tmp_path / "orders-0").glob("*.log")
    log.unlink()
    log.mkdir()
    async with started(tmp_path) as node:
        for _ in range(3):
            with pytest.raises(LogError):
                await node.partitions.open(*ORDERS, write=True)
    told = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert len(told) == 1, told
    assert told[0].startswith("orders-0 cannot be used: ")
    assert log.name in told[0]


# -- deleting -------------------------------------------------------------------------------------


async def test_a_new_topic_waits_until_the_old_one_has_left_its_path(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        await create(node)
        await write(node, b"old")
        gone = node.partitions.find(*ORDERS)
        with workers_of(node).held("retire") as hold:
            await delete(node)
            assert gone.gone
            with pytest.raises(ApiError):
                node.partitions.find(*ORDERS)
            await asyncio.wait_for(hold.reached.wait(), PATIENCE)
            await create(node)
            new = asyncio.ensure_future(write(node, b"new"))
            assert await values(node) == []
            await asyncio.sleep(0)
            assert not new.done()
        assert await asyncio.wait_for(new, PATIENCE) == 0
        assert await values(node) == [b"new"]


async def test_files_of_deleted_topics_go_after_their_own_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only with retention, which looks every five minutes, nor earlier with that of others."""
    monkeypatch.setattr("ottla.broker.running.jobs.PURGE_CHECK_SECONDS", 0.01)

    def going() -> list[str]:
        return sorted(path.name.partition(".")[0] for path in tmp_path.glob("*-delete"))

    async with started(tmp_path) as node:
        await create_topic(node.cluster, "later")  # after a minute
        await write(node, b"later", TopicPartition("later", 0))
        await delete_topic(node.cluster, lambda image: existing(image, "later"))
        await create(node, configs={"file.delete.delay.ms": "0"})
        await write(node, b"now")
        await delete(node)
        async with asyncio.timeout(PATIENCE):
            while (tmp_path / "orders-0").exists() or going() != ["later-0"]:  # noqa: ASYNC110 - files
                await asyncio.sleep(0.01)
        await node.partitions.purge()
        assert going() == ["later-0"]
    async with started(tmp_path), asyncio.timeout(PATIENCE):
        # What a stop left goes at the next start.
        while going():  # noqa: ASYNC110 - a worker's doing
            await asyncio.sleep(0.01)


async def test_a_directory_that_cannot_be_taken_away_is_not_the_new_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path) as node:
        await create(node)
        await write(node, b"old")
        really = node.data._directory.retire

        def broken(names: Any, *args: Any) -> dict[TopicPartition, Path | OSError]:
            return {name: OSError("busy") for name in names}

        with monkeypatch.context() as patched:
            patched.setattr(node.data._directory, "retire", broken)
            await delete(node)
            await create(node)
            with pytest.raises(StorageFailure, match="busy"):
                await write(node, b"refused")
        assert really is not broken
        assert await write(node, b"new") == 0
        assert await values(node) == [b"new"]


async def test_fault_1_a_compaction_that_ends_after_its_topic_was_made_anew(
    tmp_path: Path,
) -> None:
    """30 durable records were lost: the old topic's result was renamed over the new one's log."""
    settings = {"cleanup.policy": "compact"}
    async with started(tmp_path) as node:
        await create(node, configs=settings)
        for number in range(60):
            await write(node, b"old %d" % number)
        log = node.partitions.find(*ORDERS).log
        log.roll(NOW_MS)
        await asyncio.to_thread(log.flush)  # only what is synced is compacted
        with workers_of(node).held("_compaction", done=True) as hold:
            compaction = asyncio.ensure_future(node.services.cleaner().compact_dirtiest())
            await asyncio.wait_for(hold.reached.wait(), PATIENCE)
            await delete(node)
            await create(node, configs=settings)
            for number in range(30):
                await write(node, b"new %d" % number)
        await compaction
        expected = [b"new %d" % number for number in range(30)]
        assert await values(node) == expected
        assert node.data.checkpoints.offset(Checkpoint.CLEANER, ORDERS) == 0
    async with started(tmp_path) as node:
        assert await values(node) == expected


# -- checkpoints and restarts ---------------------------------------------------------------------


@asynccontextmanager
async def after_kill(path: Path, copy: Path, *sets: str) -> AsyncIterator[Node]:
    """A node on what a kill would leave of a running one's directory."""
    copy_as_killed(path, copy)
    async with started(copy, *sets) as node:
        yield node


async def test_a_crash_does_not_give_a_new_topic_the_old_ones_log_start(tmp_path: Path) -> None:
    async with started(tmp_path / "a") as node:
        await create(node)
        for _ in range(5):
            await write(node, b"old")
        old = node.partitions.find(*ORDERS)
        old.log.delete_records_before(5)
        await node.data.checkpoints.log_starts_durable([old])
        await delete(node)
        await create(node)
        for number in range(3):
            await write(node, b"new %d" % number)
        async with after_kill(tmp_path / "a", tmp_path / "b") as restarted:
            assert await values(restarted) == [b"new 0", b"new 1", b"new 2"]


async def test_after_a_kill_logs_are_repaired_when_used_and_the_rest_meanwhile(
    tmp_path: Path,
) -> None:
    names = [TopicPartition("orders", index) for index in range(100)]
    async with started(tmp_path / "a") as node:
        await create(node, partitions=100)
        await asyncio.gather(*(write(node, b"v", name) for name in names))
        await asyncio.to_thread(copy_as_killed, tmp_path / "a", tmp_path / "b")
    torn = tmp_path / "b" / "orders-7" / f"{0:020d}.log"
    torn.write_bytes(torn.read_bytes() + b"\0" * 10)
    async with started(tmp_path / "b") as node:
        with workers_of(node).held("recover"):
            assert not list(node.partitions), "ready before any log was opened"
            assert await values(node, names[7]) == [b"v"]
            assert len(list(node.partitions)) == 1
        assert node.partitions._recovery is not None
        await asyncio.wait_for(node.partitions._recovery, PATIENCE)
        assert node.data.untrusted() == [names[7]], "open, so not closed cleanly yet"
        assert len(list(node.partitions)) == 1
    assert (tmp_path / "b" / CLEAN_SHUTDOWN).exists()
    async with started(tmp_path / "b") as node:
        assert not node.data.untrusted()
        assert [await values(node, name) for name in names] == [[b"v"]] * 100


async def test_a_stop_before_all_is_repaired_is_not_marked_clean(tmp_path: Path) -> None:
    async with started(tmp_path / "a") as node:
        await create(node, partitions=2)
        for index in range(2):
            await write(node, b"v", TopicPartition("orders", index))
        await asyncio.to_thread(copy_as_killed, tmp_path / "a", tmp_path / "b")
    async with started(tmp_path / "b") as node:
        assert node.partitions._recovery is not None
        node.partitions._recovery.cancel()  # before its first step
        await values(node)
    assert not (tmp_path / "b" / CLEAN_SHUTDOWN).exists()
    async with started(tmp_path / "b") as node:
        assert await values(node, TopicPartition("orders", 1)) == [b"v"]


async def test_a_directory_of_an_older_topic_is_found_out_when_it_is_needed(
    tmp_path: Path,
) -> None:
    """As a crash between the deletion in the metadata and the one on disk leaves it."""
    async with started(tmp_path) as node:
        await create(node)
        await write(node, b"old")
        with workers_of(node).held("retire"):
            await delete(node)
            await create(node)
            copy_as_killed(tmp_path, tmp_path / "b")
    async with started(tmp_path / "b") as node:
        assert await values(node) == [], "looking sets it aside, and makes nothing"
        assert [name for name in directories(tmp_path / "b") if "-stray" not in name] == []
        assert await write(node, b"new") == 0
        assert await values(node) == [b"new"]


# -- large requests -------------------------------------------------------------------------------


def large_request(node: Node, count: int, size: int) -> Any:
    """`count` partitions with a batch of `size` bytes each, on its way."""
    data = [
        PartitionProduceData(index, memoryview(bytearray(record(b"x" * size))))
        for index in range(count)
    ]
    topics = [TopicProduceData("orders", partition_data=data)]
    return produce(
        RequestContext(CONTEXT.peer, 0, 9, None),
        ProduceRequest(None, -1, 30_000, topics),
        node.cluster,
        node.partitions,
        node.durability,
        node.workers,
        node.clock,
        node.services.transactions,
        node.settings,
    )


async def test_a_large_request_is_appended_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: 100 MiB of batches were one turn of the loop of 200 ms."""
    count, size = 12, 1_000_000
    appended = 0
    append = PartitionLog.append

    def counted(log: Log, batch: Any, **options: Any) -> Any:
        nonlocal appended
        appended += batch.size
        return append(log, batch, **options)

    async with started(tmp_path) as node:
        await create(node, partitions=count)
        for index in range(count):
            await write(node, b"first", TopicPartition("orders", index))
        monkeypatch.setattr(PartitionLog, "append", counted)
        asked = asyncio.ensure_future(large_request(node, count, size))
        seen = [0]
        while not asked.done():
            await asyncio.sleep(0)
            seen.append(appended)
        assert appended > count * size
        assert max(after - before for before, after in pairwise(seen)) <= TURN_BYTES
        (topic,) = (await durable(asked.result())).responses
        answers = [
            (row.index_, row.error_code, row.base_offset) for row in topic.partition_responses
        ]
        assert answers == [(index, ErrorCode.NONE, 1) for index in range(count)]


async def test_a_client_that_leaves_in_a_large_request_hides_nothing(tmp_path: Path) -> None:
    """What was appended by then becomes durable and is shown to readers."""
    count, size = 12, 1_000_000
    async with started(tmp_path) as node:
        await create(node, partitions=count)
        for index in range(count):
            await write(node, b"first", TopicPartition("orders", index))
        asked = asyncio.ensure_future(large_request(node, count, size))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked])
        assert asked.cancelled()
        await node.durability.drain()
        logs = [node.partitions.find("orders", index).log for index in range(count)]
        ends = [log.log_end_offset for log in logs]
        assert sorted(set(ends)) == [1, 2], "some of it was appended"
        assert [log.high_watermark for log in logs] == ends
