"""Two things at once on one partition, over sockets, with a worker that stands where it hurts.

After each: acknowledged records of living topics are there byte for byte, now, after a kill and
after a clean stop; nothing of a deleted topic is served by the one that has its name; no file was
closed under a reader and none stays open; no exception was lost and no error logged.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from ottla.broker.coordinators.log import _read as read_of_a_replay
from ottla.log.checkpoints import Checkpoint, TopicPartition
from ottla.metadata.changes.topics import DeleteTopic
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.gates import gate_reads
from tests.support.held_broker import PATIENCE, TURNS, Place, copy_as_killed, held_broker
from tests.support.raw_client import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.held_broker import Client

GROUP: Final = "readers"
HOUR_MS: Final = 3_600_000
SEGMENTS: Final = {"segment.ms": "1000", "file.delete.delay.ms": "0"}
COORDINATOR_MOVES: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def until(holds: Callable[[], bool]) -> None:
    """Let the event loop turn until a request has come so far."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


async def closed_and_retired(place: Place) -> None:
    """Workers have done what a deletion needs: from here on only leases keep files open."""
    await until(lambda: not place.node.partitions._busy)


def spy(function: Callable[..., None], called: asyncio.Event) -> Callable[..., None]:
    """The function, which a worker calls."""
    loop = asyncio.get_running_loop()

    def spied(**arguments: bool) -> None:
        loop.call_soon_threadsafe(called.set)
        function(**arguments)

    return spied


async def write_segments(
    place: Place, name: str, count: int = 3, *, compacts: bool = False
) -> None:
    """A topic with so many records of one key, each in a segment of its own."""
    topic = await place.create(name, SEGMENTS, compacts=compacts)
    begin = now_ms() - count * 2000
    for number in range(count):
        assert await place.produce(topic, timestamp=begin + number * 2000) == [0]
    await synced(place, name)


async def synced(place: Place, name: str) -> None:
    """Compaction and retention take only what the journal is not needed for any more."""
    await asyncio.to_thread(place.node.partitions.find(name, 0).log.flush)


@pytest.mark.parametrize("again", [False, True])
async def test_delete_while_compacting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    again: bool,
) -> None:
    async with held_broker(tmp_path, monkeypatch, caplog) as place:
        await write_segments(place, "other")
        await write_segments(place, "orders", compacts=True)
        with gate_reads("orders-0", "_compaction") as gate:
            compaction = asyncio.create_task(place.node.services.cleaner().compact_dirtiest())
            await gate.wait()
            await place.delete("orders")
            if again:
                await write_segments(place, "orders", compacts=True)
            await closed_and_retired(place)
            await gate.let_through()
            await asyncio.wait_for(compaction, PATIENCE)
            assert not gate.closed_under_reader
        cleaned = place.node.data.checkpoints.offset(
            Checkpoint.CLEANER, TopicPartition("orders", 0)
        )
        assert cleaned == 0, "the new topic has not been compacted"
        await place.check()


async def test_delete_while_a_compaction_that_is_done_waits_for_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with held_broker(tmp_path, monkeypatch, caplog) as place:
        await write_segments(place, "orders", compacts=True)
        with place.workers.held("_compaction", done=True) as hold:
            compaction = asyncio.create_task(place.node.services.cleaner().compact_dirtiest())
            await asyncio.wait_for(hold.reached.wait(), PATIENCE)
            await place.delete("orders")
            await write_segments(place, "orders", compacts=True)
        await asyncio.wait_for(compaction, PATIENCE)


async def ask_coordinator(client: Client) -> None:
    """Until the group has a coordinator."""
    request = FindCoordinatorRequest("", 0, [GROUP])
    (found,) = (await client.ask("find_coordinator", 4, request)).coordinators
    assert found.error_code == 0, ErrorCode(found.error_code)


