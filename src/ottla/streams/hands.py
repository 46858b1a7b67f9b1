"""Track tasks that hold messages, and wait until none does."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import TYPE_CHECKING

from ottla.callers import has_ended
from ottla.streams.types import AutoCommit

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.callers import Caller
    from ottla.streams.tracker import Tracker
    from ottla.streams.types import ShardKey

_log = logging.getLogger("ottla.streams")


class Hands:
    """The tasks that hold messages of one consumer."""

    def __init__(self, tracker: Tracker, auto_commit: AutoCommit):
        self._tracker = tracker
        self._auto_commit = auto_commit
        self._tasks: weakref.WeakSet[Caller] = weakref.WeakSet()
        self._last: weakref.ref[Caller] | None = None
        self._progressed = asyncio.Event()

    def taken(self, task: Caller | None) -> None:
        """This task has been given something."""
        if task is not None and (self._last is None or self._last() is not task):
            self._tasks.add(task)
            self._last = weakref.ref(task)

    def with_another(self, asking: Caller | None) -> bool:
        """Whether a task other than this one was given messages last, and still runs."""
        last = None if self._last is None else self._last()
        return last is not None and last is not asking and not has_ended(last)

    def progressed(self) -> None:
        """Something is done, so that there may be nothing left to wait for."""
        self._progressed.set()

    def worth_waiting(self, caller: Caller | None) -> bool:
        """Whether someone else than the closing task can still finish work."""
        if not self._tracker.in_flight():
            return False
        if self._auto_commit is AutoCommit.ROLLING:
            return True
        return any(task is not caller and not has_ended(task) for task in self._tasks)

    async def empty(self, shards: Collection[ShardKey] | None, within: float) -> None:
        """Wait until no message of these shards (None: all) is held, or the time is over."""
        try:
            async with asyncio.timeout(within):
                while self._tracker.in_flight(shards):
                    self._progressed.clear()
                    await self._progressed.wait()
        except TimeoutError:
            _log.warning("gave up waiting for %d messages", self._tracker.in_flight(shards))
