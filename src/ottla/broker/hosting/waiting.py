"""Waiting for logs and queues: they know whom to call when they have more to show.

A log keeps a set of readers and wakes all of them, since each gets the new records. A queue keeps a
line and wakes the first, since only one gets the records.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Waiters(Protocol):
    """A set, or a line."""

    def add(self, wake: Callable[[], None], /) -> None: ...

    def discard(self, wake: Callable[[], None], /) -> None: ...


class Line:
    """Those who wait for a queue, first come first served."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Callable[[], None], None] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, wake: Callable[[], None], /) -> None:
        self._waiting[wake] = None

    def discard(self, wake: Callable[[], None], /) -> None:
        self._waiting.pop(wake, None)

    def wake_first(self) -> None:
        """Wake the first in line and remove it, so two calls in one turn wake two."""
        if self._waiting:
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            wake()

    def wake_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            wake()


async def woken(waiters: Iterable[Waiters], deadline: float) -> None:
    """Wait until one of them calls, or until the deadline of the loop's clock."""
    loop = asyncio.get_running_loop()
    called: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not called.done():
            called.set_result(None)

    joined = list(waiters)
    for one in joined:
        one.add(wake)
    timer = loop.call_at(deadline, wake)
    try:
        await called
    finally:
        timer.cancel()
        for one in joined:
            one.discard(wake)
