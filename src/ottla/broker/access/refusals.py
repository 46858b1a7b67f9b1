"""When the answer to a failed authentication leaves. Pure: time is an argument.

    an attempt arrives ── its time is arrival + delay, ──> it fails ──> the answer leaves then
                          the address has a failure more      │
                                                              └─ later than that: a delay later

- How long the check took does not move the answer. Else a stranger could tell by the time who
  exists (PLAIN hashes no password of a user that does not) and who has logged in before (see
  `Verifiers`). A check that takes longer than the delay moves it by a whole delay.
- An attempt counts when it arrives, not when its check is over. Else the order in which two checks
  end could be told by which of the two got the longer delay. A success clears the address.
- A delay is never shorter than `LEAST_SECONDS`, whatever is configured: a slow check has to fit in.
- `MAX_HELD` attempts wait at most. Beyond that the one that came first gets no answer any more,
  because it has the least time left; which of them it is does not depend on their checks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ottla.broker.access.lobby import Failures

LEAST_SECONDS: Final = 0.05  # a password takes 2 to 8 ms of a processor
MAX_HELD: Final = 1_024  # each keeps a connection open


@dataclass(eq=False, slots=True)
class Attempt:
    """An authentication that may fail, from its arrival to its answer."""

    host: str
    arrived: float
    delay: float
    is_dropped: bool = False  # it gets no answer: too many came after it

    def leaves_at(self, now: float) -> float:
        """When a failure that is known now is answered: after now, in whole delays."""
        delays = math.floor((now - self.arrived) / self.delay) + 1
        return self.arrived + max(1, delays) * self.delay


class Refusals:
    """Attempts of all addresses that have not been answered."""

    def __init__(self, most: int = MAX_HELD) -> None:
        self._most = most
        self._failures = Failures()
        self._held: dict[Attempt, None] = {}  # in the order of their arrival

    def __len__(self) -> int:
        return len(self._held)

    def arrived(self, host: str, delay: float, now: float) -> tuple[Attempt, Attempt | None]:
        """A new attempt, which has not succeeded at once, and the one that is dropped for it.

        `delay` is that of an address without failures, in seconds.
        """
        wait = max(LEAST_SECONDS, self._failures.failed(host, delay, now))
        dropped = None
        if len(self._held) >= self._most:
            dropped = next(iter(self._held))
            dropped.is_dropped = True
            del self._held[dropped]
        attempt = Attempt(host, now, wait)
        self._held[attempt] = None
        return attempt, dropped

    def left(self, attempt: Attempt) -> None:
        """It is answered, or its client is gone."""
        self._held.pop(attempt, None)

    def succeeded(self, host: str) -> None:
        """An address has shown the right password: its failures count no more."""
        self._failures.succeeded(host)
