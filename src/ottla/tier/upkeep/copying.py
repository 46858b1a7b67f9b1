"""Choose local segments to copy, and make their catalogue entries. Pure.

A segment is copied when it has a successor, so that it cannot grow, and the successor begins at or
below the last stable offset, so that everything in it is committed and every transaction decided.
The oldest first, without gaps, from the first offset that is not copied or deleted.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from ottla.tier.catalogue.segments import (
    EpochStart,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID


class LocalSegment(NamedTuple):
    """A local segment. `last_modified_ms` is used if no record has a timestamp."""

    base_offset: int
    size: int
    max_timestamp_ms: int
    last_modified_ms: int
    has_aborted: bool = False


class Candidate(NamedTuple):
    """A segment to copy: its offsets are from its base up to, not including, `next_base`."""

    segment: LocalSegment
    next_base: int


def segments_to_copy(
    segments: Sequence[LocalSegment], *, copied: int, log_start: int, last_stable_offset: int
) -> list[Candidate]:
    """What may be copied now, oldest first; the last of `segments` is the active one."""
    first = max(copied + 1, log_start)
    found = []
    for segment, successor in pairwise(segments):
        if successor.base_offset > last_stable_offset:
            break
        if successor.base_offset > first:
            found.append(Candidate(segment, successor.base_offset))
    return found


def clip_epochs(lineage: Iterable[tuple[int, int]], first: int, end: int) -> tuple[EpochStart, ...]:
    """The epochs that wrote offsets from `first` up to, not including, `end`."""
    entries = [EpochStart(*pair) for pair in lineage]
    stops = chain((following.start_offset for following in entries[1:]), (end,))
    return tuple(
        EpochStart(epoch, max(start, first))
        for (epoch, start), stop in zip(entries, stops, strict=False)
        if start < end and stop > first
    )


def copy_metadata(
    tip: TopicIdPartition,
    candidate: Candidate,
    lineage: Iterable[tuple[int, int]],
    *,
    segment_id: UUID,
    broker_id: int,
    now_ms: int,
) -> RemoteLogSegmentMetadata:
    """The entry of a starting copy; each attempt has a new id."""
    segment, next_base = candidate
    newest = segment.max_timestamp_ms
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(tip, segment_id),
        segment.base_offset,
        next_base - 1,
        # Never -1: the segment would be older than any retention at once.
        newest if newest >= 0 else segment.last_modified_ms,
        broker_id,
        now_ms,
        segment.size,
        clip_epochs(lineage, segment.base_offset, next_base),
        txn_index_empty=not segment.has_aborted,
    )


def events_of_copy(
    metadata: RemoteLogSegmentMetadata,
) -> tuple[RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate]:
    """The events of a finished copy, for a catalogue that lost them."""
    return (
        replace(metadata, state=SegmentState.COPY_SEGMENT_STARTED, custom_metadata=None),
        metadata.update(
            SegmentState.COPY_SEGMENT_FINISHED,
            broker_id=metadata.broker_id,
            now_ms=metadata.event_timestamp_ms,
        ),
    )


def highest_copied(
    lineage: Sequence[tuple[int, int]],
    highest_offset_for_epoch: Callable[[int], int | None],
) -> int:
    """The last offset of this log that is in the remote tier, -1 if none.

    The newest epoch that has anything decides. What the tier has beyond the end of the epoch in
    this log was truncated away here, and does not count.
    """
    end: int | None = None
    for epoch, start in reversed(lineage):
        highest = highest_offset_for_epoch(epoch)
        if highest is not None:
            return highest if end is None or highest < end else end - 1
        end = start
    return -1


def first_remote_offset(
    lineage: Iterable[tuple[int, int]],
    list_epoch: Callable[[int], Sequence[RemoteLogSegmentMetadata]],
) -> int | None:
    """Where the log starts in the remote tier, by the earliest epoch that has a segment there."""
    for epoch, _ in lineage:
        segments = list_epoch(epoch)
        if segments:
            return segments[0].start_offset
    return None
