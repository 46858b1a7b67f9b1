"""A fetch below the local log: whole batches from remote segments, checked, and their aborts.

The catalogue gives the segment, its offset index the position, the store a little more than was
asked for. Batches before the offset are skipped, the rest is cut at the last whole batch within
`max_bytes` and below `upper_bound`. A first batch that is larger than that is given whole if
`at_least_one` says so. Every batch's CRC is checked; bytes that fail are asked for once more. An
index that leads past the offset is refused: what it hides would be lost to the consumer.
A reader that goes on where an earlier read ended is served from `read_ahead`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.epochs import LeaderEpochs
from ottla.tier.errors import CorruptRemoteData, OffsetNotRemote
from ottla.tier.reading.batches import Records, checked
from ottla.wire.batch import LENGTH_OVERHEAD, RecordBatch, batch_size_at, read_batch
from ottla.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.index import AbortedTransaction
    from ottla.tier.catalogue.rlmm import RemoteLogMetadataManager
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata, TopicIdPartition
    from ottla.tier.reading.batches import Wanted
    from ottla.tier.reading.index_cache import RemoteIndexCache
    from ottla.tier.reading.read_ahead import ReadAhead
    from ottla.tier.store.storage_manager import RemoteStorageManager

INDEX_INTERVAL: Final = (
    4096  # index.interval.bytes of nearly every topic; a wrong guess costs a read
)
MIN_WINDOW: Final = 4096  # there is always something to read: a batch's header at least
_BASE_OFFSET_SIZE: Final = 8  # a batch begins with it


class Cut(NamedTuple):
    """The bytes that answer a fetch; `needed` is the size of an incomplete first batch."""

    start: int
    end: int
    next_offset: int
    needed: int = 0


class RemoteRecords(NamedTuple):
    """Batches for a consumer. Aborts after the remote part of the log are the caller's to add."""

    records: memoryview
    next_offset: int
    aborted: list[AbortedTransaction]
    aborted_complete: bool


def whole_batches(data: memoryview, offset: int, max_bytes: int, upper_bound: int) -> Cut:
    """The batches from the one with `offset` on; nothing is checked but sizes. Pure."""
    position = 0
    start: int | None = None
    following = offset
    while len(data) - position >= LENGTH_OVERHEAD:
        size = batch_size_at(data, position)
        if position + size > len(data):
            needed = size if start is None else 0
            return Cut(position if start is None else start, position, following, needed)
        batch = RecordBatch(data[position : position + size])
        if batch.last_offset >= offset:
            if batch.base_offset >= upper_bound:
                break
            start = position if start is None else start
            if position + size - start > max_bytes:
                needed = size if position == start else 0
                return Cut(start, position, following, needed)
            following = batch.next_offset
        position += size
    begin = position if start is None else start
    return Cut(begin, position, following)


