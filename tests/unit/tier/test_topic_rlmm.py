"""The topic-backed catalogue: assignment, the read gate, mutations, snapshots."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.objects.errors import RetriableRemoteError
from ottla.tier.catalogue import snapshot
from ottla.tier.catalogue.codec import encode_event
from ottla.tier.catalogue.event_log import InProcessMetadataEventLog
from ottla.tier.catalogue.placement import metadata_partition_for
from ottla.tier.catalogue.segments import (
    MetadataEvent,
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from ottla.tier.catalogue.topic_rlmm import TopicBasedRemoteLogMetadataManager as Manager
from ottla.tier.errors import InvalidAdd, InvalidUpdate, NotReady, SnapshotError, StaleSegmentState
from tests.support.tiering import (
    DELETED,
    DELETING,
    FINISHED,
    STARTED,
    TIP,
    TOPIC_ID,
    becomes,
    segment,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

COUNT = 3
HOME = metadata_partition_for(TOPIC_ID, 3, COUNT)
CLUSTER = "cluster-1"


class FlakyLog(InProcessMetadataEventLog):
    """A log whose ends cannot be learnt for a while."""

    def __init__(self, partition_count: int = COUNT) -> None:
        super().__init__(partition_count, UUID(int=77))
        self.ends_known = True

    async def high_water_marks(self) -> list[int]:
        if not self.ends_known:
            raise RetriableRemoteError("no leader")
        return await super().high_water_marks()


@asynccontextmanager
async def running(
    log: InProcessMetadataEventLog, path: Path, *, consume_wait: float = 10.0
) -> AsyncIterator[Manager]:
    manager = await Manager.start(log, path, CLUSTER, consume_wait=consume_wait)
    try:
        yield manager
    finally:
        await manager.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # the pump has no event for tests
            await asyncio.sleep(0.001)


async def ready(manager: Manager, partitions: list[int] | None = None) -> None:
    await manager.reconcile_assignment(range(COUNT) if partitions is None else partitions)
    await eventually(lambda: all(lag == 0 for lag in manager.lags().values()))


async def write(log: InProcessMetadataEventLog, *events: MetadataEvent) -> None:
    for event in events:
        await log.publish(HOME, encode_event(event))


def listing(manager: Manager, tip: TopicIdPartition = TIP) -> set[RemoteLogSegmentMetadata]:
    return set(manager.list_remote_log_segments(tip))


async def test_case_06_refused_before_anything_is_written(tmp_path: Path) -> None:
    log = FlakyLog()
    async with running(log, tmp_path) as manager:
        await ready(manager)
        with pytest.raises(InvalidAdd):
            await manager.add_remote_log_segment_metadata(segment(0, 9, state=FINISHED))
        with pytest.raises(InvalidUpdate):
            await manager.update_remote_log_segment_metadata(becomes(segment(0, 9), STARTED))
    assert log.records == [[], [], []]


async def test_case_13_two_managers_on_one_log(tmp_path: Path) -> None:
    log = FlakyLog()
    async with running(log, tmp_path / "a") as one, running(log, tmp_path / "b") as two:
        await ready(one)
        await ready(two)
        await one.add_remote_log_segment_metadata(segment(0, 9))
        await eventually(lambda: len(listing(two)) == 1)
        await two.update_remote_log_segment_metadata(becomes(segment(0, 9), FINISHED))
        await eventually(lambda: one.remote_log_segment_metadata(TIP, 0, 5) is not None)
        assert listing(one) == listing(two)


async def test_case_20_reconcile_moves_the_assignment(tmp_path: Path) -> None:
    log = FlakyLog()
    for number in range(COUNT):
        for _ in range(4):
            await log.publish(number, b"")
    async with running(log, tmp_path) as first:
        await ready(first, [2])
    async with running(log, tmp_path) as manager:
        await ready(manager, [0, 1])
        await manager.reconcile_assignment([1, 2])
        assert manager.lags() == {1: 0, 2: 0}
        assert manager.metrics.events == 8
        await ready(manager, [0])
        assert manager.metrics.events == 12


async def test_case_20_a_snapshot_position_is_resumed(tmp_path: Path) -> None:
    log = FlakyLog()
    await write(log, segment(0, 9))
    async with running(log, tmp_path) as manager:
        await ready(manager)
    await write(log, becomes(segment(0, 9), FINISHED))
    async with running(log, tmp_path) as manager:
        await ready(manager)
        assert manager.metrics.events == 1
        assert manager.remote_log_segment_metadata(TIP, 0, 5) is not None


async def test_case_21_an_unknown_end_is_not_ready(tmp_path: Path) -> None:
    log = FlakyLog()
    await write(log, segment(0, 9))
    log.ends_known = False
    async with running(log, tmp_path) as manager:
        await manager.reconcile_assignment([HOME])
        await eventually(lambda: manager.metrics.events == 1)
        with pytest.raises(NotReady, match="end of metadata partition"):
            manager.list_remote_log_segments(TIP)
        log.ends_known = True
        await ready(manager)
        assert len(listing(manager)) == 1


async def test_case_22_unassigned_is_not_ready(tmp_path: Path) -> None:
    async with running(FlakyLog(), tmp_path) as manager:
        await ready(manager, [number for number in range(COUNT) if number != HOME])
        for call in (
            lambda: manager.list_remote_log_segments(TIP),
            lambda: manager.list_remote_log_segments(TIP, 0),
            lambda: manager.remote_log_segment_metadata(TIP, 0, 0),
            lambda: manager.highest_offset_for_epoch(TIP, 0),
            lambda: manager.next_segment_with_txn_index(TIP, 0, 0),
            lambda: manager.remote_log_size(TIP, 0),
        ):
            with pytest.raises(NotReady, match="not assigned"):
                call()
        assert not manager.is_ready(TIP)
        with pytest.raises(NotReady):
            await manager.add_remote_log_segment_metadata(segment(0, 9))


async def test_case_23_empty_and_undecodable_partitions_become_ready(tmp_path: Path) -> None:
    log = FlakyLog()
    async with running(log, tmp_path / "a") as manager:
        await manager.reconcile_assignment([HOME])
        assert manager.is_ready(TIP)
    await write(log, segment(0, 9))
    await log.publish(HOME, b"\x01\x09\x00")
    await log.publish(HOME, b"")
    async with running(log, tmp_path / "b") as manager:
        await ready(manager)
        assert len(listing(manager)) == 1
        assert manager.metrics.decode_errors == 2


async def test_case_24_a_mutation_is_visible_when_it_returns(tmp_path: Path) -> None:
    async with running(FlakyLog(), tmp_path) as manager:
        await ready(manager)
        await manager.add_remote_log_segment_metadata(segment(0, 9))
        assert len(listing(manager)) == 1
        await manager.update_remote_log_segment_metadata(becomes(segment(0, 9), FINISHED))
        assert manager.remote_log_segment_metadata(TIP, 0, 5) is not None


class StalledLog(FlakyLog):
    """Takes events, and does not give them out while stalled."""

    def __init__(self) -> None:
        super().__init__()
        self.stalled = False

    def wake(self) -> None:
        if not getattr(self, "stalled", False):
            super().wake()


async def test_case_24_a_stalled_pump_is_a_retriable_error(tmp_path: Path) -> None:
    log = StalledLog()
    async with running(log, tmp_path, consume_wait=0.01) as manager:
        await ready(manager)
        await asyncio.sleep(0.01)
        log.stalled = True
        with pytest.raises(RetriableRemoteError, match="did not come back"):
            await manager.add_remote_log_segment_metadata(segment(0, 9))
        log.stalled = False
        await manager.add_remote_log_segment_metadata(segment(0, 9))
        assert len(listing(manager)) == 1


class RacingLog(FlakyLog):
    """Lets another broker's event in just before one of ours."""

    rival: MetadataEvent | None = None

    async def publish(self, partition: int, payload: bytes) -> int:
        rival, self.rival = self.rival, None
        if rival is not None:
            await super().publish(partition, encode_event(rival))
        return await super().publish(partition, payload)


