"""Snapshots: a restart goes on where the last run was

The manager keeps a local snapshot of its catalogue with the positions it was read to.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from ottla.tier.catalogue import (
    InProcessMetadataEventLog,
    PartitionDeleteState,
    RemotePartitionDeleteMetadata,
    TopicBasedRemoteLogMetadataManager,
)
from tests.clauses.metadata_manager.managers import COUNT, Managers, until
from tests.support.tiering import DELETED, DELETING, FINISHED, TIP, becomes, segment

if TYPE_CHECKING:
    from ottla.tier.catalogue import MetadataEventLog


async def test_closing_writes_a_snapshot(event_log: MetadataEventLog, managers: Managers) -> None:
    """The snapshot is one file in the manager's directory."""
    await _fill(await managers.start(event_log, directory="cache"))
    assert [path.name for path in (managers.path / "cache").iterdir()] == ["snapshot"]


async def test_a_restart_reads_only_what_is_new(
    event_log: MetadataEventLog, managers: Managers
) -> None:
    """A restart resumes from the committed position of each partition, not from offset 0."""
    await _fill(await managers.start(event_log, directory="cache"))
    later = await managers.start(event_log, directory="cache")
    assert later.metrics.events == 0
    assert len(later.list_remote_log_segments(TIP)) == 1
    await later.add_remote_log_segment_metadata(segment(10, 19, number=8))
    assert later.metrics.events == 1


async def test_a_snapshot_is_written_every_30_seconds_by_default(managers: Managers) -> None:
    """`start` takes the time between snapshots; 30 s unless it is given."""
    starting = signature(TopicBasedRemoteLogMetadataManager.start)
    assert starting.parameters["snapshot_interval"].default == 30
    manager = await managers.start(
        InProcessMetadataEventLog(COUNT), directory="cache", snapshot_interval=0.01
    )
    await manager.add_remote_log_segment_metadata(segment(0, 9))
    await until((managers.path / "cache" / "snapshot").exists)


async def test_an_unchanged_catalogue_is_not_written_again(managers: Managers) -> None:
    """A snapshot is written only if a position has advanced."""
    manager = await managers.start(InProcessMetadataEventLog(COUNT))
    await manager.add_remote_log_segment_metadata(segment(0, 9))
    assert await manager.write_snapshot()
    assert not await manager.write_snapshot()


async def test_a_snapshot_keeps_everything_that_is_known(managers: Managers) -> None:
    """States, custom metadata, deletions and highest offsets are in the snapshot."""
    log = InProcessMetadataEventLog(COUNT)
    first = await managers.start(log, directory="cache")
    gone = segment(0, 9, number=7)
    await first.add_remote_log_segment_metadata(gone)
    for state in (FINISHED, DELETING, DELETED):
        await first.update_remote_log_segment_metadata(becomes(gone, state))
    kept = segment(10, 19, number=8)
    await first.add_remote_log_segment_metadata(kept)
    await first.update_remote_log_segment_metadata(becomes(kept, FINISHED, b"custom"))
    marked = PartitionDeleteState.DELETE_PARTITION_MARKED
    await first.put_remote_partition_delete_metadata(
        RemotePartitionDeleteMetadata(TIP, marked, 7, 5)
    )
    before = first.list_remote_log_segments(TIP)
    await first.close()
    later = await managers.start(log, directory="cache")
    assert later.metrics.events == 0
    assert later.list_remote_log_segments(TIP) == before
    assert later.catalogue_of(TIP).delete_state(TIP) is marked
    assert later.highest_offset_for_epoch(TIP, 0) == 19


@pytest.mark.parametrize("damage", ["cut", "flip", "other version", "other cluster"])
async def test_a_snapshot_that_cannot_be_used_is_ignored(
    managers: Managers, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A torn, damaged or foreign snapshot is a `SnapshotError`: the history is replayed."""
    log = InProcessMetadataEventLog(COUNT)
    cluster = "another" if damage == "other cluster" else "cluster"
    await _fill(await managers.start(log, directory="cache", cluster=cluster))
    path = managers.path / "cache" / "snapshot"
    data = path.read_bytes()
    if damage == "cut":
        data = data[:-1]
    elif damage == "flip":
        data = bytes([data[0] ^ 1]) + data[1:]
    elif damage == "other version":
        data = data[:4] + b"\x00\x02" + data[6:-4]
        data += crc32c(data).to_bytes(4, "big")
    path.write_bytes(data)
    later = await managers.start(log, directory="cache")
    assert "is ignored: unusable catalogue snapshot" in caplog.text
    assert len(later.list_remote_log_segments(TIP)) == 1
    assert later.metrics.events == 2


async def test_a_snapshot_of_a_topic_that_was_made_anew_is_ignored(managers: Managers) -> None:
    """A snapshot belongs to one metadata topic, known by its id."""
    await _fill(await managers.start(InProcessMetadataEventLog(COUNT), directory="cache"))
    later = await managers.start(InProcessMetadataEventLog(COUNT), directory="cache")
    assert later.list_remote_log_segments(TIP) == []


async def test_a_log_that_ends_before_the_snapshot_is_replayed(managers: Managers) -> None:
    """A position beyond the end of its partition means that the topic lost records."""
    log = InProcessMetadataEventLog(COUNT)
    await _fill(await managers.start(log, directory="cache"))
    shorter = InProcessMetadataEventLog(COUNT, log.topic_id)
    later = await managers.start(shorter, directory="cache")
    assert later.list_remote_log_segments(TIP) == []


async def test_a_snapshot_does_not_skip_events(managers: Managers) -> None:
    """Events after the last snapshot are read again; applying one twice is harmless."""
    log = InProcessMetadataEventLog(COUNT)
    first = await managers.start(log, directory="cache")
    await first.add_remote_log_segment_metadata(segment(0, 9))
    await first.write_snapshot()
    kept = (managers.path / "cache" / "snapshot").read_bytes()
    await first.update_remote_log_segment_metadata(becomes(segment(0, 9), FINISHED))
    await first.close()
    # As if the process had been killed before the last snapshot.
    (managers.path / "cache" / "snapshot").write_bytes(kept)
    later = await managers.start(log, directory="cache")
    assert later.remote_log_segment_metadata(TIP, 0, 5) is not None
    assert later.metrics.events == 1


async def _fill(manager: TopicBasedRemoteLogMetadataManager) -> None:
    """One finished segment, two events; then the manager ends."""
    await manager.add_remote_log_segment_metadata(segment(0, 9, number=7))
    await manager.update_remote_log_segment_metadata(becomes(segment(0, 9, number=7), FINISHED))
    await manager.close()
