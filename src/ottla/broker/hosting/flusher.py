"""Group commit: one sync for everything appended since the last one began.

Rules:

- `join` returns what to await for the durability of all that has been appended so far. At most one
  round is under way; whoever joins meanwhile is part of the next.
- A round starts after the current turn of the event loop, so all requests read together share it.
- After a round each partition's high watermark moves to what that sync covers: readers never see
  what a power cut could take back.
- A sync that fails, for whatever reason, takes its log offline and is never retried. Those who
  waited find that out from the log; the round, and the other logs in it, do not fail.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from ottla.broker.hosting.partitions import HostedPartition

    Synced = list[tuple[HostedPartition, int | Exception]]

logger = logging.getLogger(__name__)


class GroupFlusher:
    """A `Durability`: runs rounds on `executor`, spread over `threads` of it."""

    stalled = False

    def __init__(self, executor: Executor, threads: int) -> None:
        self._executor = executor
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._dirty: set[HostedPartition] = set()
        self._next: asyncio.Future[None] | None = None
        self._round: asyncio.Task[None] | None = None
        self._joined: asyncio.Future[None] | None = None  # those of the round under way
        self.rounds = 0

    def join(self, partitions: Sequence[HostedPartition]) -> asyncio.Future[None] | None:
        """Completes when everything these logs hold now is durable, or their log is offline."""
        return self.sync(partitions) if partitions else None

    def sync(self, partitions: Sequence[HostedPartition]) -> asyncio.Future[None]:
        self._dirty.update(partitions)
        if self._next is None:
            self._next = self._loop.create_future()
        if self._round is None:
            self._round = self._loop.create_task(self._run())
        # The round is everyone's: a client that goes away must not cancel it for the others.
        return asyncio.shield(self._next)

    async def barrier(self) -> None:
        """Wait for what has been joined so far."""
        last = self._next or self._joined
        if last is not None:
            await asyncio.shield(last)

    async def drain(self) -> None:
        """Wait until nothing is left to sync."""
        while self._round is not None:
            await asyncio.shield(self._round)

    async def _run(self) -> None:
        try:
            while self._next is not None:
                dirty, self._dirty = tuple(self._dirty), set()
                self._joined, self._next = self._next, None
                try:
                    await self._sync_all(dirty)
                finally:
                    self.rounds += 1
                    self._joined.set_result(None)
                    self._joined = None
        finally:
            self._round = None

    async def _sync_all(self, dirty: Sequence[HostedPartition]) -> None:
        shares = [dirty[start :: self._threads] for start in range(self._threads)]
        try:
            rounds = [
                self._loop.run_in_executor(self._executor, _sync, share)
                for share in shares
                if share
            ]
            results = await asyncio.gather(*rounds)
        except Exception as error:
            logger.exception("a round of syncs could not be run")
            for partition in dirty:
                partition.log.take_offline(error)
            return
        for synced in results:
            for partition, outcome in synced:
                _settle(partition, outcome)


def _settle(partition: HostedPartition, outcome: int | Exception) -> None:
    """A partition that fails here does not keep the others of its round."""
    if partition.gone:
        return
    if isinstance(outcome, Exception):
        logger.error("sync of %r failed; its log is offline", partition, exc_info=outcome)
        partition.log.take_offline(outcome)
        return
    try:
        partition.advance(outcome)
    except Exception:
        logger.exception("readers of %r could not be told of new records", partition)


def _sync(partitions: Sequence[HostedPartition]) -> Synced:
    """In a worker thread."""
    synced: Synced = []
    for partition in partitions:
        try:
            synced.append((partition, partition.log.flush()))
        except Exception as error:  # noqa: BLE001 (told with the partition)
            synced.append((partition, error))
    return synced
