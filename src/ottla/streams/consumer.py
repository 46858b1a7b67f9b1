"""The consumer, the same on every backend: queue, acknowledgement, commit, moving, closing.

One pump task owns the source and feeds a bounded queue. Users only ever wait for the queue, so
that cancelling them loses nothing; seeks and commits finish in the background when their caller
goes away. Its states are those of `life.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from typing import TYPE_CHECKING, Self

from ottla.callers import current_caller
from ottla.streams import arguments
from ottla.streams.assigned import Assigned
from ottla.streams.base import Operation
from ottla.streams.committer import Committer
from ottla.streams.errors import (
    AckNotAllowed,
    CommitNotAllowed,
    ConfigError,
    ConsumerClosed,
    StreamEnded,
)
from ottla.streams.hands import Hands
from ottla.streams.life import ConsumerState, Life
from ottla.streams.modes import refuse
from ottla.streams.pump import Pump
from ottla.streams.redelivery import Redelivery
from ottla.streams.tracker import Tracker
from ottla.streams.types import AutoCommit, Message, MessageId, Mode, Reset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
    from datetime import datetime
    from types import TracebackType

    from ottla.callers import Caller
    from ottla.streams.base import Driver, Source
    from ottla.streams.positions import StoredPositions
    from ottla.streams.producer import Producer
    from ottla.streams.types import Backend, ConsumerOptions, SeqPos, ShardKey

_log = logging.getLogger("ottla.streams")


class Consumer:
    """Receives messages of one or more streams. `Streamer.consumer` makes it; use `async with`."""

    def __init__(
        self,
        driver: Driver,
        source: Source,
        streams: Sequence[str],
        options: ConsumerOptions,
        *,
        stored: StoredPositions | None = None,
        dead_letters: Callable[[], Producer] | None = None,
    ) -> None:
        self.backend: Backend = driver.backend
        self._unsupported = driver.unsupported
        self.streams: tuple[str, ...] = tuple(streams)
        self.options = options
        self._source = source
        self._tracker = Tracker(
            options.auto_commit, options.auto_commit_delay, per_entry=source.per_entry
        )
        self._again = Redelivery(
            self._tracker, options, driver.unsupported, dead_letters, self._returned
        )
        self._tracked = options.mode is not Mode.REAL_TIME or self._tracker.by_user
        self._by_next = self._tracked and options.auto_commit is AutoCommit.NEXT
        self._immediate = options.auto_commit is AutoCommit.IMMEDIATE
        self._commits = Committer(source, self._tracker, options, stored, self._fail_late)
        settle = self._commits.first if self._immediate else None
        self._pump = Pump(source, options.prefetch, options.prefetch_bytes, settle)
        self._queue = self._pump.queue
        self._life = Life(self._pump, self._again)
        self._hands = Hands(self._tracker, options.auto_commit)
        self._assigned = Assigned(self.streams)
        self._has_delivered = False
        self._closer: asyncio.Task[None] | None = None

    @property
    def state(self) -> ConsumerState:
        """The state of the consumer: new, reading, iterating, closed and so on."""
        return self._life.state

    @property
    def native(self) -> object:
        """The client object of the store's own library, such as librdkafka's consumer."""
        return self._source.native

    @property
    def source(self) -> Source:
        """Internal: the source whose positions a transaction commits."""
        return self._source

    @property
    def group(self) -> str | None:
        """The group this consumer belongs to; None without one, and after a seek."""
        return self._source.group

    @property
    def dropped_acks(self) -> int:
        """How many acknowledgements were ignored: repeated, unknown, or of a revoked shard."""
        return self._tracker.dropped_acks

    # ---- life

    async def __aenter__(self) -> Self:
        self._life.enter()
        try:
            await self._source.open(self)
        except BaseException:
            self._life.closed = True
            await self._source.close()
            raise
        self._life.opened = True
        self._pump.start()
        self._commits.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(drain=kind is None)

    async def close(self, *, drain: bool = True) -> None:
        """Stop reading, wait for acknowledgements, save positions (not with DISABLED), close."""
        if not self._life.closed:
            self._life.home.check()
        if self._closer is None:
            if not self._life.opened or self._life.closed:
                self._life.closed = True
                return
            me = current_caller()
            self._closer = asyncio.get_running_loop().create_task(self._close(me, drain=drain))
        await asyncio.shield(self._closer)

    async def _close(self, caller: Caller | None, *, drain: bool) -> None:
        self._life.closing = True
        self._pump.arrived.set()
        await self._life.moved()
        unread = await self._pump.stop()
        self._again.discard(None)
        try:
            if drain and self._tracked and self._hands.worth_waiting(caller):
                await self._hands.empty(None, self.options.drain_timeout)
            if drain and self._by_next and not self._hands.with_another(caller):
                # No exception, and no other task is reading: the last message is done.
                self._tracker.move_on()
            await self._again.settle()
            await self._commits.stop()
            if self._commits.automatic:
                self._tracker.ripen(time.monotonic(), moved_past=True)
                await self._commits.unasked()
            await self._source.give_back(unread)
            await self._source.release(self._tracker.unsettled())
        finally:
            self._life.closed = True
            await self._source.close()
            await self._again.close()
        self._life.raise_late()

    # ---- reading

    def __aiter__(self) -> AsyncIterator[Message]:
        return _Iterator(self)

    async def next(self, timeout: float | None = None) -> Message:  # noqa: ASYNC109
        """The next message; `TimeoutError` after `timeout` seconds, `StreamEnded` at the end."""
        self._life.check_reading()
        if timeout is not None:
            arguments.seconds("timeout", timeout)
        try:
            return (await self._take(1, timeout))[0]
        except TimeoutError:
            raise TimeoutError(self._nothing(timeout)) from None

    def _nothing(self, seconds: float | None) -> str:
        said = f"no message in {seconds:g} s" if seconds is not None else "no message in time"
        if self._has_delivered or self.options.reset is not Reset.LATEST:
            return said
        return (
            f"{said}: this consumer began at the end (reset=LATEST), where only new messages come; "
            'use ConsumerOptions(reset="earliest") for those that are there already'
        )

    async def batch(self, max_messages: int, timeout: float) -> list[Message]:  # noqa: ASYNC109
        """Up to `max_messages` that have arrived; waits for the first, else the list is empty."""
        self._life.check_reading()
        arguments.whole("max_messages", max_messages, 1)
        arguments.seconds("timeout", timeout)
        try:
            return await self._take(max_messages, timeout)
        except TimeoutError:
            return []

    async def _take(self, limit: int, wait: float | None) -> list[Message]:
        task = None
        if self._tracked:
            task = current_caller()
            self._move_on(task)
            self._noticed()
        self._life.check_open()
        self._life.raise_late()
        if not (self._queue or self._again.ready) or self._life.moving is not None:
            await self._wait(limit, wait)
        if self._again.ready:
            taken = [self._again.ready.popleft()]
            self._tracker.redeliver(taken[0])
        else:
            taken = self._pump.pop(limit)
            self._has_delivered = True
            if self._tracked and not self._immediate:
                self._tracker.deliver(taken, time.monotonic())
        if self._tracked:
            self._hands.taken(task)
        return taken

    def _move_on(self, asking: Caller | None) -> None:
        """With NEXT: the messages delivered to this task before are done.

        Messages of another task are not: it may still be working on them.
        """
        if self._by_next and (
            self._pump.waiting or (self._hands.with_another(asking) and self._tracker.in_flight())
        ):
            raise ConfigError(
                "auto_commit=NEXT is for one reading task: another one holds a message that this "
                "call would mark as done; use auto_commit=ROLLING and ack"
            )
        self._tracker.move_on()

    async def _wait(self, limit: int, wait: float | None) -> None:
        """Until a message can be taken without waiting. Takes none, so cancelling loses none."""
        self._life.home.check()
        self._pump.waiting += 1
        try:
            async with asyncio.timeout(wait):
                while True:
                    await self._life.moved()
                    if self._queue or self._again.ready:
                        return
                    self._life.check_open()
                    if (end := self._life.end) is not None:
                        raise end
                    self._life.raise_late()
                    self._pump.demand(limit)
                    await self._pump.arrived.wait()
        finally:
            self._pump.waiting -= 1

    # ---- acknowledging

    def ack(self, message: Message | MessageId) -> None:
        """Mark a message as done. Does no I/O; repeated acknowledgements are ignored."""
        id_ = self._by_user(message, "ack")
        if not self._tracker.ack(id_):
            _log.debug("ignored an acknowledgement that is repeated, unknown or revoked: %s", id_)
        self._noticed()

    def nack(self, message: Message | MessageId, *, delay: float = 0) -> None:
        """Deliver this message again after `delay` seconds; the position does not pass it."""
        arguments.seconds("delay", delay)
        id_ = self._by_user(message, "nack")
        held = self._tracker.take_back(id_)
        if held is None:
            _log.debug("ignored a nack of a message that is not held: %s", id_)
            return
        if self._again.exhausted(held):
            self._again.bury(held)
        elif self._source.redelivers:
            self._tracker.release(id_)
            self._commits.soon()
        else:
            self._again.again(held, delay)

    def positions(self) -> dict[ShardKey, int]:
        """The positions that `commit` would save: never past a message that is not done."""
        self._life.check_open(draining=True)
        return self._tracker.positions()

    async def commit(self) -> dict[ShardKey, int]:
        """Save the positions of done messages; returns the saved positions.

        With NEXT, messages that were delivered to the calling task count as done.
        """
        self._life.home.check()
        self._life.check_open(draining=True)
        self.check_committing()
        if self._by_next and not self._hands.with_another(current_caller()):
            self._tracker.move_on()
        await self._life.moved()
        self._life.raise_late()
        self._tracker.ripen(time.monotonic())
        return await self._commits.now()

    def check_committing(self) -> None:
        """Internal: raise if this consumer has nowhere to commit to."""
        reason = self._commits.refusal
        if reason is not None:
            raise CommitNotAllowed(reason)

    def transaction_failed(self) -> None:
        """Internal: a transaction failed, so its acknowledgements must not be committed."""
        self._commits.spoiled = True

    def _noticed(self) -> None:
        """Something is done: a drain may go on, a commit by count may be due."""
        self._hands.progressed()
        self._commits.count()

    def _returned(self, error: Exception | None) -> None:
        """A message is ready to be delivered again, or has been buried, or could not be."""
        if error is not None:
            self._fail_late(error)
        self._noticed()
        self._pump.arrived.set()

    def _fail_late(self, error: Exception) -> None:
        self._life.late_error = error
        self._pump.arrived.set()

    def _by_user(self, message: Message | MessageId, verb: str) -> MessageId:
        if self._life.closed:
            raise ConsumerClosed("the consumer is closed")
        if not self._tracker.by_user:
            raise AckNotAllowed(
                f"auto_commit={self.options.auto_commit.name} acknowledges by itself; "
                f"use ROLLING or DISABLED to {verb}"
            )
        return arguments.identity(message)

    # ---- moving

    def assign(self, stream: str, shard: int) -> None:
        """Read this shard after the next seek or rewind."""
        self._life.check_reading()
        refuse(self.backend, self._unsupported, Operation.REWIND)
        arguments.whole("shard", shard, 0)
        self._assigned.add(stream, shard)

    def unassign(self, stream: str, shard: int) -> None:
        """Stop reading this shard after the next seek or rewind."""
        self._life.check_reading()
        refuse(self.backend, self._unsupported, Operation.REWIND)
        arguments.whole("shard", shard, 0)
        self._assigned.remove(stream, shard)

    async def seek(self, to: datetime) -> None:
        """Continue with the first message after this time. Commits nothing."""
        arguments.moment("to", to)
        self._check_moving(Operation.SEEK)
        await self._move(lambda: self._source.seek(to, self._assigned.shards()))

    async def rewind(self, to: SeqPos) -> None:
        """Continue at `BEGINNING`, `END` or `At(n)`, the first sequence >= n. Commits nothing."""
        arguments.place(to)
        self._check_moving(Operation.REWIND)
        await self._move(lambda: self._source.rewind(to, self._assigned.shards()))

    async def _move(self, action: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._moved(action))
        self._life.moving = task
        await asyncio.shield(task)

    async def _moved(self, action: Callable[[], Awaitable[None]]) -> None:
        self._source.interrupt()
        try:
            async with self._pump.io:
                await action()
                self._discard(None)
                self._commits.rewound = True
                self._commits.spoiled = False
                self._pump.start()
        finally:
            self._life.moving = None
            self._pump.arrived.set()

    def _discard(self, shards: Collection[ShardKey] | None) -> None:
        """Drop queued, delayed and delivered messages of these shards (None: all)."""
        self._unqueue(shards)
        self._tracker.forget(shards)

    def _unqueue(self, shards: Collection[ShardKey] | None) -> None:
        self._pump.drop(shards)
        self._again.discard(shards)

    async def revoke(self, shards: Collection[ShardKey], *, lost: bool, within: float) -> None:
        """Internal: see `Host.revoke`."""
        self._unqueue(shards)
        if not lost:
            await self._hands.empty(shards, within)
            if self._commits.automatic:
                await self._commits.now()
        self._discard(shards)

    def commit_soon(self) -> None:
        """Internal: see `Host.commit_soon`."""
        if self._commits.automatic:
            self._commits.soon()

    async def lag(self) -> dict[ShardKey, int | None]:
        """How many messages each shard is behind its end; None if the store cannot tell."""
        self._life.home.check()
        self._life.check_open()
        refuse(self.backend, self._unsupported, Operation.LAG)
        await self._life.moved()
        return await self._source.lag(self._tracker.positions())

    def _check_moving(self, operation: Operation) -> None:
        self._life.home.check()
        self._life.check_moving()
        refuse(self.backend, self._unsupported, operation)


class _Iterator:
    """`async for`: while it lives, the consumer is ITERATING.

    A cancelled wait ends that too, because the traceback keeps the iterator alive after its loop.
    Asked again (`wait_for(anext(it))`), it owns the consumer again.
    """

    __slots__ = ("__weakref__", "_consumer")

    def __init__(self, consumer: Consumer):
        self._consumer = consumer
        self._claim()

    def _claim(self) -> None:
        life = self._consumer._life
        life.check_reading()
        life.iterator = weakref.ref(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        consumer = self._consumer
        queue = consumer._queue
        if len(queue) > 1 and not consumer._tracked and consumer._life.late_error is None:
            return queue.popleft()
        life = consumer._life
        if life.iterator is None or life.iterator() is not self:
            self._claim()
        try:
            return (await consumer._take(1, None))[0]
        except StreamEnded:
            life.iterator = None
            raise StopAsyncIteration from None
        except asyncio.CancelledError:
            life.iterator = None
            raise
