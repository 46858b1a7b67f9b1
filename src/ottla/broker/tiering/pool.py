"""A bounded pool: limits running and waiting work, in order of arrival.

The limit is read each time, so that a changed setting applies at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any


logger = logging.getLogger(__name__)


class PoolFull(Exception):
    """The queue is full."""


class Pool:
    """`run` takes its place in line when it is called, not when it is awaited."""

    def __init__(self, limit: Callable[[], int], max_waiting: int | None = None) -> None:
        self.active = 0
        self._limit = limit
        self._max_waiting = max_waiting
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run this in its turn; `PoolFull` if too many wait."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.active < self._limit():
            self.active += 1
            turn.set_result(None)
        elif self._max_waiting is not None and len(self._waiting) >= self._max_waiting:
            raise PoolFull
        else:
            self._waiting.append(turn)
        task = asyncio.create_task(self._in_turn(turn, work))
        # Also for a task that is cancelled before it has begun.
        task.add_done_callback(lambda _: self._leave(turn))
        return task

    async def _in_turn(
        self, turn: asyncio.Future[None], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        await turn
        await work()

    def _leave(self, turn: asyncio.Future[None]) -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
            return
        self.active -= 1
        while self._waiting and self.active < self._limit():
            following = self._waiting.popleft()
            self.active += 1
            following.set_result(None)


class Work:
    """Something that is done again and again, one round at a time."""

    def __init__(self, pool: Pool, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._pool = pool
        self._run = run
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Start a round, or return the running one."""
        if self._task is None or self._task.done():
            self._task = self._pool.run(self._round)
        return self._task

    async def _round(self) -> None:
        try:
            await self._run()
        except Exception:
            logger.exception("a round of tiered storage failed")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
