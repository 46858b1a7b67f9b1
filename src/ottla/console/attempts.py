"""How often somebody may try to log in. Pure: time is an argument.

An attempt counts against the account and against the address it comes from, when it begins: many
at once get no further than one after the other. One that succeeds is taken back. After `MOST`
failures within `SECONDS` further attempts wait, and the password is not looked at.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST: Final = 5
SECONDS: Final = 60.0
MAX_KEYS: Final = 10_000
"""Accounts and addresses that are remembered; the one that failed longest ago goes first."""


class Attempts:
    """Keys are ("account", name) and ("address", host)."""

    def __init__(self, most: int = MOST, seconds: float = SECONDS, keys: int = MAX_KEYS) -> None:
        self._most = most
        self._seconds = seconds
        self._keys = keys
        self._failed: dict[tuple[str, str], deque[float]] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def wait(self, keys: Iterable[tuple[str, str]], now: float) -> float:
        """Seconds until an attempt may begin; 0: it may."""
        waits = [0.0]
        for key in keys:
            times = self._failed.get(key)
            while times and times[0] <= now - self._seconds:
                times.popleft()
            if times is not None and not times:
                del self._failed[key]
            elif times is not None and len(times) >= self._most:
                waits.append(times[0] + self._seconds - now)
        return max(waits)

    def begin(self, keys: Iterable[tuple[str, str]], now: float) -> None:
        """Count it as a failure until it is known to be none."""
        for key in keys:
            times = self._failed.pop(key, None)
            self._failed[key] = deque(maxlen=self._most) if times is None else times
            self._failed[key].append(now)
        while len(self._failed) > self._keys:
            del self._failed[next(iter(self._failed))]

    def succeeded(self, keys: Iterable[tuple[str, str]], now: float) -> None:
        """Take back the attempt that began at `now`."""
        for key in keys:
            times = self._failed.get(key)
            if times is not None and now in times:
                times.remove(now)
                if not times:
                    del self._failed[key]
