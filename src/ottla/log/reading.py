"""Questions to the segments of a log, oldest first: by offset, by time, by transaction.

All of these block on file reads. They take the tuple of segments that the log had when asked, so
they may run in any thread while the log grows, rolls or drops segments.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.errors import NotAtHand
from ottla.log.segment import newest_time
from ottla.wire.batch import LENGTH_OVERHEAD, RecordBatch
from ottla.wire.errors import BatchError
from ottla.wire.records import iter_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.index import AbortedTransaction
    from ottla.log.segment import Segment

_by_base = attrgetter("base_offset")
_by_first = attrgetter("first_offset")
_LENGTH = struct.Struct(">i")
_LENGTH_AT: Final = 8
# If the system cannot tell what is in the page cache, older records are assumed to be on disk.
RECENT_BYTES: Final = 256 << 20


class ReadResult(NamedTuple):
    """Whole batches in order. `chunks` go to the transport as they are."""

    chunks: Sequence[bytes | memoryview]
    size: int


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int


def read_segments(
    segments: tuple[Segment, ...],
    offset: int,
    max_bytes: int,
    upper_bound: int,
    *,
    at_least_one: bool,
    wait: bool = True,
    views: bool = False,
    ahead: int = 0,
) -> ReadResult:
    """Whole batches from the one that holds `offset`, across segments, up to `max_bytes`.

    Without `wait` it ends before the first segment for which the disk would be waited for;
    NotAtHand if nothing comes before that. `ahead`: see `Segment.read`.
    """
    chunks: list[bytes | memoryview] = []
    left = max_bytes
    first = bisect_right(segments, offset, key=_by_base) - 1
    for segment in segments[first:]:
        try:
            found, size, ended = segment.read(
                max(offset, segment.base_offset),
                left,
                upper_bound,
                at_least_one=at_least_one and not chunks,
                wait=wait,
                views=views,
                ahead=ahead,
            )
        except NotAtHand:
            if not chunks:
                raise
            break
        chunks += found
        left -= size
        # Only a segment read to its end may be followed by the next one.
        if not ended or left <= 0:
            break
    return ReadResult(chunks, max_bytes - left)


def segment_of(segments: tuple[Segment, ...], offset: int) -> Segment:
    """The one that holds an offset, or would."""
    return segments[bisect_right(segments, offset, key=_by_base) - 1]


def is_recent(segments: tuple[Segment, ...], offset: int) -> bool:
    """Whether an offset is among the newest bytes of a log, which the page cache has."""
    place = bisect_right(segments, offset, key=_by_base) - 1
    return sum(segment.size for segment in segments[place:]) <= RECENT_BYTES


def aborted_transactions(
    segments: tuple[Segment, ...], first: int, end: int, *, wait: bool = True
) -> list[AbortedTransaction]:
    """Those that touch offsets `first` to `end` (exclusive), ascending by first offset.

    Without `wait`, NotAtHand if an index would have to be read.
    """
    found: list[AbortedTransaction] = []
    start = max(0, bisect_right(segments, first, key=_by_base) - 1)
    for segment in segments[start:]:
        if not wait and not segment.has_aborted_at_hand:
            raise NotAtHand(f"the aborted transactions of {segment!r} are on disk alone")
        for aborted in segment.aborted.starting_at(first):
            if aborted.first_offset < end:
                found.append(aborted)
            # Transactions that were still open then began at its last stable offset or later.
            if aborted.last_stable_offset >= end:
                return sorted(found, key=_by_first)
    return sorted(found, key=_by_first)


def next_offset(chunks: Sequence[bytes | memoryview]) -> int:
    """The offset after the last batch that a read returned."""
    view = memoryview(chunks[-1])
    last = 0
    position = 0
    while position < len(view):
        last = position
        position += LENGTH_OVERHEAD + _LENGTH.unpack_from(view, position + _LENGTH_AT)[0]
    return RecordBatch(view[last:]).next_offset


def offset_for_timestamp(
    segments: tuple[Segment, ...], timestamp: int, log_start_offset: int
) -> TimestampOffset | None:
    """The first record at or after the log start that is not older than `timestamp`."""
    for segment in segments:
        if segment.max_timestamp >= timestamp and segment.next_offset > log_start_offset:
            found = _search(segment, timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def _search(segment: Segment, timestamp: int, log_start_offset: int) -> TimestampOffset | None:
    indexed = segment.base_offset + segment.time_index.floor_offset(timestamp)
    start = segment.locate(max(indexed, log_start_offset))
    if start is None:
        return None
    for position, header in segment.headers(start):
        if newest_time(header) >= timestamp:
            batch = segment.batch_at(position, header)
            found = _first_record(batch, timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def _first_record(
    batch: RecordBatch, timestamp: int, log_start_offset: int
) -> TimestampOffset | None:
    epoch = batch.partition_leader_epoch
    try:
        for record in iter_records(batch):
            if record.timestamp >= timestamp and record.offset >= log_start_offset:
                return TimestampOffset(record.timestamp, record.offset, epoch)
    except BatchError:
        # The CRC is right, so a client sent it so: the batch is all that can be told apart.
        first = max(batch.base_offset, log_start_offset)
        return TimestampOffset(batch.max_timestamp, first, epoch)
    return None


def max_timestamp_offset(
    segments: tuple[Segment, ...], log_start_offset: int
) -> TimestampOffset | None:
    """The first record that has the largest timestamp of the log; None if none has a timestamp."""
    newest = max(_newest_timestamp(segment, log_start_offset) for segment in segments)
    if newest < 0:
        return None
    return offset_for_timestamp(segments, newest, log_start_offset)


def _newest_timestamp(segment: Segment, log_start_offset: int) -> int:
    """The largest timestamp of the batches that reach past the log start."""
    if segment.base_offset >= log_start_offset:
        return segment.max_timestamp
    start = segment.locate(log_start_offset)
    if start is None:
        return -1
    return max(newest_time(header) for _, header in segment.headers(start))
