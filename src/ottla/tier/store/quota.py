"""A rate over a sliding time: the copy and fetch quotas of tiered storage. Pure.

Time is cut into windows; the rate is what was recorded in the current window and the full ones
before it, over their length. A quota gates before a piece of work and records all of it at once, so
in any row of that many windows it is passed by at most one piece. (A stretch of time that begins
inside a window touches one window more: the oldest goes all at once, as in Kafka.)
"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOWS: Final = 11  # ...quota.window.num: ten full ones and the current one
WINDOW_MS: Final = 1000  # ...quota.window.size.seconds


class RateQuota:
    """Bytes per second; `limit` may change at any time."""

    __slots__ = ("_recorded", "_window_ms", "_windows", "limit")

    def __init__(self, limit: int, *, windows: int = WINDOWS, window_ms: int = WINDOW_MS) -> None:
        self.limit = limit
        self._windows = windows
        self._window_ms = window_ms
        self._recorded: deque[tuple[int, int]] = deque()  # (number of the window, bytes)

    def record(self, size: int, now_ms: int) -> None:
        """Work of this many bytes begins, or has been done."""
        window = now_ms // self._window_ms
        if self._recorded and self._recorded[-1][0] == window:
            size += self._recorded.pop()[1]
        self._recorded.append((window, size))

    def rate(self, now_ms: int) -> float:
        """Bytes per second over the windows in sight."""
        oldest = now_ms // self._window_ms - self._windows + 1
        while self._recorded and self._recorded[0][0] < oldest:
            self._recorded.popleft()
        seconds = ((self._windows - 1) * self._window_ms + now_ms % self._window_ms) / 1000
        return sum(size for _, size in self._recorded) / seconds

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether to wait before the next piece of work."""
        return self.rate(now_ms) > self.limit
