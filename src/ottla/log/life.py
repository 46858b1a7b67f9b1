"""The life of an open log, and the leases of those who work on it in other threads.

    OPEN  --begin_close-->  CLOSING  --last lease released-->  CLOSED

- A lease keeps the files of a log open. Compaction, tier copies, replays, look-ups by time, syncs:
  whoever works on a log outside its own thread holds one. It does not keep the log from closing.
- From CLOSING on nobody gets a new lease, and whoever asks is told `LogClosed`.
- Descriptors are closed by the last one to leave, whichever thread that is. A descriptor that was
  closed under a reader could be another topic's file a moment later.
- Opening, and a log that is gone from disk, are states of the hosting side: here a log exists
  once it is open.

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


THE_LOG: Final = 0  # the number of the log itself among those who are inside it


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
    """Counts who is inside one log; the log itself is the first. `give_back` runs when all left.

    Leases are numbered in the order in which they were given, so that it can be told whether
    anybody is left who was inside at some time.
    """

    __slots__ = ("_give_back", "_inside", "_lock", "_name", "last_given", "life")

    def __init__(self, name: str, give_back: Callable[[], None]) -> None:
        self._name = name
        self._give_back = give_back
        self._lock = threading.Lock()
        self._inside: dict[int, None] = {THE_LOG: None}  # in the order of their numbers
        self.last_given = THE_LOG
        self.life = Life.OPEN

    def closed(self) -> LogClosed:
        """What a caller is told from CLOSING on."""
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
        """Let nobody in any more; False if that was so already."""
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
            self.life = Life.CLOSED
        self._give_back()
