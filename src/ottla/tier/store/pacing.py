"""How fast copies go while a broker has clients to serve. Pure.

Copies, the store they go to and the requests of clients share processors and disks: a copy at full
speed makes some requests wait for milliseconds. So:

- A broker that serves fewer than `BUSY_REQUESTS` a second copies as fast as it can.
- Else copies begin at the floor and go a quarter faster every `STEP`, as long as the event loop is
  woken when it should be. When it is late by more than `LATE`, they go half as fast.
- The floor is `FLOOR`, or the rate that copies the whole backlog within `CATCH_UP` if that is more:
  so the backlog is bounded even if the broker is always busy.

A store that costs this machine little, as one elsewhere does, is thus used at full speed within
half a minute. This is no limit: that is the quota's to set, see `ottla.tier.store.quota`.
"""

from __future__ import annotations

from math import inf
from typing import Final

MIB: Final = 1024 * 1024
BUSY_REQUESTS: Final = 20.0  # a second; fewer are heartbeats, long polls and tools
LATE: Final = 0.002  # seconds; timers alone are late by 1 ms, a taken processor by 3 and more
STEP: Final = 1.0  # seconds between two steps up: a late waking in three seconds holds the rate
HOLD: Final = 0.1  # seconds between two steps down: wakings late for the same reason count once
FASTER: Final = 1.25
SLOWER: Final = 0.5
FLOOR: Final = 8.0 * MIB  # bytes a second: one part, so at most a twentieth of the time
CEILING: Final = 1024.0 * MIB  # from here it takes HOLD seven times to be at the floor again
CATCH_UP: Final = 300.0  # seconds; local disks are sized for hours


class CopyPace:
    """Times are seconds of one clock, sizes bytes."""

    def __init__(self, now: float) -> None:
        self.rate = inf
        """Bytes a second; infinite if nothing holds copies back."""
        self._floor = FLOOR
        self._requests = 0
        self._looked_at = now
        self._owed = 0.0  # bytes that went and whose time has not passed
        self._owed_at = now
        self._up_at = now
        self._down_at = now

    def look(self, now: float, *, requests: int, waiting: int) -> None:
        """Update with the number of served requests and the backlog."""
        self._pay(now)
        served = requests - self._requests
        busy = served >= BUSY_REQUESTS * (now - self._looked_at)
        self._requests, self._looked_at = requests, now
        self._floor = max(FLOOR, waiting / CATCH_UP)
        if not busy:
            self.rate = inf
        elif self.rate == inf:
            self.rate = self._floor
            self._up_at = now + STEP
        else:
            self.rate = max(self.rate, self._floor)

    def woken(self, now: float, late: float) -> None:
        """The event loop was to be woken at `now - late`."""
        if self.rate == inf:
            return
        self._pay(now)
        if late > LATE:
            self._up_at = now + STEP
            if now >= self._down_at:
                self._down_at = now + HOLD
                self.rate = max(self._floor, self.rate * SLOWER)
        elif now >= self._up_at:
            self._up_at = now + STEP
            self.rate = max(self._floor, min(CEILING, self.rate * FASTER))

    def delay(self, now: float) -> float:
        """Seconds until the next piece may go; ask again then."""
        self._pay(now)
        return self._owed / self.rate

    def record(self, size: int, now: float) -> None:
        """A piece goes."""
        self._pay(now)
        if self.rate != inf:
            self._owed += size

    def _pay(self, now: float) -> None:
        passed = now - self._owed_at
        self._owed_at = now
        self._owed = 0.0 if self.rate == inf else max(0.0, self._owed - passed * self.rate)