async def commit(place: Place, offset: int) -> int:
    client = await place.client()
    await ask_coordinator(client)
    partition = OffsetCommitRequestPartition(0, offset)
    request = OffsetCommitRequest(
        GROUP, topics=[OffsetCommitRequestTopic("orders", partitions=[partition])]
    )
    answer = await client.ask("offset_commit", 9, request)
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def committed(place: Place) -> tuple[int, int]:
    client = await place.client()
    await ask_coordinator(client)
    topics = [OffsetFetchRequestTopics("orders", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)])
    (group,) = (await client.ask("offset_fetch", 9, request)).groups
    if group.error_code:
        return group.error_code, -1
    (row,) = group.topics[0].partitions
    return row.error_code, row.committed_offset


async def settled(place: Place) -> int:
    """The committed offset, once the coordinator says one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            code, offset = await committed(place)
            if code == 0:
                return offset
            assert code in COORDINATOR_MOVES, ErrorCode(code)
            await asyncio.sleep(0.01)


async def test_delete_while_a_coordinator_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with held_broker(tmp_path, monkeypatch, caplog) as place:
        await write_segments(place, "orders")
        assert await commit(place, 2) == 0
        await place.stop()
        with gate_reads(f"{CONSUMER_OFFSETS_TOPIC}-0", read_of_a_replay.__name__) as gate:
            await place.start()
            await gate.wait()
            waiting = asyncio.create_task(committed(place))
            await asyncio.sleep(0)
            node = place.node  # clients may not delete it
            topic_id = node.image.topics_by_name[CONSUMER_OFFSETS_TOPIC].topic_id
            await node.metadata.change(DeleteTopic(topic_id))
            await closed_and_retired(place)
            await gate.let_through()
            code, offset = await asyncio.wait_for(waiting, PATIENCE)
            assert code in (0, *COORDINATOR_MOVES)
            assert offset == -1, "of a topic that was deleted before the answer"
            assert not gate.closed_under_reader
        assert await settled(place) == -1
        assert await commit(place, 1) == 0
        assert await settled(place) == 1
        await place.stop()
        await place.start()
        assert await settled(place) == 1


async def test_close_while_reading_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with held_broker(tmp_path, monkeypatch, caplog) as place:
        await write_segments(place, "other")
        await write_segments(place, "orders")
        with gate_reads("orders-0", "offset_for_timestamp") as gate:
            asked = asyncio.create_task(place.list_offsets("orders", now_ms() - HOUR_MS))
            await gate.wait()
            workers = place.workers
            end_workers = workers.close

            def close_last() -> None:
                gate.open()  # all logs are closed, and only that worker is left
                end_workers()

            monkeypatch.setattr(workers, "close", close_last)
            await asyncio.wait_for(place.stop(), PATIENCE)
            await gate.let_through()
            assert not gate.closed_under_reader
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asked
        await place.start()


async def test_delete_while_reading_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with held_broker(tmp_path, monkeypatch, caplog) as place:
        await write_segments(place, "orders")
        with gate_reads("orders-0", "offset_for_timestamp") as gate:
            asked = asyncio.create_task(place.list_offsets("orders", now_ms() - HOUR_MS))
            await gate.wait()
            await place.delete("orders")
            await write_segments(place, "orders")
            await gate.let_through()
            told = await asyncio.wait_for(asked, PATIENCE)
            assert (told.error_code, told.offset) in {
                (0, 0),
                (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
            }
            assert not gate.closed_under_reader


@pytest.mark.parametrize("done", [False, True])
async def test_checkpoint_while_truncating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, done: bool
) -> None:
    """DeleteRecords is answered when its start is durable, whoever writes the file meanwhile."""
    async with held_broker(tmp_path, monkeypatch, caplog) as place:
        await write_segments(place, "orders", 5)
        orders = place.topics["orders"]
        with place.workers.held("_replace", done=done) as hold:
            checkpoint = asyncio.create_task(place.node.jobs._checkpoint())
            await asyncio.wait_for(hold.reached.wait(), PATIENCE)
            deletions = [asyncio.create_task(place.delete_records(orders, at)) for at in (2, 3)]
            log = place.node.partitions.find("orders", 0).log
            await until(lambda: log.log_start_offset == 3)
            told = [task.done() for task in deletions]
            copy_as_killed(place.path, tmp_path / "meanwhile")
            assert told == [False, False], "that start is not on disk yet"
        assert await asyncio.gather(*deletions) == [0, 0]
        await checkpoint
        assert orders.start == 3
        meanwhile = Place(tmp_path / "meanwhile")
        meanwhile.topics["orders"] = place.topics["orders"]
        orders.start = 0  # a kill before the answer may bring them back
        await meanwhile.start()
        await meanwhile.check()
        await meanwhile.stop()
        orders.start = 3


@pytest.mark.parametrize("done", [False, True])
async def test_stop_while_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, done: bool
) -> None:
    async with held_broker(tmp_path, monkeypatch, caplog) as place:
        await write_segments(place, "orders")
        orders = place.topics["orders"]
        new = await place.create("new")
        await place.stop()
        await place.start()
        with place.workers.held("open_logs", done=done) as hold:
            writes = [asyncio.create_task(place.produce(one)) for one in (orders, new)]
            await asyncio.wait_for(hold.reached.wait(), PATIENCE)
            data, workers = place.node.data, place.workers
            given_back = asyncio.Event()
            monkeypatch.setattr(data, "close", spy(data.close, given_back))
            stop = asyncio.create_task(place.stop())
            for _ in range(TURNS):
                await workers.run(int)
            assert not given_back.is_set(), "the directory is in use while a log is opened"
        await asyncio.wait_for(stop, PATIENCE)
        ended = await asyncio.gather(*writes, return_exceptions=True)
        for one in ended:
            assert isinstance(one, (list, ConnectionError, asyncio.IncompleteReadError)), one
        await place.start()
        await place.check()
        assert await place.produce(orders, 2) == [0, 0]
        assert await place.produce(new, 2) == [0, 0]


@pytest.mark.parametrize("worker", ["close_logs", "retire"])
@pytest.mark.parametrize("done", [False, True])
async def test_create_again_while_the_old_directory_is_retired(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    worker: str,
    *,
    done: bool,
) -> None:
    async with held_broker(tmp_path, monkeypatch, caplog) as place:
        await write_segments(place, "orders", 5)
        assert await place.delete_records(place.topics["orders"], 4) == 0
        with place.workers.held(worker, done=done) as hold:
            await place.delete("orders")
            await asyncio.wait_for(hold.reached.wait(), PATIENCE)
            orders = await place.create("orders")
            await place.check()  # of what nobody has written yet
            write = asyncio.create_task(place.produce(orders, 3))
            await until(lambda: ("orders", 0) in place.node.partitions._opening)
            await place.turn()
            assert not write.done(), "the path is still the old topic's"
            copy_as_killed(place.path, tmp_path / "meanwhile")
        assert await asyncio.wait_for(write, PATIENCE) == [0, 0, 0]
        meanwhile = Place(tmp_path / "meanwhile")
        meanwhile.topics["orders"] = type(orders)("orders", sent=orders.sent)
        await meanwhile.start()
        await meanwhile.check()
        assert await meanwhile.produce(meanwhile.topics["orders"], 2) == [0, 0]
        await meanwhile.check()
        await meanwhile.stop()


async def test_retention_while_a_fetch_waits_at_the_log_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told at once that its place is gone, and what stays is served from the new start."""
    async with held_broker(tmp_path, monkeypatch, caplog) as place:
        old = await place.create("orders", SEGMENTS | {"retention.ms": str(HOUR_MS)})
        for hours in (4, 3, 2):
            assert await place.produce(old, timestamp=now_ms() - hours * HOUR_MS) == [0]
        assert await place.produce(old) == [0]
        await synced(place, "orders")
        waiting = asyncio.create_task(
            place.fetch("orders", 0, max_wait_ms=600_000, min_bytes=1 << 20)
        )
        await until(lambda: bool(place.node.partitions.find("orders", 0).watchers))
        await place.node.jobs._retain()
        told = await asyncio.wait_for(waiting, PATIENCE)
        assert told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await place.list_offsets("orders", -2)).offset == 3
        old.start = 3
