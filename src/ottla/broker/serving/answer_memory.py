"""How much of answers may wait until clients read them: `ottla.queued.max.response.bytes`.

- What a socket takes at once costs nothing here. What it does not take counts, for all connections
  together, until its last byte has left. A connection is neither served nor read from meanwhile,
  so it holds the answers of one turn and no more.
- A fetch is answered with what there is room for; without room, with one batch. Clients that read
  get on with that, and those that do not read cost little more.
- Above the limit, clients are disconnected that have not taken a byte for `STALL_SECONDS`, those
  that have waited longest first. Above twice the limit nobody is waited for. The memory is thus at
  most twice the limit and one answer, however many clients there are and whatever they ask for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

STALL_SECONDS: Final = 10.0  # kernels buffer several MiB before they accept more
# Of records in one answer. They may have to come from files, which has been seen to take 4 ms for a
# MiB: with more, one client would hold up all others for longer than 50 ms. It asks again.
MAX_READ_BYTES: Final = 8 * 1024 * 1024
MAX_LOOKS: Final = 64  # at waiting connections in one go; the next go begins where this one ended

logger = logging.getLogger(__name__)


class Holder(Protocol):
    """A connection with unsent answers."""

    @property
    def unsent_bytes(self) -> int: ...

    def abort(self) -> None: ...


class _Wait:
    """Unsent bytes of one connection, and when it last read."""

    __slots__ = ("since", "size")

    def __init__(self, since: float) -> None:
        self.size = 0
        self.since = since


class AnswerMemory:
    """Counts unsent bytes; connections call `hold` and `release`, handlers `room`."""

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self._limit = limit
        self._now = now
        self._waits: OrderedDict[Holder, _Wait] = OrderedDict()  # the longest wait first
        self._check: asyncio.TimerHandle | None = None
        self.held = 0
        self.disconnected = 0

    @property
    def room(self) -> int:
        """How many bytes an answer may have."""
        return min(MAX_READ_BYTES, max(0, self._limit - self.held))

    def hold(self, holder: Holder) -> None:
        """The socket of `holder` is full: count the unsent bytes."""
        wait = self._waits.get(holder)
        if wait is None:
            wait = self._waits[holder] = _Wait(self._now())
        self._resize(wait, holder.unsent_bytes)
        if self.held > self._limit:
            self.make_room()

    def release(self, holder: Holder) -> None:
        """Everything was sent, or the connection is closed."""
        wait = self._waits.pop(holder, None)
        if wait is not None:
            self.held -= wait.size

    def make_room(self) -> None:
        """Disconnect those that keep memory from others by not reading."""
        now = self._now()
        for _ in range(min(MAX_LOOKS, len(self._waits))):
            if self.held <= self._limit:
                return
            holder, wait = next(iter(self._waits.items()))
            left = holder.unsent_bytes
            if left < wait.size:
                wait.since = now
                self._resize(wait, left)
                self._waits.move_to_end(holder)
            elif now - wait.since >= STALL_SECONDS or self.held > 2 * self._limit:
                self.disconnected += 1
                logger.warning(
                    "disconnecting a client that does not read: %d bytes wait for it, %d in all, "
                    "ottla.queued.max.response.bytes is %d",
                    left,
                    self.held,
                    self._limit,
                )
                self.release(holder)
                holder.abort()
            else:
                break
        if self._check is None and self.held > self._limit:
            self._check = asyncio.get_running_loop().call_later(STALL_SECONDS, self._check_again)

    def _check_again(self) -> None:
        self._check = None
        self.make_room()

    def _resize(self, wait: _Wait, size: int) -> None:
        self.held += size - wait.size
        wait.size = size
