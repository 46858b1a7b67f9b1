"""The manager: events in, a catalogue out

`TopicBasedRemoteLogMetadataManager` over either event log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from ottla.objects.errors import RemoteNotFound, RetriableRemoteError
from ottla.tier.catalogue import (
    InMemoryRlmm,
    InProcessMetadataEventLog,
    InvalidAdd,
    InvalidUpdate,
    NotReady,
    NotReadyRlmm,
    PartitionDeleteState,
    RemotePartitionDeleteMetadata,
    StaleSegmentState,
    SwappableRlmm,
    TopicIdPartition,
)
from tests.clauses.metadata_manager.managers import COUNT, HOME, Managers, until
from tests.support.tiering import DELETED, DELETING, FINISHED, STARTED, TIP, becomes, segment

if TYPE_CHECKING:
    from ottla.tier.catalogue import (
        MetadataEventLog,
        RemoteLogMetadataManager,
        RemoteLogSegmentMetadata,
    )

OTHERS: Final = [number for number in range(COUNT) if number != HOME]


async def test_a_segment_is_added_and_finished(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """Life-cycle events are appended to the log, and the catalogue shows them on return."""
    manager = await managers.start(event_log)
    one = segment(0, 99)
    await manager.add_remote_log_segment_metadata(one)
    assert manager.list_remote_log_segments(TIP) == [one]
    assert manager.remote_log_segment_metadata(TIP, 0, 50) is None
    await manager.update_remote_log_segment_metadata(becomes(one, FINISHED, b"custom"))
    found = manager.remote_log_segment_metadata(TIP, 0, 50)
    assert found is not None
    assert (found.state, found.custom_metadata) == (FINISHED, b"custom")
    assert (await event_log.high_water_marks())[HOME] == 2


async def test_every_broker_sees_every_event(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """Managers on one log, as many brokers, observe each other's writes."""
    one, two = [await managers.start(event_log) for _ in range(2)]
    added = segment(0, 99)
    await one.add_remote_log_segment_metadata(added)
    await until(lambda: two.list_remote_log_segments(TIP) == [added])
    await two.update_remote_log_segment_metadata(becomes(added, FINISHED))
    await until(lambda: one.remote_log_segment_metadata(TIP, 0, 99) is not None)


