"""The remote segments of one partition, by leader epoch and offset.

Rules, for each epoch of a segment and the range of offsets the segment has in it:

- Started: the segment is `unreferenced`. Listed, never read.
- Finished: entries that start at or after it and end with or before it are superseded and become
  unreferenced (two leaders uploaded the same range; the longer copy serves). A segment that an
  entry which starts at or before it already outlasts stays unreferenced itself, however late it
  comes: what could be read stays readable. Otherwise it is the entry at its start.
- Deletion started: no entry any more, unreferenced. Deletion finished: forgotten.
- `highest` is the last offset that was ever finished in the epoch. It never falls, or a leader
  would copy again what retention has just deleted.
- A lookup takes the entry at or before the offset that reaches the offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from enum import Enum, auto
from typing import TYPE_CHECKING

from ottla.tier.catalogue.segments import (
    SEGMENT_TRANSITIONS,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID


class Verdict(Enum):
    """The result of an event in the catalogue."""

    APPLIED = auto()
    UNKNOWN_SEGMENT = auto()
    ILLEGAL_TRANSITION = auto()


class _Entry:
    """A finished segment within one epoch."""

    __slots__ = ("end", "id")

    def __init__(self, segment: UUID, end: int) -> None:
        self.id = segment
        self.end = end


class _Epoch:
    """The remote segments of one leader epoch."""

    __slots__ = ("entries", "highest", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.entries: dict[int, _Entry] = {}
        self.unreferenced: set[UUID] = set()
        self.highest = -1

    def started(self, segment: UUID) -> None:
        self.unreferenced.add(segment)

    def finished(self, segment: UUID, start: int, end: int) -> None:
        while self.starts and self.starts[-1] >= start and self.highest <= end:
            self._release(self.starts[-1])
        self.highest = max(self.highest, end)
        if self._outlasted(segment, start, end):
            self.unreferenced.add(segment)
            return
        if start in self.entries:
            self._release(start)
        insort(self.starts, start)
        self.entries[start] = _Entry(segment, end)
        self.unreferenced.discard(segment)

    def delete_started(self, segment: UUID, start: int) -> None:
        entry = self.entries.get(start)
        if entry is not None and entry.id == segment:
            self._release(start)
        self.unreferenced.add(segment)

    def delete_finished(self, segment: UUID) -> None:
        self.unreferenced.discard(segment)

    def _release(self, start: int) -> None:
        del self.starts[bisect_left(self.starts, start)]
        self.unreferenced.add(self.entries.pop(start).id)

    def _outlasted(self, segment: UUID, start: int, end: int) -> bool:
        at = bisect_right(self.starts, start)
        if not at:
            return False
        entry = self.entries[self.starts[at - 1]]
        return entry.end > end and entry.id != segment

    def find(self, offset: int) -> UUID | None:
        if offset > self.highest:
            return None
        # Copies of old leaders may lie between the entry that has the offset and the offset.
        for at in range(bisect_right(self.starts, offset) - 1, -1, -1):
            entry = self.entries[self.starts[at]]
            if offset <= entry.end:
                return entry.id
        return None

    def from_offset(self, offset: int) -> Iterator[UUID]:
        """Entries that end at or after the offset, by start."""
        for start in self.starts[max(0, bisect_right(self.starts, offset) - 1) :]:
            entry = self.entries[start]
            if entry.end >= offset:
                yield entry.id

    def ids(self) -> Iterator[UUID]:
        yield from (entry.id for entry in self.entries.values())
        yield from self.unreferenced


class RemoteLogMetadataCache:
    """The catalogue of one partition: a fold over its events. No I/O, no clock."""

    __slots__ = ("_epochs", "segments")

    def __init__(self) -> None:
        self.segments: dict[UUID, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, _Epoch] = {}

    def judge(self, segment: UUID, state: SegmentState) -> Verdict:
        """The verdict for an event that sets this state."""
        current = self.segments.get(segment)
        if current is None and state is not SegmentState.COPY_SEGMENT_STARTED:
            return Verdict.UNKNOWN_SEGMENT
        allowed = SEGMENT_TRANSITIONS[None if current is None else current.state]
        return Verdict.APPLIED if state in allowed else Verdict.ILLEGAL_TRANSITION

    def add(self, metadata: RemoteLogSegmentMetadata) -> Verdict:
        """A copy has started."""
        verdict = self.judge(metadata.id.id, metadata.state)
        if metadata.state is not SegmentState.COPY_SEGMENT_STARTED:
            return Verdict.ILLEGAL_TRANSITION
        if verdict is Verdict.APPLIED:
            self.put(metadata)
        return verdict

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> Verdict:
        """A segment's next state."""
        if update.state is SegmentState.COPY_SEGMENT_STARTED:
            return Verdict.ILLEGAL_TRANSITION
        verdict = self.judge(update.id.id, update.state)
        if verdict is Verdict.APPLIED:
            self.put(self.segments[update.id.id].after(update))
        return verdict

    def put(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Take in a segment in whatever state it is: events that were judged, and snapshots."""
        segment = metadata.id.id
        # In the order of last changes: a snapshot that is read in that order meets the same rivals.
        self.segments.pop(segment, None)
        self.segments[segment] = metadata
        for epoch, start, end in metadata.epoch_ranges():
            one = self._epochs.setdefault(epoch, _Epoch())
            if metadata.state is SegmentState.COPY_SEGMENT_STARTED:
                one.started(segment)
            elif metadata.state is SegmentState.COPY_SEGMENT_FINISHED:
                one.finished(segment, start, end)
            elif metadata.state is SegmentState.DELETE_SEGMENT_STARTED:
                one.delete_started(segment, start)
            else:
                one.delete_finished(segment)
        if metadata.state is SegmentState.DELETE_SEGMENT_FINISHED:
            del self.segments[segment]

    def raise_highest(self, epoch: int, offset: int) -> None:
        """Restore the highest offset of an epoch from a snapshot."""
        one = self._epochs.setdefault(epoch, _Epoch())
        one.highest = max(one.highest, offset)

    # Questions

    def find(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The finished segment that holds this offset of this epoch."""
        one = self._epochs.get(epoch)
        found = None if one is None else one.find(offset)
        return None if found is None else self.segments[found]

    def highest_offset(self, epoch: int) -> int | None:
        one = self._epochs.get(epoch)
        return None if one is None or one.highest < 0 else one.highest

    def highest_offsets(self) -> list[tuple[int, int]]:
        """(epoch, highest offset) of every epoch that ever had a finished segment."""
        return [(epoch, one.highest) for epoch, one in self._epochs.items() if one.highest >= 0]

    def list_epoch(self, epoch: int) -> list[RemoteLogSegmentMetadata]:
        """Every segment of the epoch that is not deleted, by start offset."""
        one = self._epochs.get(epoch)
        if one is None:
            return []
        return sorted(map(self.segments.__getitem__, one.ids()), key=lambda m: m.start_offset)

    def referenced(self) -> set[UUID]:
        """The segments that lookups can give."""
        return {entry.id for one in self._epochs.values() for entry in one.entries.values()}

    def next_with_txn_index(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The first finished segment at or after the offset that may have aborted transactions."""
        one = self._epochs.get(epoch)
        for segment in () if one is None else one.from_offset(offset):
            if not self.segments[segment].txn_index_empty:
                return self.segments[segment]
        return None