async def test_case_24_a_concurrent_winner(tmp_path: Path) -> None:
    log = RacingLog()
    async with running(log, tmp_path) as manager:
        await ready(manager)
        await manager.add_remote_log_segment_metadata(segment(0, 9))
        log.rival = becomes(segment(0, 9), DELETING)
        with pytest.raises(StaleSegmentState):
            await manager.update_remote_log_segment_metadata(becomes(segment(0, 9), FINISHED))
        assert manager.metrics.rejected_transitions == 1


def life() -> list[MetadataEvent]:
    """Segments in every state, an epoch that is all gone, a partition being deleted."""
    gone = segment(0, 9, number=2, epochs={1: 0})
    events: list[MetadataEvent] = [
        gone,
        becomes(gone, FINISHED, b"c"),
        becomes(gone, DELETING, b"c"),
        becomes(gone, DELETED),
    ]
    for number, states in enumerate(([], [FINISHED], [FINISHED, DELETING]), start=3):
        one = segment(number * 10, number * 10 + 9, number=number, epochs={2: number * 10})
        events += [one, *(becomes(one, state, b"custom") for state in states)]
    other = TopicIdPartition(TOPIC_ID, "clicks", 3)
    events.append(
        RemotePartitionDeleteMetadata(other, PartitionDeleteState.DELETE_PARTITION_MARKED, 1, 5)
    )
    return events


