"""Group commit: one sync covers everything appended since the last one began.

Rules:

- A partition that joins is part of the next round. A round starts after the current turn of the
  event loop, so all requests read together share it; each lane runs at most one round at a time.
- There are two lanes. Logs with new files, mostly logs that were just created, have a lane of their
  own with few threads and small rounds: their syncs take several times as long, because a directory
  is synced, too. So a client that writes to thousands of partitions for the first time does not
  delay clients that write to existing logs.
- After a round each partition's high watermark moves to the synced offset: readers never see
  records that a power cut could lose. Then the waiting responses are sent, those of one connection
  together.
- A failed sync takes its log offline and is never retried. Waiting requests check the log; the
  round, and the other logs in it, do not fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.broker.hosting.durability import one_is_done
from ottla.log.errors import LogClosed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Executor, Future

    from ottla.broker.hosting.durability import Ack
    from ottla.broker.hosting.hosted import HostedPartition

    Synced = list[tuple[HostedPartition, int | Exception]]

NEW_THREADS: Final = 2  # for the first syncs of logs; see `ottla.broker.workers`
NEW_AT_ONCE: Final = 64  # new logs in one round; a request for the first waits for all of them

logger = logging.getLogger(__name__)


class _Round:
    """A planned or running sync, and its waiting answers."""

    __slots__ = ("acks", "dirty", "joined", "left")

    def __init__(self) -> None:
        self.dirty: set[HostedPartition] = set()
        self.acks: list[Ack] = []
        self.joined: asyncio.Future[None] | None = None
        self.left = 0  # threads that are not done

    def wait(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        if self.joined is None:
            self.joined = loop.create_future()
        # The round is everyone's: a client that goes away must not cancel it for the others.
        return asyncio.shield(self.joined)

    def end(self) -> None:
        """Release waiting answers; the high watermarks have moved."""
        if self.joined is not None:
            self.joined.set_result(None)
        one_is_done(self.acks)


class _Lane:
    """Rounds that follow each other."""

    def __init__(self, executor: Executor, threads: int, at_once: int | None = None) -> None:
        self._executor = executor
        self._threads = threads
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._coming: deque[_Round] = deque()
        self._current: _Round | None = None
        self.rounds = 0

    def next_round(self) -> _Round:
        """The round that covers all appends so far."""
        coming = self._coming
        if not coming:
            coming.append(_Round())
            if self._current is None:
                self._loop.call_soon(self.begin)
        elif self._at_once is not None and len(coming[-1].dirty) >= self._at_once:
            coming.append(_Round())
        return coming[-1]

    def last(self) -> _Round | None:
        return self._coming[-1] if self._coming else self._current

    def begin(self) -> None:
        """Start the next round, unless one is running."""
        if self._current is not None or not self._coming:
            return
        self._current = current = self._coming.popleft()
        dirty = tuple(current.dirty)
        current.left = min(len(dirty), self._threads)
        for start in range(current.left):
            share = dirty[start :: self._threads]
            try:
                synced = self._executor.submit(_sync, share)
            except RuntimeError as error:
                logger.exception("a round of syncs could not be run")
                failed: Synced = [(partition, error) for partition in share]
                self._loop.call_soon(self._done, failed)
            else:
                synced.add_done_callback(self._synced)

    def _synced(self, future: Future[Synced]) -> None:
        """In the worker's thread."""
        with suppress(RuntimeError):  # the loop is closed: no request waits any more
            self._loop.call_soon_threadsafe(self._done, future.result())

    def _done(self, synced: Synced) -> None:
        for partition, outcome in synced:
            _settle(partition, outcome)
        current = self._current
        assert current is not None
        current.left -= 1
        if current.left:
            return
        self.rounds += 1
        self._current = None
        self.begin()  # before anybody is answered: the disk works meanwhile
        current.end()


class GroupFlusher:
    """A `Durability`: runs rounds on `executor`, spread over `threads` of it."""

    stalled = False

    def __init__(self, executor: Executor, threads: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._lane = _Lane(executor, threads)
        self._new = _Lane(executor, min(threads, NEW_THREADS), NEW_AT_ONCE)

    @property
    def rounds(self) -> int:
        return self._lane.rounds + self._new.rounds

    def enlist(self, partitions: Sequence[HostedPartition], ack: Ack | None) -> bool:
        """Whether an answer must wait for the sync of these logs; it is notified afterwards."""
        for round_ in self._rounds(partitions):
            if ack is not None:
                ack.waits += 1
                round_.acks.append(ack)
        return bool(partitions)

    def begin(self, partitions: Sequence[HostedPartition], ack: Ack) -> None:
        """Like `enlist`, without waiting for others of this turn of the loop."""
        self.enlist(partitions, ack)
        self._lane.begin()
        self._new.begin()

    def join(self, partitions: Sequence[HostedPartition]) -> asyncio.Future[None] | None:
        """Completes when everything these logs hold now is durable, or their log is offline."""
        return self.sync(partitions) if partitions else None

    def sync(self, partitions: Sequence[HostedPartition]) -> asyncio.Future[None]:
        return self._wait(self._rounds(partitions))

    def forget(self, partition: HostedPartition) -> None:
        """Nothing is kept."""

    async def barrier(self) -> None:
        """Wait for all joins so far."""
        await self._wait(self._last())

    async def drain(self) -> None:
        """Wait until nothing is left to sync."""
        while last := self._last():
            await self._wait(last)

    async def close(self) -> None:
        """Nothing to release."""

    def _rounds(self, partitions: Sequence[HostedPartition]) -> Iterable[_Round]:
        """The one or two rounds that these partitions have joined."""
        if len(partitions) == 1:  # the hot path
            (partition,) = partitions
            round_ = (self._new if partition.log.has_new_files else self._lane).next_round()
            round_.dirty.add(partition)
            return (round_,)
        new: list[HostedPartition] = []
        others: list[HostedPartition] = []
        for partition in partitions:
            (new if partition.log.has_new_files else others).append(partition)
        rounds = []
        for lane, dirty in ((self._lane, others), (self._new, new)):
            if dirty:
                round_ = lane.next_round()
                round_.dirty.update(dirty)
                rounds.append(round_)
        return rounds

    def _last(self) -> list[_Round]:
        return [last for lane in (self._lane, self._new) if (last := lane.last()) is not None]

    async def _all(self, waits: Sequence[asyncio.Future[None]]) -> None:
        for wait in waits:
            await wait

    def _wait(self, rounds: Iterable[_Round]) -> asyncio.Future[None]:
        waits = [round_.wait(self._loop) for round_ in rounds]
        return waits[0] if len(waits) == 1 else self._loop.create_task(self._all(waits))


def _settle(partition: HostedPartition, outcome: int | Exception) -> None:
    """A partition that fails here does not keep the others of its round."""
    if partition.gone or isinstance(outcome, LogClosed):
        return  # whoever closes a log syncs it, unless it is deleted
    if isinstance(outcome, Exception):
        logger.error("sync of %r failed; its log is offline", partition, exc_info=outcome)
        partition.log.take_offline(outcome)
        return
    try:
        partition.advance(outcome)
    except Exception:
        logger.exception("could not wake readers of %r", partition)


def _sync(partitions: Sequence[HostedPartition]) -> Synced:
    """In a worker thread."""
    synced: Synced = []
    for partition in partitions:
        try:
            synced.append((partition, partition.log.flush()))
        except Exception as error:  # noqa: BLE001 (told with the partition)
            synced.append((partition, error))
    return synced
