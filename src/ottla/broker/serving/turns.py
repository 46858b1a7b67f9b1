"""How much of one turn of the event loop goes into requests."""

from __future__ import annotations

from time import perf_counter
from typing import Final

# Then the loop comes round: timers, syncs and new connections wait no longer than that, however
# many clients have sent something.
TURN_SECONDS: Final = 0.02


class Turn:
    """The turn of the loop that is under way."""

    __slots__ = ("_began", "_now")

    def __init__(self) -> None:
        self._now = -1.0
        self._began = 0.0

    def begin(self, now: float) -> None:
        """`now` is the loop's time, which uvloop reads once in a turn: another one, another turn.

        Where a loop reads it whenever it is asked every client has a whole turn.
        """
        if now != self._now:
            self._now = now
            self._began = perf_counter()

    def is_over(self) -> bool:
        return perf_counter() - self._began > TURN_SECONDS
