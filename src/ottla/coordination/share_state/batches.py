"""Ranges of offsets and how they combine.

A share-partition's state is a list of ranges: sorted, disjoint, and with no two neighbours that
touch and are equal. Where a new range meets an old one, the higher delivery count wins, then the
higher state id. So combining takes the maximum per offset: the order of ranges does not matter, and
repeated or late ranges change nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NO_OFFSET = -1


class DeliveryState(IntEnum):
    """The stored states; `acquired` is not stored."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVED = 4


_STATES = frozenset(DeliveryState)


class StateBatch(NamedTuple):
    first: int
    last: int
    state: int
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.delivery_count, self.state


StateBatches: TypeAlias = tuple[StateBatch, ...]


def is_valid(batch: StateBatch) -> bool:
    return 0 <= batch.first <= batch.last and batch.state in _STATES and batch.delivery_count >= 0


def combine(stored: StateBatches, new: Iterable[StateBatch], start: int) -> StateBatches:
    """`stored` is already combined; ranges below `start` are dropped (-1: none).

    Only the neighbours of each new range are examined, so a long list costs a copy, not a scan.
    """
    result = list(stored)
    if start != NO_OFFSET:
        del result[: bisect_left(result, start, key=_last)]
        if result:
            result[0] = _from(result[0], start)
    for batch in new:
        if start == NO_OFFSET or batch.first >= start:
            _put(result, batch)
        elif batch.last >= start:
            _put(result, _from(batch, start))
    return tuple(result)


def _first(batch: StateBatch) -> int:
    return batch.first


def _last(batch: StateBatch) -> int:
    return batch.last


def _from(batch: StateBatch, start: int) -> StateBatch:
    return batch if batch.first >= start else batch._replace(first=start)


def _put(result: list[StateBatch], new: StateBatch) -> None:
    """Merge one range into the list."""
    if not result or result[-1].last + 1 < new.first:
        result.append(new)
        return
    low = bisect_left(result, new.first - 1, key=_last)
    high = bisect_right(result, new.last + 1, key=_first)
    result[low:high] = _merged(_resolved(result[low:high], new))


def _resolved(old: Sequence[StateBatch], new: StateBatch) -> Iterable[StateBatch]:
    """The new range and the old ones near it, cut so that each offset is in one range."""
    position = new.first
    for batch in old:
        if batch.first < new.first:
            yield batch._replace(last=min(batch.last, new.first - 1))
        if position < batch.first and position <= new.last:
            yield new._replace(first=position, last=min(batch.first - 1, new.last))
        first, last = max(batch.first, new.first), min(batch.last, new.last)
        if first <= last:
            yield max(new, batch, key=_rank)._replace(first=first, last=last)
        if batch.last > new.last:
            yield batch._replace(first=max(batch.first, new.last + 1))
        position = max(position, batch.last + 1)
    if position <= new.last:
        yield new._replace(first=position)


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.rank


def _merged(batches: Iterable[StateBatch]) -> list[StateBatch]:
    merged: list[StateBatch] = []
    for batch in batches:
        if merged and merged[-1].last + 1 == batch.first and merged[-1].rank == batch.rank:
            merged[-1] = merged[-1]._replace(last=batch.last)
        else:
            merged.append(batch)
    return merged