async def read_remote(
    catalogue: RemoteLogMetadataManager,
    storage: RemoteStorageManager,
    indexes: RemoteIndexCache,
    tip: TopicIdPartition,
    lineage: Sequence[tuple[int, int]],
    wanted: Wanted,
    *,
    committed: bool,
    index_interval: int = INDEX_INTERVAL,
    ahead: ReadAhead | None = None,
    ahead_until: int = 0,
) -> RemoteRecords:
    """The wanted batches; `OffsetNotRemote` if no segment has the offset, or another of our errors.

    An empty answer means that the first batch is larger than `max_bytes`, or not below the bound.
    With `ahead`, a reader that goes on finds what was read ahead, in segments that begin before
    the offset `ahead_until`.
    """
    epochs = LeaderEpochs(list(lineage))

    def segment_with(offset: int) -> RemoteLogSegmentMetadata | None:
        return catalogue.remote_log_segment_metadata(tip, epochs.epoch_at(offset), offset)

    def following(one: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata | None:
        return segment_with(one.end_offset + 1) if one.end_offset + 1 < ahead_until else None

    segment = segment_with(wanted.offset)
    if segment is None:
        raise OffsetNotRemote(f"no remote segment of {tip} has offset {wanted.offset}")
    while True:
        index = (await indexes.get(segment)).offsets
        records = None
        if ahead is not None:
            records = await ahead.read(segment, index, wanted, following)
        if records is None:
            at = index.last_at_or_below(wanted.offset - segment.start_offset)
            position = index.positions[at] if at >= 0 else 0
            window = max(wanted.max_bytes + 2 * index_interval, MIN_WINDOW)
            records = await _read(_Place(storage, segment, position, window), wanted)
        if records is not None:
            break
        # The segment's last batches were not written to the end of its range; the next one goes on.
        wanted = wanted._replace(offset=segment.end_offset + 1)
        further = segment_with(wanted.offset)
        if further is None:
            return RemoteRecords(memoryview(b""), wanted.offset, [], aborted_complete=True)
        segment = further
    data, next_offset = records
    if ahead is not None:
        ahead.ended_at(tip, next_offset)
    if not committed or not data:
        return RemoteRecords(data, next_offset, [], aborted_complete=True)
    aborted, complete = await _aborted(catalogue, indexes, tip, epochs, wanted.offset, next_offset)
    return RemoteRecords(data, next_offset, aborted, complete)


class _Place(NamedTuple):
    """Where in a segment to read how much."""

    storage: RemoteStorageManager
    segment: RemoteLogSegmentMetadata
    position: int
    window: int
    is_indexed: bool = True
    """The index gave the position; else it is where batches end that were skipped."""


async def _read(place: _Place, wanted: Wanted) -> Records | None:
    """Checked batches and the offset after them, None if the segment has none from here on."""
    try:
        return await _read_once(place, wanted)
    except WireError:
        pass
    try:
        return await _read_once(place, wanted)
    except WireError as error:
        raise CorruptRemoteData(f"{place.storage.key(place.segment)}: {error}") from error


async def _read_once(place: _Place, wanted: Wanted) -> Records | None:
    storage, segment, position, window, is_indexed = place
    offset = wanted.offset
    if position == segment.segment_size:
        return None
    data = await storage.fetch_log_segment(segment, position, position + window - 1)
    base_offset = int.from_bytes(data[:_BASE_OFFSET_SIZE], signed=True)
    if position and is_indexed and base_offset > offset:
        raise CorruptRemoteData(f"the offset index of {segment.id} leads past {offset}")
    cut = whole_batches(data, offset, wanted.max_bytes, wanted.upper_bound)
    if cut.needed:
        return await _read_large(place, cut, wanted)
    if cut.start < cut.end:
        checked(data[: cut.end], segment)
        return Records(data[cut.start : cut.end], cut.next_offset)
    if len(data) - cut.end >= LENGTH_OVERHEAD:
        return Records(memoryview(b""), offset)  # there is a batch, not below the bound
    if not cut.end:
        raise CorruptRemoteData(f"{storage.key(segment)} ends inside a batch")
    # Nothing but what is skipped, and perhaps the first bytes of a batch.
    return await _read(_after(place, cut.end), wanted)


async def _read_large(place: _Place, cut: Cut, wanted: Wanted) -> Records | None:
    """Read a first batch that is larger than the window or the request."""
    nothing = Records(memoryview(b""), wanted.offset)
    if not wanted.at_least_one:
        return nothing
    begin = place.position + cut.start
    data = await place.storage.fetch_log_segment(place.segment, begin, begin + cut.needed - 1)
    batch = read_batch(data)
    if batch.last_offset < wanted.offset:
        # Skipped only now: it was larger than the window.
        return await _read(_after(place, cut.start + cut.needed), wanted)
    if batch.base_offset >= wanted.upper_bound:
        return nothing
    checked(data, place.segment)
    return Records(data, batch.next_offset)


def _after(place: _Place, size: int) -> _Place:
    return place._replace(position=place.position + size, is_indexed=False)


async def _aborted(
    catalogue: RemoteLogMetadataManager,
    indexes: RemoteIndexCache,
    tip: TopicIdPartition,
    epochs: LeaderEpochs,
    first: int,
    end: int,
) -> tuple[list[AbortedTransaction], bool]:
    """Aborts that touch the offsets; whether none can be recorded after the remote segments."""
    found: list[AbortedTransaction] = []
    offset = first
    for epoch, start in epochs.entries:
        if epoch < epochs.epoch_at(first):
            continue
        offset = max(offset, start)
        while (segment := catalogue.next_segment_with_txn_index(tip, epoch, offset)) is not None:
            for one in (await indexes.get(segment)).aborted:
                if one.first_offset < end and one.last_offset >= first:
                    found.append(one)
                if one.last_stable_offset >= end:
                    return found, True
            offset = segment.end_offset + 1
    return found, False