def shown(manager: Manager) -> object:
    cache = manager.catalogue_of(TIP).cache(TIP)
    return (
        cache.segments,
        cache.highest_offset(1),
        cache.highest_offset(2),
        cache.find(2, 45),
        manager.catalogue_of(TIP).delete_state(TIP),
    )


async def test_case_25_a_snapshot_keeps_everything(tmp_path: Path) -> None:
    log = FlakyLog()
    await write(log, *life())
    async with running(log, tmp_path) as manager:
        await ready(manager)
        before = shown(manager)
        assert manager.highest_offset_for_epoch(TIP, 1) == 9
    async with running(log, tmp_path) as manager:
        await ready(manager)
        assert manager.metrics.events == 0
        assert shown(manager) == before
        assert not await manager.write_snapshot()
        await write(log, becomes(segment(30, 39, number=3), FINISHED))
        await eventually(lambda: manager.metrics.events == 1)
        assert await manager.write_snapshot()
    async with running(log, tmp_path) as manager:
        await ready(manager)
        assert manager.remote_log_segment_metadata(TIP, 2, 35) is not None


async def test_case_25_what_was_never_asked_for_is_kept_as_it_is(tmp_path: Path) -> None:
    log = FlakyLog()
    await write(log, *life())
    async with running(log, tmp_path) as manager:
        await ready(manager)
        before = shown(manager)
    async with running(log, tmp_path) as manager:
        await ready(manager)
        await log.publish((HOME + 1) % COUNT, b"")
        await eventually(lambda: manager.metrics.events == 1)
    async with running(log, tmp_path) as manager:
        await ready(manager)
        assert (manager.metrics.events, shown(manager)) == (0, before)


async def _snapshot(path: Path, log: FlakyLog) -> bytes:
    async with running(log, path) as manager:
        await ready(manager)
    return (path / snapshot.FILE_NAME).read_bytes()


async def test_case_26_damaged_snapshots_are_refused(tmp_path: Path) -> None:
    log = FlakyLog()
    await write(log, *life())
    data = await _snapshot(tmp_path, log)
    identity = snapshot.Identity(CLUSTER, log.topic_id, COUNT)
    snapshot.decode(data, identity)
    damaged = [data[:length] for length in range(len(data))]
    damaged += [
        data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(len(data))
    ]
    damaged.append(data + b"\x00")
    for one in damaged:
        with pytest.raises(SnapshotError):
            snapshot.decode(one, identity)
    for other in (
        identity._replace(cluster_id="cluster-2"),
        identity._replace(topic_id=UUID(int=78)),
        identity._replace(partition_count=4),
    ):
        with pytest.raises(SnapshotError):
            snapshot.decode(data, other)


@pytest.mark.parametrize("damage", ["truncate", "flip", "longer log gone"])
async def test_case_26_a_damaged_snapshot_means_full_replay(tmp_path: Path, damage: str) -> None:
    log = FlakyLog()
    await write(log, *life())
    data = await _snapshot(tmp_path, log)
    path = tmp_path / snapshot.FILE_NAME
    if damage == "truncate":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        del log.records[HOME][4:]
    async with running(log, tmp_path) as manager:
        await ready(manager)
        assert manager.metrics.events == len(log.records[HOME])
    async with running(log, tmp_path / "fresh") as fresh, running(log, tmp_path) as manager:
        await ready(fresh)
        await ready(manager)
        assert shown(manager) == shown(fresh)


async def test_case_27_killed_before_the_snapshot(tmp_path: Path) -> None:
    log = FlakyLog()
    events = life()
    await write(log, *events[:5])
    await _snapshot(tmp_path, log)
    await write(log, *events[5:])
    killed = await Manager.start(log, tmp_path, CLUSTER)
    await ready(killed)
    before = shown(killed)
    path = tmp_path / snapshot.FILE_NAME
    old = path.read_bytes()
    await killed.close()
    path.write_bytes(old)
    async with running(log, tmp_path) as manager:
        await ready(manager)
        assert manager.metrics.events == len(events) - 5
        assert shown(manager) == before


async def test_a_log_that_ends_fails_closed(tmp_path: Path) -> None:
    log = FlakyLog()
    async with running(log, tmp_path) as manager:
        await ready(manager)
        await log.close()
        await eventually(lambda: not manager.is_ready(TIP))
        with pytest.raises(NotReady, match="not read any more"):
            manager.list_remote_log_segments(TIP)


async def test_hosted_partitions_name_what_to_follow(tmp_path: Path) -> None:
    async with running(FlakyLog(), tmp_path) as manager:
        manager.on_partition_leadership_changes([TIP], [TIP._replace(partition=0)])
        assert HOME in manager.wanted_partitions()
        manager.on_stop_partitions([TIP, TIP._replace(partition=0)])
        assert manager.wanted_partitions(also=[1]) == [1]
