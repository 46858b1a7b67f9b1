"""A fetch below the local log: whole batches from remote segments, checked, and their aborts.

The catalogue gives the segment, its offset index the position, the store a little more than was
asked for. Batches before the offset are skipped, the rest is cut at the last whole batch within
`max_bytes` and below `upper_bound`. A first batch that is larger than that is given whole if
`at_least_one` says so. Every batch's CRC is checked; bytes that fail are asked for once more. An
index that leads past the offset is refused: what it hides would be lost to the consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.epochs import LeaderEpochs
from ottla.tier.errors import CorruptRemoteData, OffsetNotRemote
from ottla.wire.batch import LENGTH_OVERHEAD, RecordBatch, batch_size_at, read_batch
from ottla.wire.errors import BatchError, WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.index import AbortedTransaction
    from ottla.tier.index_cache import RemoteIndexCache
    from ottla.tier.rlmm import RemoteLogMetadataManager
    from ottla.tier.segments import RemoteLogSegmentMetadata, TopicIdPartition
    from ottla.tier.storage_manager import RemoteStorageManager

INDEX_INTERVAL: Final = (
    4096  # index.interval.bytes of nearly every topic; a wrong guess costs a read
)
_BASE_OFFSET_SIZE: Final = 8  # a batch begins with it


class Cut(NamedTuple):
    """What of some bytes answers a fetch. `needed` is the size of a first batch that is cut off."""

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
    offset: int,
    *,
    max_bytes: int,
    upper_bound: int,
    at_least_one: bool,
    committed: bool,
    index_interval: int = INDEX_INTERVAL,
) -> RemoteRecords:
    """Batches from `offset` on; `OffsetNotRemote` if no segment has it, or another of our errors.

    An empty answer means that the first batch is larger than `max_bytes`, or not below the bound.
    """
    epochs = LeaderEpochs(list(lineage))
    segment = catalogue.remote_log_segment_metadata(tip, epochs.epoch_at(offset), offset)
    if segment is None:
        raise OffsetNotRemote(f"no remote segment of {tip} has offset {offset}")
    while True:
        found = await indexes.get(segment)
        at = found.offsets.last_at_or_below(offset - segment.start_offset)
        position = found.offsets.positions[at] if at >= 0 else 0
        window = max_bytes + 2 * index_interval
        records = await _read(
            storage, segment, position, window, offset, max_bytes, upper_bound, at_least_one
        )
        if records is not None:
            break
        # The segment's last batches were not written to the end of its range; the next one goes on.
        offset = segment.end_offset + 1
        following = catalogue.remote_log_segment_metadata(tip, epochs.epoch_at(offset), offset)
        if following is None:
            return RemoteRecords(memoryview(b""), offset, [], aborted_complete=True)
        segment = following
    data, next_offset = records
    if not committed or not data:
        return RemoteRecords(data, next_offset, [], aborted_complete=True)
    aborted, complete = await _aborted(catalogue, indexes, tip, epochs, offset, next_offset)
    return RemoteRecords(data, next_offset, aborted, complete)


async def _read(
    storage: RemoteStorageManager,
    segment: RemoteLogSegmentMetadata,
    position: int,
    window: int,
    offset: int,
    max_bytes: int,
    upper_bound: int,
    at_least_one: bool,
) -> tuple[memoryview, int] | None:
    """Checked batches and the offset after them, None if the segment has none from here on."""
    for is_last in (False, True):
        try:
            if position == segment.segment_size:
                return None
            data = await storage.fetch_log_segment(segment, position, position + window - 1)
            base_offset = int.from_bytes(data[:_BASE_OFFSET_SIZE], signed=True)
            if position and base_offset > offset:
                raise CorruptRemoteData(f"the offset index of {segment.id} leads past {offset}")
            cut = whole_batches(data, offset, max_bytes, upper_bound)
            if cut.needed:
                if not at_least_one:
                    return memoryview(b""), offset
                begin = position + cut.start
                data = await storage.fetch_log_segment(segment, begin, begin + cut.needed - 1)
                batch = read_batch(data)
                if batch.last_offset < offset:
                    # Skipped only now: it was larger than the window.
                    return await _read(
                        storage, segment, begin + cut.needed, window, offset, max_bytes,
                        upper_bound, at_least_one,
                    )  # fmt: skip
                if batch.base_offset >= upper_bound:
                    return memoryview(b""), offset
                _verify(data, segment)
                return data, batch.next_offset
            if cut.start == cut.end:
                at_end = position + len(data) >= segment.segment_size and cut.end == len(data)
                return None if at_end else (memoryview(b""), offset)
            _verify(data[: cut.end], segment)
            return data[cut.start : cut.end], cut.next_offset
        except WireError as error:
            if is_last:
                raise CorruptRemoteData(f"{storage.key(segment)}: {error}") from error
    raise AssertionError("unreachable")


def _verify(data: memoryview, segment: RemoteLogSegmentMetadata) -> None:
    """CRCs, and what they do not cover: offsets ascend within the segment, epochs are its own."""
    position = 0
    reached = segment.start_offset
    ranges = segment.epoch_ranges()
    while position < len(data):
        batch = read_batch(data, position)
        batch.verify_crc()
        first, last = batch.base_offset, batch.last_offset
        if first < reached or last > segment.end_offset:
            expected = f"offsets from {reached} to {segment.end_offset}"
            raise BatchError(expected, f"{first} to {last}", f"segment {segment.id}")
        epoch = next(number for number, _, end in ranges if first <= end)
        if batch.partition_leader_epoch != epoch:
            where = f"offset {first} of segment {segment.id}"
            raise BatchError(f"epoch {epoch}", batch.partition_leader_epoch, where)
        reached = last + 1
        position += batch.size


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