async def test_a_restart_replays_the_history(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """A broker that starts reads the log from offset 0 and applies the full history."""
    one = await managers.start(event_log)
    await _finished(one, segment(0, 99, number=7))
    await one.add_remote_log_segment_metadata(segment(100, 199, number=8))
    late = await managers.start(event_log)
    assert late.list_remote_log_segments(TIP) == one.list_remote_log_segments(TIP)
    assert late.metrics.events == 3


async def test_nothing_is_read_before_an_assignment(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """`start` returns at once; the broker then says which metadata partitions matter."""
    await _finished(await managers.start(event_log), segment(0, 99))
    manager = await managers.start(event_log, assign=None)
    assert manager.lags() == {}
    assert not manager.is_ready(TIP)
    await manager.reconcile_assignment([HOME])
    await until(lambda: manager.is_ready(TIP))
    assert manager.remote_log_segment_metadata(TIP, 0, 0) is not None


async def test_an_assignment_is_reconciled(event_log: MetadataEventLog, managers: Managers) -> None:
    """`reconcile_assignment` takes up what is new and gives up what is not wanted any more."""
    manager = await managers.start(event_log, assign=[HOME])
    assert set(manager.lags()) == {HOME}
    await manager.reconcile_assignment(OTHERS)
    assert set(manager.lags()) == set(OTHERS)
    assert not manager.is_ready(TIP)
    await manager.reconcile_assignment(range(COUNT))
    await until(lambda: manager.is_ready(TIP))


async def test_the_assignment_follows_what_the_broker_hosts(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """The wanted metadata partitions are those of the partitions that the broker leads."""
    manager = await managers.start(event_log, assign=None)
    assert manager.wanted_partitions() == []
    manager.on_partition_leadership_changes([TIP], [])
    assert manager.wanted_partitions() == [HOME]
    manager.on_stop_partitions([TIP])
    assert manager.wanted_partitions() == []


async def test_what_is_not_assigned_is_not_ready(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """Reads of a metadata partition that is not assigned find nothing.

    Differs: they raise `NotReady`, which passes; "nothing" would send consumers to another offset.
    """
    manager = await managers.start(event_log, assign=OTHERS)
    for ask in (
        lambda: manager.remote_log_segment_metadata(TIP, 0, 0),
        lambda: manager.list_remote_log_segments(TIP),
        lambda: manager.highest_offset_for_epoch(TIP, 0),
    ):
        with pytest.raises(NotReady, match="try again"):
            ask()
    with pytest.raises(NotReady):
        await manager.add_remote_log_segment_metadata(segment(0, 9))
    assert (await event_log.high_water_marks())[HOME] == 0


async def test_an_empty_metadata_partition_is_ready_at_once(managers: Managers) -> None:
    """A partition without events has nothing to catch up with."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT), assign=None)
    await manager.reconcile_assignment([HOME])
    assert manager.is_ready(TIP)
    assert manager.list_remote_log_segments(TIP) == []


async def test_what_is_no_event_is_passed_over(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """A record that cannot be decoded costs that record and no more."""
    await event_log.publish(HOME, b"no event")
    manager = await managers.start(event_log)
    await _finished(manager, segment(0, 9))
    assert manager.remote_log_segment_metadata(TIP, 0, 9) is not None
    assert manager.metrics.decode_errors == 1


async def test_a_segment_is_added_as_started(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """An addition starts a copy; another state is refused before anything is written."""
    manager = await managers.start(event_log)
    with pytest.raises(InvalidAdd, match="update it instead"):
        await manager.add_remote_log_segment_metadata(segment(0, 9, state=FINISHED))
    assert await event_log.high_water_marks() == [0] * COUNT


async def test_an_update_is_never_to_started(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """An update leads to a later state; "started" is refused before anything is written."""
    manager = await managers.start(event_log)
    with pytest.raises(InvalidUpdate, match="add it instead"):
        await manager.update_remote_log_segment_metadata(becomes(segment(0, 9), STARTED))
    assert await event_log.high_water_marks() == [0] * COUNT


async def test_an_update_of_an_unknown_segment_is_refused(managers: Managers) -> None:
    """A segment that nobody added has no later states."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    with pytest.raises(RemoteNotFound):
        await manager.update_remote_log_segment_metadata(becomes(segment(0, 9), FINISHED))


async def test_states_follow_each_other(managers: Managers) -> None:
    """Started, finished, deletion started, deletion finished: none goes back."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    one = segment(0, 9)
    await _finished(manager, one)
    await manager.update_remote_log_segment_metadata(becomes(one, DELETING))
    with pytest.raises(StaleSegmentState):
        await manager.update_remote_log_segment_metadata(becomes(one, FINISHED))
    await manager.update_remote_log_segment_metadata(becomes(one, DELETED))
    assert manager.list_remote_log_segments(TIP) == []


async def test_a_repeated_event_is_harmless(managers: Managers) -> None:
    """A retry of an event changes nothing."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    one = segment(0, 9)
    await _finished(manager, one)
    await manager.update_remote_log_segment_metadata(becomes(one, FINISHED))
    assert len(manager.list_remote_log_segments(TIP)) == 1


async def test_a_segment_is_readable_only_while_it_is_finished(managers: Managers) -> None:
    """What is being copied or deleted is listed, and not read."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    one = segment(0, 9)
    await manager.add_remote_log_segment_metadata(one)
    assert manager.remote_log_segment_metadata(TIP, 0, 5) is None
    await manager.update_remote_log_segment_metadata(becomes(one, FINISHED))
    assert manager.remote_log_segment_metadata(TIP, 0, 5) is not None
    await manager.update_remote_log_segment_metadata(becomes(one, DELETING))
    assert manager.remote_log_segment_metadata(TIP, 0, 5) is None
    assert len(manager.list_remote_log_segments(TIP)) == 1


async def test_a_lookup_is_by_leader_epoch(managers: Managers) -> None:
    """An offset is looked up in the epoch that wrote it."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    await _finished(manager, segment(1000, 1999, epochs={2: 1000, 4: 1500}))
    assert manager.remote_log_segment_metadata(TIP, 2, 1499) is not None
    assert manager.remote_log_segment_metadata(TIP, 2, 1500) is None
    assert manager.remote_log_segment_metadata(TIP, 4, 1500) is not None


async def test_the_longer_of_two_copies_serves(managers: Managers) -> None:
    """Two leaders may copy one range; what could be read stays readable, whoever is last."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    long, short = segment(0, 200, number=7), segment(0, 100, number=8)
    await _finished(manager, long)
    await _finished(manager, short)
    found = manager.remote_log_segment_metadata(TIP, 0, 150)
    assert found is not None
    assert found.id == long.id
    assert len(manager.list_remote_log_segments(TIP)) == 2


async def test_the_highest_offset_survives_deletion(managers: Managers) -> None:
    """The highest offset that was ever finished in an epoch does not fall."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    one = segment(0, 9)
    await _finished(manager, one)
    for state in (DELETING, DELETED):
        await manager.update_remote_log_segment_metadata(becomes(one, state))
    assert manager.highest_offset_for_epoch(TIP, 0) == 9
    assert manager.highest_offset_for_epoch(TIP, 1) is None


async def test_the_size_of_an_epoch(managers: Managers) -> None:
    """The manager knows how many bytes of an epoch are remote."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    await _finished(manager, segment(0, 9, number=7, size=100))
    await _finished(manager, segment(10, 19, number=8, size=50))
    assert manager.remote_log_size(TIP, 0) == 150


async def test_a_deleted_partition_is_forgotten(managers: Managers) -> None:
    """Partition deletions are marked, started and finished; then the partition is forgotten."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    await _finished(manager, segment(0, 9))
    for state in PartitionDeleteState:
        await manager.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(TIP, state, 7, 5)
        )
    assert manager.list_remote_log_segments(TIP) == []
    with pytest.raises(StaleSegmentState):
        await manager.add_remote_log_segment_metadata(segment(10, 19))


async def test_a_topic_of_the_same_name_is_another_topic(managers: Managers) -> None:
    """Partitions are known by their topic's id."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    await _finished(manager, segment(0, 9))
    namesake = TopicIdPartition(segment(0, 9).id.id, TIP.topic, TIP.partition)
    assert manager.list_remote_log_segments(namesake) == []


async def test_an_event_that_does_not_come_back_can_be_tried_again(managers: Managers) -> None:
    """A mutation waits until its event was read; if that takes too long it can be repeated."""

    class Deaf(InProcessMetadataEventLog):
        """Takes events, and wakes nobody."""

        def wake(self) -> None:
            return

    manager = await managers.start(Deaf(COUNT), consume_wait=0.05)
    await asyncio.sleep(0)  # the pump waits
    with pytest.raises(RetriableRemoteError, match="did not come back"):
        await manager.add_remote_log_segment_metadata(segment(0, 9))


async def test_the_placeholder_refuses_everything() -> None:
    """`NotReadyRlmm` fails closed: nothing is copied, and nothing is called missing."""
    closed = NotReadyRlmm()
    with pytest.raises(NotReady):
        closed.remote_log_segment_metadata(TIP, 0, 0)
    with pytest.raises(NotReady):
        closed.list_remote_log_segments(TIP)
    with pytest.raises(NotReady):
        await closed.add_remote_log_segment_metadata(segment(0, 9))
    assert not closed.is_ready(TIP)


async def test_managers_can_be_swapped_under_the_broker() -> None:
    """`SwappableRlmm` starts on the placeholder and goes on with the real manager."""
    facade = SwappableRlmm(NotReadyRlmm())
    assert not facade.is_ready(TIP)
    real = InMemoryRlmm()
    before = facade.swap(real)
    assert isinstance(before, NotReadyRlmm)
    await facade.add_remote_log_segment_metadata(segment(0, 9))
    assert real.list_remote_log_segments(TIP) == [segment(0, 9)]


async def test_there_is_a_manager_in_memory() -> None:
    """The manager in memory has the same catalogue, and ends with the process."""
    manager = InMemoryRlmm()
    await _finished(manager, segment(0, 9))
    assert manager.is_ready(TIP)
    assert manager.remote_log_segment_metadata(TIP, 0, 5) is not None


async def _finished(manager: RemoteLogMetadataManager, one: RemoteLogSegmentMetadata) -> None:
    await manager.add_remote_log_segment_metadata(one)
    await manager.update_remote_log_segment_metadata(becomes(one, FINISHED))
