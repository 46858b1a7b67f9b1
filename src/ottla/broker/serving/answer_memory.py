"""How much of answers may wait until clients read them: `ottla.queued.max.response.bytes`.

- An answer that a socket takes at once costs nothing here. Any other counts whole, for all
  connections together, until its last byte has left, because its memory is free only then. A
  connection is neither served nor read from meanwhile, so it holds the answers of one turn.
- A fetch response has at most the size that is free; if nothing is free, one batch. Clients that
  read still make progress, and clients that do not read cost little more.
- Above the limit, clients that have not read a byte for `STALL_SECONDS` are disconnected, the
  longest waiting first. Above twice the limit they are disconnected without waiting.
- An answer that is made in a task leaves a turn or two of the event loop after it was made, and
  others are made meanwhile. So it is promised from the beginning, and whoever makes one waits for
  its turn first.
- The answers of a client that is disconnected count until its connection is closed, some turns of
  the event loop later. Until then no request is served if that is more than twice the limit
  (`is_full`). The memory is thus at most twice the limit and one answer, however many clients there
  are and whatever they ask for.
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
    """The answers of one connection that are not sent whole, and when it last read."""

    __slots__ = ("left", "since", "size")

    def __init__(self, since: float) -> None:
        self.size = 0  # bytes in memory
        self.left = 0  # bytes to be sent, when it was last looked at
        self.since = since


class AnswerMemory:
    """Counts unsent bytes; connections call `hold` and `release`, handlers `room`."""

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self._limit = limit
        self._now = now
        self._waits: OrderedDict[Holder, _Wait] = OrderedDict()  # the longest wait first
        self._leaving: dict[Holder, int] = {}
        self._leaving_bytes = 0
        self._promised = 0
        self._check: asyncio.TimerHandle | None = None
        self.held = 0
        self.disconnected = 0

    @property
    def room(self) -> int:
        """How many bytes an answer may have."""
        return min(MAX_READ_BYTES, max(0, self._limit - self.held - self._promised))

    @property
    def is_full(self) -> bool:
        """Whether no request may be served until what is under way has left."""
        passing = self._leaving_bytes + self._promised
        return passing > 0 and self.held + self._promised > 2 * self._limit

    async def turn(self) -> None:
        """To be awaited in a task before it makes an answer."""
        while self.is_full:  # noqa: ASYNC110 (a few turns of the loop, and nobody knows how many)
            await asyncio.sleep(0)

    def promise(self, size: int) -> None:
        """A task returns an answer of `size` bytes: it counts until it can have been sent."""
        if size:
            self._promised += size
            loop = asyncio.get_running_loop()
            # The connection sends it in the next turn, so it is counted there by then.
            loop.call_soon(loop.call_soon, self._was_sent, size)

    def _was_sent(self, size: int) -> None:
        self._promised -= size

    def hold(self, holder: Holder, size: int) -> None:
        """The socket of `holder` did not take all of an answer of `size` bytes."""
        wait = self._waits.get(holder)
        if wait is None:
            wait = self._waits[holder] = _Wait(self._now())
        wait.size += size
        wait.left = holder.unsent_bytes
        self.held += size
        if self.held > self._limit:
            self.make_room()

    def release(self, holder: Holder) -> None:
        """Everything was sent, or the connection is closed."""
        wait = self._waits.pop(holder, None)
        if wait is not None:
            self.held -= wait.size
        leaving = self._leaving.pop(holder, 0)
        self._leaving_bytes -= leaving
        self.held -= leaving

    def make_room(self) -> None:
        """Disconnect those that keep memory from others by not reading."""
        now = self._now()
        for _ in range(min(MAX_LOOKS, len(self._waits))):
            if self._kept <= self._limit:
                return
            holder, wait = next(iter(self._waits.items()))
            left = holder.unsent_bytes
            if left < wait.left:
                wait.since = now
                wait.left = left
                self._waits.move_to_end(holder)
            elif now - wait.since >= STALL_SECONDS or self._kept > 2 * self._limit:
                self.disconnected += 1
                logger.warning(
                    "disconnecting a client that does not read: %d bytes wait for it, %d in all, "
                    "ottla.queued.max.response.bytes is %d",
                    left,
                    self.held,
                    self._limit,
                )
                del self._waits[holder]
                self._leaving[holder] = wait.size
                self._leaving_bytes += wait.size
                holder.abort()
            else:
                break
        if self._check is None and self._kept > self._limit:
            self._check = asyncio.get_running_loop().call_later(STALL_SECONDS, self._check_again)

    def _check_again(self) -> None:
        self._check = None
        self.make_room()

    @property
    def _kept(self) -> int:
        """Bytes of connections that do not leave."""
        return self.held - self._leaving_bytes
