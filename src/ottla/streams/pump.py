"""The task that owns a consumer's source and feeds a queue that is bounded in count and bytes.

Everyone else only ever waits for `arrived`, so that cancelling them interrupts no I/O. With
`settle` nothing is fetched ahead: a fetch asks for what someone waits for, and what it brings goes
through `settle` before anyone sees it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ottla.streams.types import payload_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from ottla.streams.base import Source
    from ottla.streams.types import Message, ShardKey

FETCH_WAIT = 0.5
"""Longest wait of one fetch; a seek or close may have to wait for it."""


class Pump:
    """`queue` has fetched messages, `end` the reason of the end; hold `io` to use the source."""

    def __init__(
        self,
        source: Source,
        prefetch: int,
        prefetch_bytes: int,
        settle: Callable[[list[Message]], Awaitable[list[Message]]] | None = None,
    ):
        self.queue: deque[Message] = deque()
        self.arrived = asyncio.Event()
        self.end: BaseException | None = None
        self.io = asyncio.Lock()
        self.waiting = 0
        self._source = source
        self._prefetch = prefetch
        self._prefetch_bytes = prefetch_bytes
        self._refill_at = prefetch // 2
        self._settle = settle
        self._on_demand = settle is not None
        self._wanted = 0
        self._room = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, or begin again after the end, to fetch."""
        if self._task is None or self._task.done():
            self.end = None
            self.refill()
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._done)

    def pop(self, limit: int) -> list[Message]:
        """Messages from the queue, which is not empty."""
        queue = self.queue
        if limit >= len(queue):
            taken = list(queue)
            queue.clear()
        else:
            popleft = queue.popleft
            taken = [popleft() for _ in range(limit)]
        if len(queue) <= self._refill_at:
            self.refill()  # by bytes there may be none yet, which the pump finds out
        return taken

    def refill(self) -> None:
        """There is room in the queue."""
        if not self._on_demand:
            self._room.set()

    def demand(self, limit: int) -> None:
        """Note that a caller waits for this many messages."""
        self._wanted = limit
        self.arrived.clear()
        self._room.set()

    def drop(self, shards: Collection[ShardKey] | None) -> None:
        """Drop fetched messages of these shards (None: all)."""
        kept = [m for m in self.queue if shards is not None and (m.stream, m.shard) not in shards]
        self.queue.clear()
        self.queue.extend(kept)
        self.refill()

    async def stop(self) -> list[Message]:
        """Stop fetching; returns untaken messages."""
        unread = [*self.queue]
        self.queue.clear()
        self._stopping = True
        self._room.set()
        self.arrived.set()
        if self._task is not None and not self._task.done():
            self._source.interrupt()
            await asyncio.wait([self._task], timeout=2 * FETCH_WAIT)
            if not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task])
        unread += self.queue
        self.queue.clear()
        return unread

    async def _run(self) -> None:
        while not self._stopping:
            await self._room.wait()
            async with self.io:
                if self._stopping:
                    return
                limit = self._wanted if self._on_demand else self._prefetch - len(self.queue)
                if limit > 0 and payload_bytes(self.queue) < self._prefetch_bytes:
                    messages = await self._source.fetch(limit, FETCH_WAIT)
                    if messages and self._settle is not None:
                        messages = await self._settle(messages)
                    if messages:
                        self.queue.extend(messages)
                        self.arrived.set()
            if self._on_demand:
                if self.queue or not self.waiting:
                    self._room.clear()
            elif (
                len(self.queue) >= self._prefetch
                or payload_bytes(self.queue) >= self._prefetch_bytes
            ):
                self._room.clear()

    def _done(self, task: asyncio.Task[None]) -> None:
        # A task that was replaced by then has nothing to say.
        if task is self._task and not task.cancelled():
            self.end = task.exception()
            self.arrived.set()
