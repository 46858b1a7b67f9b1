"""The last appended bytes of a log, so that readers who keep up cause no file read.

Three lists in step: base offset, running end in bytes, and the bytes of each batch. A read is two
binary searches and one slice, whatever the number of batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

# Enough for readers a few requests behind; hundreds of busy partitions must not fill the memory,
# and what is older comes from the page cache.
DEFAULT_TAIL_BYTES: Final = 1 << 20


class TailCache:
    """Between `capacity` and twice `capacity` bytes of batches, oldest dropped first.

    Only the thread that appends may use it.
    """

    __slots__ = ("_bases", "_chunks", "_end", "_ends", "_start", "capacity")

    def __init__(self, capacity: int = DEFAULT_TAIL_BYTES) -> None:
        self.capacity = capacity
        self.clear()

    def clear(self) -> None:
        self._bases: list[int] = []
        self._ends: list[int] = []
        self._chunks: list[bytes] = []
        self._start = self._end = 0

    def add(self, base_offset: int, chunk: bytes) -> None:
        self._end += len(chunk)
        self._bases.append(base_offset)
        self._ends.append(self._end)
        self._chunks.append(chunk)
        if self._end - self._start > 2 * self.capacity:
            self._trim()

    def _trim(self) -> None:
        self._drop(bisect_right(self._ends, self._end - self.capacity))

    def drop_below(self, offset: int) -> None:
        """Forget the batches that start below `offset`: the files hold something else now."""
        self._drop(bisect_left(self._bases, offset))

    def _drop(self, count: int) -> None:
        if count:
            self._start = self._ends[count - 1]
            del self._bases[:count], self._ends[:count], self._chunks[:count]

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool
    ) -> list[bytes] | None:
        """The batches from the one that holds `offset` on; None if that one is not cached."""
        first = bisect_right(self._bases, offset) - 1
        if first < 0:
            return None
        start = self._ends[first] - len(self._chunks[first])
        stop = bisect_right(self._ends, start + max_bytes)
        if at_least_one:
            stop = max(stop, first + 1)
        return self._chunks[first : min(stop, bisect_left(self._bases, upper_bound))]
