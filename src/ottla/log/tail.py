"""The last appended bytes of all logs of a process, so that readers who keep up read no file.

One `TailCache` has a budget in bytes. Each log has a `Tail` in it: its last batches, without a gap.
When the budget is used up, the least recently used tails are dropped, each of them whole. A log
takes no more than `LOG_TAIL_BYTES` of it, and a batch that is larger than that is not kept.

A tail is three lists in step: base offset, running end in bytes, and the bytes of each batch. A
read is two binary searches and one slice, for any number of batches.

Only the thread that appends may use a cache and its tails.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

# Of all logs together: a few requests of hundreds of busy partitions. Older batches come from the
# page cache.
DEFAULT_TAIL_BYTES: Final = 64 << 20
# Of one log: enough for readers a few requests behind. More would only push useful data out of the
# CPU's caches.
LOG_TAIL_BYTES: Final = 2 << 20
# Memory of a batch beside its bytes: two list entries and an int, a third one for the object, and
# its header. Thousands of tiny batches must not take many times the budget.
BATCH_OVERHEAD: Final = 128


class TailCache:
    """The budget, and the order in which tails were used.

    A read makes its tail the most recently used one. An append does so only once between two
    evictions (an eighth of the budget is written in between), because appends are the hottest call.
    """

    __slots__ = ("_order", "capacity", "log_capacity", "newest", "period", "used")

    def __init__(self, capacity: int = DEFAULT_TAIL_BYTES) -> None:
        self.capacity = capacity
        self.log_capacity = min(LOG_TAIL_BYTES, capacity)
        self.used = 0
        self._order: dict[Tail, None] = {}  # least recently used first
        self.newest: Tail | None = None
        self.period = 0

    def touch(self, tail: Tail) -> None:
        """It is the most recently used one now."""
        self._order.pop(tail, None)
        self._order[tail] = None
        self.newest = tail
        tail.period = self.period

    def forget(self, tail: Tail) -> None:
        """It holds nothing any more."""
        self._order.pop(tail, None)
        tail.period = -1
        if tail is self.newest:
            self.newest = None

    def make_room(self) -> None:
        """Drop tails until an eighth is free, so that this is not asked for with every batch."""
        goal = self.capacity - self.capacity // 8
        self.period += 1
        for tail in tuple(self._order):
            if self.used <= goal:
                return
            tail.clear()


class Tail:
    """The last batches of one log, oldest dropped first."""

    __slots__ = ("_bases", "_cache", "_chunks", "_end", "_ends", "_start", "held", "period")

    def __init__(self, cache: TailCache) -> None:
        self._cache = cache
        self._bases: list[int] = []
        self._ends: list[int] = []
        self._chunks: list[bytes | memoryview] = []
        self._start = self._end = 0
        self.held = 0  # how much of the budget it takes
        self.period = -1  # when an append last counted as use

    def clear(self) -> None:
        self._drop(len(self._chunks))

    def add(self, base_offset: int, chunk: bytes | memoryview) -> None:
        """Keep the batch that was appended last."""
        cache = self._cache
        size = len(chunk)
        cost = size + BATCH_OVERHEAD
        if cost > cache.log_capacity:
            self.clear()  # what follows must have no gap
            return
        self._end += size
        self._bases.append(base_offset)
        self._ends.append(self._end)
        self._chunks.append(chunk)
        self.held += cost
        cache.used += cost
        if self.period != cache.period:
            cache.touch(self)
        if self.held > cache.log_capacity:
            self._trim()
        if cache.used > cache.capacity:
            cache.touch(self)
            cache.make_room()

    def _trim(self) -> None:
        """Drop the older half."""
        half = (self._end - self._start) // 2
        self._drop(max(1, bisect_right(self._ends, self._end - half)))

    def drop_below(self, offset: int) -> None:
        """Forget the batches that start below `offset`: the files hold something else now."""
        self._drop(bisect_left(self._bases, offset))

    def _drop(self, count: int) -> None:
        if count:
            start = self._ends[count - 1]
            cost = start - self._start + BATCH_OVERHEAD * count
            self._cache.used -= cost
            self.held -= cost
            self._start = start
            del self._bases[:count], self._ends[:count], self._chunks[:count]
            if not self._chunks:
                self._cache.forget(self)

    def holds(self, offset: int) -> bool:
        """Whether the batch with this offset is cached."""
        return bool(self._bases) and self._bases[0] <= offset

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool
    ) -> list[bytes | memoryview] | None:
        """The batches from the one that holds `offset` on; None if that one is not cached."""
        first = bisect_right(self._bases, offset) - 1
        if first < 0:
            return None
        if self._cache.newest is not self:
            self._cache.touch(self)
        start = self._ends[first] - len(self._chunks[first])
        stop = bisect_right(self._ends, start + max_bytes)
        if at_least_one:
            stop = max(stop, first + 1)
        return self._chunks[first : min(stop, bisect_left(self._bases, upper_bound))]
