"""How much of unserved requests all connections together may hold: queued.max.request.bytes.

- A connection counts the requests that wait behind one it is serving, and a frame that is on its
  way with its announced size, unless that is small enough for the memory it reads into anyway.
- Over the limit nothing is granted: the connection stops reading and is called when there is space.
  Earlier grants stay valid, so that unfinished frames can complete and free their memory. So the
  limit is exceeded by at most one grant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

UNLIMITED: Final = -1


class RequestMemory:
    """Counts held bytes; `grant` requests more or returns some."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[object, Callable[[], None]] = {}
        self.held = 0

    @property
    def full(self) -> bool:
        return self._limit != UNLIMITED and self.held >= self._limit

    def grant(self, owner: object, change: int, room: Callable[[], None]) -> bool:
        """Whether `owner` may hold more; if not, `room` is called when there is room."""
        if change > 0 and self.full:
            self._waiting[owner] = room
            return False
        self.held += change
        if change < 0 and not self.full:
            waiting, self._waiting = self._waiting, {}
            for call in waiting.values():
                call()
        return True

    def forget(self, owner: object, held: int) -> None:
        """Release everything of `owner`."""
        self._waiting.pop(owner, None)
        if held:
            self.grant(owner, -held, _nothing)


def _nothing() -> None:
    pass
