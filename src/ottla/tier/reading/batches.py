"""Check the batches of a remote segment, and cut out those that a fetch needs. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.batch import read_batch
from ottla.wire.errors import BatchError

if TYPE_CHECKING:
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata


class Wanted(NamedTuple):
    """The request: complete batches from `offset` on that begin below `upper_bound`.

    They have `max_bytes` at most; `at_least_one` gives the first one whatever its size.
    """

    offset: int
    max_bytes: int
    upper_bound: int
    at_least_one: bool


class Records(NamedTuple):
    """The batches found, and the next offset."""

    data: memoryview
    next_offset: int


class Batches(NamedTuple):
    """Batches back to back, all of them checked."""

    data: memoryview
    starts: list[int]
    """Where each begins, and where the last one ends."""
    bases: list[int]
    lasts: list[int]

    def cut(self, wanted: Wanted) -> Records:
        """The requested batches; one must end at or after the offset."""
        first = bisect_left(self.lasts, wanted.offset)
        stop = bisect_left(self.bases, wanted.upper_bound, first)
        start = self.starts[first]
        end = bisect_right(self.starts, start + wanted.max_bytes, first, stop + 1) - 1
        if end == first and wanted.at_least_one:
            end = min(first + 1, stop)
        if end == first:
            return Records(memoryview(b""), wanted.offset)
        return Records(self.data[start : self.starts[end]], self.lasts[end - 1] + 1)


def checked(data: memoryview, segment: RemoteLogSegmentMetadata) -> Batches:
    """CRCs, and what they do not cover: offsets ascend within the segment, epochs are its own."""
    position = 0
    reached = segment.start_offset
    ranges = iter(segment.epoch_ranges())
    epoch, _, epoch_end = next(ranges)
    found = Batches(data, [0], [], [])
    while position < len(data):
        batch = read_batch(data, position)
        batch.verify_crc()
        first, last = batch.base_offset, batch.last_offset
        if not reached <= first <= last <= segment.end_offset:
            expected = f"offsets from {reached} to {segment.end_offset}"
            raise BatchError(expected, f"{first} to {last}", f"segment {segment.id}")
        while first > epoch_end:
            epoch, _, epoch_end = next(ranges)
        if batch.partition_leader_epoch != epoch:
            where = f"offset {first} of segment {segment.id}"
            raise BatchError(f"epoch {epoch}", batch.partition_leader_epoch, where)
        reached = last + 1
        position += batch.size
        found.starts.append(position)
        found.bases.append(first)
        found.lasts.append(last)
    return found
