"""Results of remote reads that came too late, kept for the client's retry. Pure.

A read is not cancelled when its request expires: with a store slower than the wait, every retry
would start over and none would ever end. Bounded by bytes and by age; a result is returned once,
since the consumer then continues at a later offset.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

MAX_BYTES: Final = 64 * 1024 * 1024  # remote.result.cache.bytes
MAX_AGE_MS: Final = 30_000

_T = TypeVar("_T")


class ResultCache(Generic[_T]):
    """By a key of the caller's, which names segment and position."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_age_ms: int = MAX_AGE_MS) -> None:
        self.size = 0
        self._max_bytes = max_bytes
        self._max_age_ms = max_age_ms
        self._entries: OrderedDict[Hashable, tuple[int, int, _T]] = OrderedDict()

    def put(self, key: Hashable, result: _T, size: int, now_ms: int) -> None:
        """Keep a result; the oldest go until it fits, and one that cannot fit is not kept."""
        self._drop(key)
        if size > self._max_bytes:
            return
        self._entries[key] = (now_ms, size, result)
        self.size += size
        self.expire(now_ms)
        while self.size > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def resize(self, max_bytes: int) -> None:
        """A new limit; it holds from the next result on."""
        self._max_bytes = max_bytes

    def take(self, key: Hashable, now_ms: int) -> _T | None:
        """Remove and return the result, if there is one and it is not too old."""
        self.expire(now_ms)
        entry = self._drop(key)
        return None if entry is None else entry[2]

    def expire(self, now_ms: int) -> None:
        """Drop old results; entries are ordered by time."""
        while self._entries:
            key, (put_ms, _, _) = next(iter(self._entries.items()))
            if now_ms - put_ms <= self._max_age_ms:
                return
            self._drop(key)

    def _drop(self, key: Hashable) -> tuple[int, int, _T] | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry[1]
        return entry
