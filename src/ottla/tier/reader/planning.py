"""Find the objects, and the bytes in them, that hold the requested offsets. Pure.

The segment that ends last defines the lineage (leader epochs) of the log. Segments of another
lineage are ignored, overlaps are resolved as in the broker, and the rest must have no gaps: a gap
is an error.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ottla.objects.errors import RemoteStorageError
from ottla.tier.catalogue.lineage import RemoteLogMetadataCache
from ottla.tier.store.layout import LOG_SUFFIX, CustomMetadata, Place, Section, segment_key
from ottla.tier.upkeep.validity import is_within_lineage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from ottla.log.index import AbortedTransaction
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata, TopicIdPartition

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]


class MissingSegments(RemoteStorageError):
    """Offsets are missing between two remote segments."""


class PlannedSegment(NamedTuple):
    """An object and the offsets to read from it, first and last included."""

    key: str
    size: int
    first: int
    last: int
    epoch: int
    log_crc: int | None
    offset_index: Place | None
    transaction_index: Place | None
    metadata: RemoteLogSegmentMetadata


class Split(NamedTuple):
    """A range of bytes to read, and which of its offsets to return. Plain values, safe to pickle.

    The flags say whether this is the first or last split of its object, whose offsets must reach
    the first or last requested one. `aborted` has (producer id, first offset, offset of the marker)
    of each aborted transaction.
    """

    topic: str
    partition: int
    key: str
    etag: str | None
    start: int
    end: int
    first_offset: int
    last_offset: int
    is_first: bool = True
    is_last: bool = True
    aborted: tuple[tuple[int, int, int], ...] = ()


class Request(NamedTuple):
    """The arguments of a plan, with times resolved to offsets: enough to plan again."""

    topic: str
    partition: int
    topic_id: UUID
    start_offset: int
    end_offset: int
    isolation_level: Isolation
    split_bytes: int
    tail_aborted: Sequence[AbortedTransaction] | None


class Plan(NamedTuple):
    """What to read: offsets `start_offset` up to, not including, `end_offset`, in `splits`.

    `log_start` is the first offset in the store. `end_offset` may be before the end of the last
    segment, if the outcome of a transaction is not known from the store alone.
    """

    tip: TopicIdPartition
    log_start: int
    request: Request
    segments: tuple[PlannedSegment, ...]
    splits: tuple[Split, ...]

    @property
    def start_offset(self) -> int:
        return self.request.start_offset

    @property
    def end_offset(self) -> int:
        return self.request.end_offset


def newest(segments: Sequence[RemoteLogSegmentMetadata]) -> RemoteLogSegmentMetadata:
    """The segment that ends last; it has the whole lineage."""
    return max(segments, key=lambda one: (one.end_offset, one.event_timestamp_ms))


def serving_chain(
    segments: Sequence[RemoteLogSegmentMetadata], lineage: Sequence[tuple[int, int]]
) -> list[RemoteLogSegmentMetadata]:
    """The segments that serve the log from its first remote offset to its last, in order."""
    end = newest(segments).end_offset
    valid = [one for one in segments if is_within_lineage(one, lineage, end + 1)]
    cache = RemoteLogMetadataCache()
    for one in valid:
        cache.put(one)
    found: list[RemoteLogSegmentMetadata] = []
    offset = min((one.start_offset for one in valid), default=end + 1)
    starts = list(lineage)
    while offset <= end:
        at = bisect_right(starts, offset, key=itemgetter(1)) - 1
        segment = cache.find(starts[at][0], offset) if at >= 0 else None
        if segment is None:
            raise MissingSegments(f"no remote segment has offset {offset}, and {end} is there")
        found.append(segment)
        offset = segment.end_offset + 1
    return found


def rows(
    serving: Sequence[RemoteLogSegmentMetadata], prefix: str, first: int, last: int
) -> list[PlannedSegment]:
    """The part of the chain with these offsets, inclusive; each begins where another ended."""
    found = []
    reached = first
    for one in serving:
        if one.end_offset < reached or one.start_offset > last:
            continue
        custom = CustomMetadata.decode(one.custom_metadata)
        found.append(
            PlannedSegment(
                segment_key(prefix, one, LOG_SUFFIX),
                one.segment_size,
                max(reached, one.start_offset),
                min(last, one.end_offset),
                one.leader_epochs[0].epoch,
                None if custom is None else custom.log_crc,
                None if custom is None else custom.places[Section.OFFSET],
                None if custom is None else custom.places[Section.TRANSACTION],
                one,
            )
        )
        reached = one.end_offset + 1
    return found
