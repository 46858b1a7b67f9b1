"""The states of a consumer, and the calls allowed in each.

| state | entered by | allowed |
|---|---|---|
| READY | opening | everything |
| ITERATING | a live async iterator | ack, nack, commit, positions, lag, close; else ConsumerBusy |
| SEEKING | seek, rewind | close; other calls wait |
| ENDED | the end of the streams, all read | ack, commit, close, seek and rewind (READY again) |
| FAILED | an error of the source | close; other calls raise it again |
| CLOSED | close | close; other calls raise ConsumerClosed |
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

from ottla.streams.errors import ConsumerBusy, ConsumerClosed, StreamEnded
from ottla.streams.home import Home

if TYPE_CHECKING:
    import weakref

    from ottla.streams.pump import Pump
    from ottla.streams.redelivery import Redelivery


class ConsumerState(Enum):
    """What a consumer can do now.

    - `NEW`: not entered yet.
    - `READY`: open; every method may be called.
    - `ITERATING`: an `async for` is running; other reads and seeks raise `ConsumerBusy`.
    - `SEEKING`: a seek or rewind is running; reads wait for it.
    - `ENDED`: the stream has ended; seeking back is possible.
    - `FAILED`: reading failed; the next read raises the error.
    - `CLOSED`: closed for good.
    """

    NEW = "new"
    READY = "ready"
    ITERATING = "iterating"
    SEEKING = "seeking"
    ENDED = "ended"
    FAILED = "failed"
    CLOSED = "closed"


class Life:
    """The facts a consumer's state follows from, and the guards of its methods."""

    def __init__(self, pump: Pump, again: Redelivery):
        self.entered = self.opened = self.closing = self.closed = False
        self.home = Home("consumer")
        self.moving: asyncio.Task[None] | None = None
        self.iterator: weakref.ref[object] | None = None
        self.late_error: Exception | None = None
        """What failed in the background; told to the next caller."""
        self._pump = pump
        self._again = again

    @property
    def state(self) -> ConsumerState:
        """Where in its life the consumer is."""
        if self.closed or self.closing:
            return ConsumerState.CLOSED
        if not self.opened:
            return ConsumerState.NEW
        if self.moving is not None:
            return ConsumerState.SEEKING
        if (end := self.end) is not None:
            ended = isinstance(end, StreamEnded)
            return ConsumerState.ENDED if ended else ConsumerState.FAILED
        return ConsumerState.ITERATING if self._iterating else ConsumerState.READY

    @property
    def end(self) -> BaseException | None:
        """Why there is nothing more to deliver; None if there may be."""
        end = self._pump.end
        return None if end is None or self._pump.queue or self._again.pending else end

    @property
    def _iterating(self) -> bool:
        return self.iterator is not None and self.iterator() is not None

    def enter(self) -> None:
        """A consumer is opened once."""
        if self.closing or self.closed:
            raise ConsumerClosed("the consumer is closed; make another one")
        if self.entered:
            raise ConsumerBusy("the consumer is open already; make another one")
        self.entered = True
        self.home.enter()

    def check_open(self, *, draining: bool = False) -> None:
        """Raise if the consumer is closed or failed; a draining one is still open."""
        if self.closed or (self.closing and not draining):
            raise ConsumerClosed("the consumer is closed")
        if not self.opened:
            raise ConsumerClosed("enter the consumer first: async with streamer.consumer(...) as c")
        end = self.end
        if end is not None and not isinstance(end, StreamEnded):
            raise end

    def check_reading(self) -> None:
        """Refuse what only the owner of the reading side may do."""
        if self.closing or self.closed or not self.opened:
            self.check_open()
        if self._iterating:
            raise ConsumerBusy("a live iterator owns this consumer; leave its loop first")

    def check_moving(self) -> None:
        """Refuse a seek beside another one."""
        self.check_reading()
        self.check_open()
        if self.moving is not None:
            raise ConsumerBusy("another seek is running")

    async def moved(self) -> None:
        """Until a seek that is running has ended."""
        if self.moving is not None:
            await asyncio.wait([self.moving])

    def raise_late(self) -> None:
        """Raise a background failure to the caller, once."""
        if self.late_error is not None:
            error, self.late_error = self.late_error, None
            raise error
