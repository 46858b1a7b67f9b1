"""From offsets to bytes of a segment, by its offset index. Pure.

An index entry holds the last offset of a batch and the position where the batch starts. Hence the
bytes of offsets a to b begin at the greatest entry at or below a, and end at the entry *after* the
first one at or above b: that one only says where b's batch begins.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.log.index import AbortedTransaction, OffsetIndex


class ByteRange(NamedTuple):
    """Half open."""

    start: int
    end: int


def byte_range(index: OffsetIndex, base: int, first: int, last: int, size: int) -> ByteRange:
    """Bytes that hold every batch with offsets of `first` to `last`, both inclusive."""
    at = index.last_at_or_below(first - base)
    start = index.positions[at] if at >= 0 else 0
    following = bisect_left(index.offsets, last - base) + 1
    end = index.positions[following] if following < len(index.positions) else size
    return ByteRange(start, end)


def cut(index: OffsetIndex, whole: ByteRange, target: int) -> list[ByteRange]:
    """A range in pieces of about `target` bytes, each a number of whole batches."""
    pieces = []
    start = whole.start
    positions = index.positions
    while whole.end - start > target + target // 2:
        at = bisect_left(positions, start + target)
        candidates = [positions[one] for one in (at - 1, at) if 0 <= one < len(positions)]
        inside = [one for one in candidates if start < one < whole.end]
        if not inside:
            break
        best = min(inside, key=lambda one: abs(one - start - target))
        pieces.append(ByteRange(start, best))
        start = best
    return [*pieces, ByteRange(start, whole.end)]


def aborted_within(
    entries: Iterable[AbortedTransaction], first: int, last: int
) -> tuple[tuple[int, int, int], ...]:
    """(producer id, first offset, marker) of the aborted transactions that touch these offsets."""
    return tuple(
        sorted(
            {
                (one.producer_id, one.first_offset, one.last_offset)
                for one in entries
                if one.first_offset <= last and one.last_offset >= first
            }
        )
    )
