"""Named deadlines, for state machines that get the time as an argument.

Moving a deadline later, as every heartbeat does, is one dictionary write: the heap keeps the old
entry and corrects it when it becomes due.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    __slots__ = ("_count", "_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def deadline(self, key: K) -> int | None:
        return self._due.get(key)

    def set(self, key: K, deadline_ms: int) -> None:
        self._due[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def next_deadline(self) -> int | None:
        """The earliest deadline that is still set."""
        while self._heap:
            queued, _, key = self._heap[0]
            due = self._due.get(key)
            if due == queued:
                return due
            heapq.heappop(self._heap)
            if self._queued.get(key) == queued:
                del self._queued[key]
                if due is not None:
                    self._push(key, due)
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the earliest due key; None if none is due.

        One at a time, because handling one may move or cancel the next.
        """
        deadline = self.next_deadline()
        if deadline is None or deadline > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._queued[key]
        del self._due[key]
        return key

    def _push(self, key: K, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        # The count prevents comparisons of keys and keeps equal deadlines in order of insertion.
        self._count += 1
        heapq.heappush(self._heap, (deadline_ms, self._count, key))
