"""The first record of a remote segment at or after a time.

The time index names an offset before which every batch is older; from there the batches are read a
piece at a time until one reaches the time. Used by ListOffsets and by planners alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.index import OffsetIndex, TimeIndex
from ottla.tier.store.layout import Section
from ottla.wire.batch import LENGTH_OVERHEAD, batch_size_at, iter_batches, read_batch
from ottla.wire.errors import TruncatedBatch
from ottla.wire.records import iter_records

if TYPE_CHECKING:
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata
    from ottla.tier.store.storage_manager import RemoteStorageManager
    from ottla.wire.batch import RecordBatch

_PIECE: Final = 64 * 1024


class FoundTimestamp(NamedTuple):
    """A record by its place and time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def first_at_or_after(
    storage: RemoteStorageManager,
    metadata: RemoteLogSegmentMetadata,
    timestamp_ms: int,
    *,
    from_offset: int = 0,
) -> FoundTimestamp | None:
    """The segment's first record with at least this time and offset."""
    sections = await storage.fetch_indexes(metadata, (Section.OFFSET, Section.TIMESTAMP))
    times = TimeIndex.decode(bytes(sections.get(Section.TIMESTAMP, b"")))
    offsets = OffsetIndex.decode(bytes(sections.get(Section.OFFSET, b"")), metadata.segment_size)
    # The entry's own batch brought an older time, or the very one; later ones are what we look for.
    at = offsets.last_at_or_below(times.floor_offset(timestamp_ms - 1))
    position = offsets.positions[at] if at >= 0 else 0
    while position < metadata.segment_size:
        data = await _whole_batches(storage, metadata, position)
        for batch in iter_batches(data):
            position += batch.size
            if batch.max_timestamp >= timestamp_ms and batch.last_offset >= from_offset:
                found = _first_record(batch, timestamp_ms, from_offset)
                if found is not None:
                    return found
    return None


async def _whole_batches(
    storage: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, position: int
) -> memoryview:
    """At least one batch from a batch's start on, and no part of another."""
    data = await storage.fetch_log_segment(metadata, position, position + _PIECE - 1)
    end = 0
    while len(data) - end >= LENGTH_OVERHEAD:
        size = batch_size_at(data, end)
        if end + size > len(data):
            break
        end += size
    if end:
        return data[:end]
    if len(data) < LENGTH_OVERHEAD:
        raise TruncatedBatch(f"{LENGTH_OVERHEAD} bytes", len(data), storage.key(metadata))
    size = batch_size_at(data, 0)
    whole = await storage.fetch_log_segment(metadata, position, position + size - 1)
    read_batch(whole)
    return whole


def _first_record(batch: RecordBatch, timestamp_ms: int, from_offset: int) -> FoundTimestamp | None:
    batch.verify_crc()
    for record in iter_records(batch):
        if record.timestamp >= timestamp_ms and record.offset >= from_offset:
            return FoundTimestamp(record.offset, record.timestamp, batch.partition_leader_epoch)
    return None
