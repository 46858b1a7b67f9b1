"""The life of an open log, and the leases of other threads that work on it.

    OPEN  --begin_close-->  CLOSING  --last lease released-->  CLOSED

- A lease keeps the files of a log open. All work on a log outside its own thread needs one:
  compaction, tier copies, replays, look-ups by time, syncs. A lease does not stop the log from
  closing.
- From CLOSING on, asking for a new lease raises `LogClosed`.
- The thread that releases the last lease closes the descriptors. If a descriptor were closed under
  a reader, its number could belong to a file of another topic a moment later.
- Opening a log and deleting it from disk are states of the hosting side: here a log exists once it
  is open.

Every call is safe in any thread.
"""

from __future__ import annotations

import enum
import threading
from typing import TYPE_CHECKING, Final, Self

from ottla.log.errors import LogClosed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


THE_LOG: Final = 0  # the lease number of the log itself


class Life(enum.Enum):
    """Where an open log is on its way out."""

    OPEN = enum.auto()
    CLOSING = enum.auto()  # refuses everything; some still hold leases
    CLOSED = enum.auto()  # its descriptors are given back


class Lease:
    """Keeps the files of one log open until it is released; releasing twice changes nothing."""

    __slots__ = ("_leases", "_number")

    def __init__(self, leases: Leases, number: int) -> None:
        self._leases: Leases | None = leases
        self._number = number

    def release(self) -> None:
        leases, self._leases = self._leases, None
        if leases is not None:
            leases.leave(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Leases:
    """Counts the leases of one log, its own included. The last release calls `give_back`.

    Leases are numbered in the order in which they were given, so that one can ask whether any lease
    from before a certain moment is still held.
    """

    __slots__ = ("_closed", "_give_back", "_inside", "_lock", "_name", "last_given", "life")

    def __init__(self, name: str, give_back: Callable[[], None]) -> None:
        self._name = name
        self._give_back = give_back
        self._lock = threading.Lock()
        self._closed: list[Callable[[], None]] = []
        self._inside: dict[int, None] = {THE_LOG: None}  # in the order of their numbers
        self.last_given = THE_LOG
        self.life = Life.OPEN

    def closed(self) -> LogClosed:
        """The error for calls from CLOSING on."""
        return LogClosed(
            f"log {self._name} is {self.life.name.lower()}: its topic was deleted, moved or is "
            "being shut down; look the partition up again"
        )

    def take(self) -> Lease:
        with self._lock:
            if self.life is not Life.OPEN:
                raise self.closed()
            self.last_given += 1
            self._inside[self.last_given] = None
            return Lease(self, self.last_given)

    def begin_close(self) -> bool:
        """Refuse new leases; False if they were refused already."""
        with self._lock:
            if self.life is not Life.OPEN:
                return False
            self.life = Life.CLOSING
            return True

    @property
    def others(self) -> bool:
        """Whether anybody but the log itself is inside."""
        with self._lock:
            return any(number != THE_LOG for number in self._inside)

    @property
    def oldest_inside(self) -> int:
        """The lease that was given first of those that are not back; past the last if all are."""
        with self._lock:
            return next((n for n in self._inside if n != THE_LOG), self.last_given + 1)

    def leave(self, number: int) -> None:
        with self._lock:
            del self._inside[number]
            if self._inside:
                return
        try:
            self._give_back()
        finally:
            with self._lock:
                self.life = Life.CLOSED
                closed, self._closed = self._closed, []
            for call in closed:
                call()

    def when_closed(self, call: Callable[[], None]) -> None:
        """Call this once the descriptors are given back, in the thread that has done it."""
        with self._lock:
            if self.life is not Life.CLOSED:
                self._closed.append(call)
                return
        call()
