"""The one module that reads the machine's clocks.

- Wall time stamps: records, and what is stored for another process or for people to read. Anybody
  can set it, in either direction, so nothing waits for it.
- Monotonic time measures: deadlines, sessions, locks, timers. It never goes back. Its values mean
  nothing to another process, nor after a restart.
- Boot time is monotonic time that goes on while the machine is suspended: for leases between
  machines.

Code that needs the time takes a `Clock` as an argument; tests pass one whose wall time they step.
Code that cannot take one (command line, clients' stamps) uses `SYSTEM`.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple


class Now(NamedTuple):
    """One moment on both clocks, as state machines are told it."""

    ms: int
    """Monotonic: what deadlines are made of, and compared with."""
    wall_ms: int
    """Since the epoch: what records are stamped with."""


class Clock:
    """The time of this machine."""

    __slots__ = ()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()

    def monotonic_ms(self) -> int:
        return int(self.monotonic() * 1000)

    def boot(self) -> float:
        """Seconds since the machine started, those in suspension included where it counts them."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def now(self) -> Now:
        return Now(self.monotonic_ms(), self.wall_ms())


SYSTEM: Final = Clock()
