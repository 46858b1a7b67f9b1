"""The consumer, the same on every backend: states, queue, acknowledgement, commit, closing.

One pump task owns the source and feeds a bounded queue. Users only ever wait for the queue, so
that cancelling them loses nothing; seeks and commits finish in the background when their caller
goes away.

| state | entered by | allowed |
|---|---|---|
| READY | opening | everything |
| ITERATING | a live async iterator | ack, nack, commit, positions, lag, aclose; else ConsumerBusy |
| SEEKING | seek, rewind | aclose; other calls wait |
| ENDED | the end of the streams, all read | ack, commit, aclose, seek and rewind (READY again) |
| FAILED | an error of the source | aclose; other calls raise it again |
| CLOSED | aclose | aclose; other calls raise ConsumerClosed |
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from enum import Enum
from typing import TYPE_CHECKING, Self

from ottla.streams.base import Operation
from ottla.streams.committer import Committer
from ottla.streams.errors import (
    AckNotAllowed,
    CommitNotAllowed,
    ConfigError,
    ConsumerBusy,
    ConsumerClosed,
    ShardNotAssigned,
    StreamEnded,
    StreamKeyEmpty,
    StreamKeyNotFound,
)
from ottla.streams.modes import refuse
from ottla.streams.pump import Pump
from ottla.streams.redelivery import Redelivery
from ottla.streams.tracker import Tracker
from ottla.streams.types import WILDCARD, AutoCommit, Message, MessageId, Mode, ShardKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from datetime import datetime
    from types import TracebackType

    from ottla.streams.base import Driver, Source
    from ottla.streams.positions import StoredPositions
    from ottla.streams.producer import Producer
    from ottla.streams.types import ConsumerOptions, SeqPos

_log = logging.getLogger("ottla.streams")


class ConsumerState(Enum):
    """See the table of the module."""

    NEW = "new"
    READY = "ready"
    ITERATING = "iterating"
    SEEKING = "seeking"
    ENDED = "ended"
    FAILED = "failed"
    CLOSED = "closed"


class Consumer:
    """Messages of some streams. Made by `Streamer.consumer`; use it as a context manager."""

    def __init__(
        self,
        driver: Driver,
        source: Source,
        streams: Sequence[str],
        options: ConsumerOptions,
        *,
        stored: StoredPositions | None = None,
        dead_letters: Callable[[], Producer] | None = None,
    ):
        self.backend = driver.backend
        self._unsupported = driver.unsupported
        self.streams = tuple(streams)
        self.options = options
        self._source = source
        self._tracker = Tracker(
            options.auto_commit, options.auto_commit_delay, per_entry=source.per_entry
        )
        self._commits = Committer(source, self._tracker, options, stored, self._fail_late)
        self._again = Redelivery(
            self._tracker, options, driver.unsupported, dead_letters, self._returned
        )
        self._tracked = options.mode is not Mode.REAL_TIME or self._tracker.by_user
        on_demand = options.auto_commit is AutoCommit.IMMEDIATE
        self._pump = Pump(source, options.prefetch, on_demand=on_demand)
        self._queue = self._pump.queue
        self._assigned: set[ShardKey] = set()
        self._opened = self._closing = self._closed = False
        self._late_error: Exception | None = None
        self._iterator: weakref.ref[_Iterator] | None = None
        self._moving: asyncio.Task[None] | None = None
        self._closer: asyncio.Task[None] | None = None
        self._holders: weakref.WeakSet[asyncio.Task[object]] = weakref.WeakSet()
        self._progressed = asyncio.Event()

    # ---- state

    @property
    def state(self) -> ConsumerState:
        """Where in its life the consumer is."""
        if self._closed or self._closing:
            return ConsumerState.CLOSED
        if not self._opened:
            return ConsumerState.NEW
        if self._moving is not None:
            return ConsumerState.SEEKING
        if self._pump.end is not None and not self._more:
            ended = isinstance(self._pump.end, StreamEnded)
            return ConsumerState.ENDED if ended else ConsumerState.FAILED
        iterating = self._iterator is not None and self._iterator() is not None
        return ConsumerState.ITERATING if iterating else ConsumerState.READY

    @property
    def native(self) -> object:
        """The driver's object."""
        return self._source.native

    @property
    def group(self) -> str | None:
        """The group this consumer is in now."""
        return self._source.group

    @property
    def dropped_acks(self) -> int:
        """Acknowledgements ignored: repeated, unknown, or of a shard that was revoked."""
        return self._tracker.dropped_acks

    @property
    def _more(self) -> bool:
        return bool(self._queue) or self._again.pending

    # ---- life

    async def __aenter__(self) -> Self:
        try:
            await self._source.open(self)
        except BaseException:
            self._closed = True
            await self._source.close()
            raise
        self._opened = True
        self._pump.start()
        self._commits.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose(drain=kind is None)

    async def aclose(self, *, drain: bool = True) -> None:
        """Stop fetching, let work in flight finish, flush acks (not under DISABLED), let go."""
        if self._closer is None:
            if not self._opened or self._closed:
                self._closed = True
                return
            me = asyncio.current_task()
            self._closer = asyncio.get_running_loop().create_task(self._close(me, drain=drain))
        await asyncio.shield(self._closer)

    async def _close(self, caller: asyncio.Task[object] | None, *, drain: bool) -> None:
        self._closing = True
        self._pump.arrived.set()
        if self._moving is not None:
            await asyncio.wait([self._moving])
        unread = await self._pump.stop()
        self._again.discard(None)
        try:
            if drain and self._worth_waiting(caller):
                await self._settled(None, self.options.drain_timeout)
            await self._again.settle()
            await self._commits.stop()
            if self._commits.automatic:
                self._tracker.ripen(time.monotonic(), moved_past=True)
                await self._commits.now()
            await self._source.give_back(unread)
            await self._source.release(self._tracker.unsettled())
        finally:
            self._closed = True
            await self._source.close()
            await self._again.close()
        self._raise_late()

    def _worth_waiting(self, caller: asyncio.Task[object] | None) -> bool:
        """Whether someone else than the closing task can still finish work."""
        if not self._tracked or not self._tracker.in_flight():
            return False
        if self.options.auto_commit is AutoCommit.ROLLING:
            return True
        return any(task is not caller and not task.done() for task in self._holders)

    # ---- reading

    def __aiter__(self) -> _Iterator:
        self._check_reading()
        iterator = _Iterator(self)
        self._iterator = weakref.ref(iterator)
        return iterator

    async def next(self, timeout: float | None = None) -> Message:  # noqa: ASYNC109
        """The next message; `TimeoutError` after `timeout` seconds, `StreamEnded` at the end."""
        self._check_reading()
        return (await self._take(1, timeout))[0]

    async def batch(self, max_messages: int, timeout: float) -> list[Message]:  # noqa: ASYNC109
        """What is there, at most `max_messages`; waits for the first, and an empty list after."""
        self._check_reading()
        try:
            return await self._take(max_messages, timeout)
        except TimeoutError:
            return []

    async def _take(self, limit: int, wait: float | None) -> list[Message]:
        if self._tracked:
            self._tracker.move_on()
            self._noticed()
        self._check_open()
        self._raise_late()
        if not (self._queue or self._again.ready) or self._moving is not None:
            await self._wait(limit, wait)
        if self._again.ready:
            taken = [self._again.ready.popleft()]
            self._tracker.redeliver(taken[0])
        else:
            taken = self._pump.pop(limit)
            if self._tracked:
                self._tracker.deliver(taken, time.monotonic())
        if self._tracked:
            task = asyncio.current_task()
            if task is not None:
                self._holders.add(task)
        return taken

    async def _wait(self, limit: int, wait: float | None) -> None:
        """Until a message can be taken without waiting. Takes none, so cancelling loses none."""
        next_policy = self.options.auto_commit is AutoCommit.NEXT and self._tracked
        if self._pump.waiting and next_policy:
            raise ConfigError(
                "NEXT cannot tell which of several readers is done; use auto_commit=ROLLING and ack"
            )
        self._pump.waiting += 1
        try:
            async with asyncio.timeout(wait):
                while True:
                    if self._moving is not None:
                        await asyncio.wait([self._moving])
                    if self._queue or self._again.ready:
                        return
                    self._check_open()
                    if self._pump.end is not None and not self._more:
                        raise self._pump.end
                    self._raise_late()
                    self._pump.demand(limit)
                    await self._pump.arrived.wait()
        finally:
            self._pump.waiting -= 1

    # ---- acknowledging

    def ack(self, message: Message | MessageId) -> None:
        """This message is done. Never fails on I/O; repeats are ignored."""
        id_ = self._by_user(message, "ack")
        if not self._tracker.ack(id_):
            _log.debug("ignored an acknowledgement that is repeated, unknown or revoked: %s", id_)
        self._noticed()

    def nack(self, message: Message | MessageId, *, delay: float = 0) -> None:
        """Deliver this message again after `delay` seconds; the position is held back."""
        id_ = self._by_user(message, "nack")
        held = self._tracker.take_back(id_)
        if held is None:
            _log.debug("ignored a nack of a message that is not in hand: %s", id_)
            return
        if self._again.exhausted(held):
            self._again.bury(held)
        elif self._source.redelivers:
            self._tracker.release(id_)
            self._commits.soon()
        else:
            self._again.again(held, delay)

    def positions(self) -> dict[ShardKey, int]:
        """What may be committed now: never past a message that is delivered and not done."""
        self._check_open(draining=True)
        return self._tracker.positions()

    async def commit(self) -> dict[ShardKey, int]:
        """Make what is done durable; returns the positions that are."""
        self._check_open(draining=True)
        reason = self._commits.refusal
        if reason is not None:
            raise CommitNotAllowed(reason)
        if self._moving is not None:
            await asyncio.wait([self._moving])
        self._raise_late()
        self._tracker.ripen(time.monotonic())
        return await self._commits.now()

    def _noticed(self) -> None:
        """Something is done: a drain may go on, a commit by count may be due."""
        self._progressed.set()
        self._commits.count()

    def _returned(self, error: Exception | None) -> None:
        """A message is ready to be delivered again, or has been buried, or could not be."""
        if error is not None:
            self._late_error = error
        self._noticed()
        self._pump.arrived.set()

    def _fail_late(self, error: Exception) -> None:
        """What failed in the background is told to the next caller."""
        self._late_error = error
        self._pump.arrived.set()

    def _by_user(self, message: Message | MessageId, verb: str) -> MessageId:
        if self._closed:
            raise ConsumerClosed("the consumer is closed")
        if not self._tracker.by_user:
            raise AckNotAllowed(
                f"auto_commit={self.options.auto_commit.name} acknowledges by itself; "
                f"use ROLLING or DISABLED to {verb}"
            )
        return message.id if isinstance(message, Message) else message

    # ---- moving

    def assign(self, stream: str, shard: int) -> None:
        """Read this shard, from the next seek or rewind on."""
        self._check_reading()
        if stream not in self.streams and WILDCARD not in self.streams:
            raise StreamKeyNotFound("subscribe to a stream before assigning it", stream=stream)
        self._assigned.add(ShardKey(stream, shard))

    def unassign(self, stream: str, shard: int) -> None:
        """Do not read this shard, from the next seek or rewind on."""
        self._check_reading()
        key = ShardKey(stream, shard)
        if key not in self._assigned:
            raise ShardNotAssigned(
                "assign a shard before unassigning it", stream=stream, shard=shard
            )
        if len(self._assigned) == 1:
            raise StreamKeyEmpty("the last shard cannot be unassigned", stream=stream, shard=shard)
        self._assigned.remove(key)

    async def seek(self, to: datetime) -> None:
        """Go on with the first message strictly later than `to`. Commits nothing."""
        self._check_moving(Operation.SEEK)
        await self._move(lambda: self._source.seek(to, frozenset(self._assigned)))

    async def rewind(self, to: SeqPos) -> None:
        """Go on at `BEGINNING`, `END` or `At(n)`: the first sequence >= n. Commits nothing."""
        self._check_moving(Operation.REWIND)
        await self._move(lambda: self._source.rewind(to, frozenset(self._assigned)))

    async def _move(self, action: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._moved(action))
        self._moving = task
        await asyncio.shield(task)

    async def _moved(self, action: Callable[[], Awaitable[None]]) -> None:
        self._source.interrupt()
        try:
            async with self._pump.io:
                await action()
                self._discard(None)
                self._commits.rewound = True
                self._pump.start()
        finally:
            self._moving = None
            self._pump.arrived.set()

    def _discard(self, shards: Collection[ShardKey] | None) -> None:
        """Forget what is queued, delayed and delivered of these shards (None: all)."""
        self._unqueue(shards)
        self._tracker.forget(shards)

    def _unqueue(self, shards: Collection[ShardKey] | None) -> None:
        self._pump.drop(shards)
        self._again.discard(shards)

    async def revoke(self, shards: Collection[ShardKey], *, lost: bool, within: float) -> None:
        """For sources: see `Host.revoke`."""
        self._unqueue(shards)
        if not lost:
            await self._settled(shards, within)
            if self._commits.automatic:
                await self._commits.now()
        self._discard(shards)

    def commit_soon(self) -> None:
        """For sources: see `Host.commit_soon`."""
        if self._commits.automatic:
            self._commits.soon()

    async def lag(self) -> dict[ShardKey, int | None]:
        """How many messages each shard is behind its end; None where nobody can say."""
        self._check_open()
        refuse(self.backend, self._unsupported, Operation.LAG)
        if self._moving is not None:
            await asyncio.wait([self._moving])
        return await self._source.lag(self._tracker.positions())

    async def _settled(self, shards: Collection[ShardKey] | None, within: float) -> None:
        """Until nothing of these shards is in the user's hands, or the timeout."""
        try:
            async with asyncio.timeout(within):
                while self._tracker.in_flight(shards):
                    self._progressed.clear()
                    await self._progressed.wait()
        except TimeoutError:
            _log.warning("gave up waiting for %d messages", self._tracker.in_flight(shards))

    # ---- guards

    def _check_open(self, *, draining: bool = False) -> None:
        if self._closed or (self._closing and not draining):
            raise ConsumerClosed("the consumer is closed")
        if not self._opened:
            raise ConsumerClosed("enter the consumer first: async with streamer.consumer(...) as c")
        if (
            self._pump.end is not None
            and not isinstance(self._pump.end, StreamEnded)
            and not self._more
        ):
            raise self._pump.end

    def _check_reading(self) -> None:
        if self._closing or self._closed or not self._opened:
            self._check_open()
        if self._iterator is not None and self._iterator() is not None:
            raise ConsumerBusy("a live iterator owns this consumer; leave its loop first")

    def _check_moving(self, operation: Operation) -> None:
        self._check_reading()
        self._check_open()
        refuse(self.backend, self._unsupported, operation)
        if self._moving is not None:
            raise ConsumerBusy("another seek is running")

    def _raise_late(self) -> None:
        if self._late_error is not None:
            error, self._late_error = self._late_error, None
            raise error


class _Iterator:
    """`async for`: while it lives, the consumer is ITERATING."""

    __slots__ = ("__weakref__", "_consumer")

    def __init__(self, consumer: Consumer):
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        consumer = self._consumer
        queue = consumer._queue
        if len(queue) > 1 and not consumer._tracked and consumer._late_error is None:
            return queue.popleft()
        try:
            return (await consumer._take(1, None))[0]
        except StreamEnded:
            consumer._iterator = None
            raise StopAsyncIteration from None
