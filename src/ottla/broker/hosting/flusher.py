"""Group commit: one sync for everything appended since the last one began.

Rules:

- `join` returns what to await for the durability of all that has been appended so far. At most one
  round is under way; whoever joins meanwhile is part of the next.
- A round starts after the current turn of the event loop, so all requests read together share it.
- After a round each partition's high watermark moves to what that sync covers: readers never see
  what a power cut could take back.
- A sync that fails takes its log offline and is never retried. Those who waited find that out from
  the log; the round itself does not fail.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.log.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from ottla.broker.hosting.partitions import HostedPartition

    Synced = list[tuple[HostedPartition, int]]

logger = logging.getLogger(__name__)


class GroupFlusher:
    """Runs rounds on `executor`, spread over `threads` of it."""

    def __init__(self, executor: Executor, threads: int) -> None:
        self._executor = executor
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._dirty: set[HostedPartition] = set()
        self._next: asyncio.Future[None] | None = None
        self._round: asyncio.Task[None] | None = None
        self.rounds = 0

    def join(self, partitions: Sequence[HostedPartition]) -> asyncio.Future[None]:
        """Completes when everything these logs hold now is durable, or their log is offline."""
        self._dirty.update(partitions)
        if self._next is None:
            self._next = self._loop.create_future()
        if self._round is None:
            self._round = self._loop.create_task(self._run())
        # The round is everyone's: a client that goes away must not cancel it for the others.
        return asyncio.shield(self._next)

    async def drain(self) -> None:
        """Wait until nothing is left to sync."""
        while self._round is not None:
            await asyncio.shield(self._round)

    async def _run(self) -> None:
        try:
            while self._next is not None:
                dirty, self._dirty = tuple(self._dirty), set()
                joined, self._next = self._next, None
                shares = [dirty[start :: self._threads] for start in range(self._threads)]
                rounds = [
                    self._loop.run_in_executor(self._executor, _sync, share)
                    for share in shares
                    if share
                ]
                for synced in await asyncio.gather(*rounds):
                    for partition, offset in synced:
                        partition.advance(offset)
                self.rounds += 1
                joined.set_result(None)
        finally:
            self._round = None


def _sync(partitions: Sequence[HostedPartition]) -> Synced:
    """In a worker thread."""
    synced = []
    for partition in partitions:
        try:
            synced.append((partition, partition.log.flush()))
        except LogError:
            if not partition.gone:
                logger.exception("sync of %r failed; its log is offline", partition)
    return synced
