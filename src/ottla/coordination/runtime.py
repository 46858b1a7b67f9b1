"""Drives machines against a log: load, decide, append, answer after commit.

The only module of this package that uses an event loop. Rules:

- A partition is loaded by replay before it decides anything; until then `CoordinatorLoading`, and
  `NotCoordinator` for a partition that is not hosted here.
- All decisions during an append, or within one turn of the loop, go into the next append: one
  batch, one commit, up to `MAX_BATCH_BYTES`. A decision is never split. Records of a transaction,
  and each marker, are a batch of their own in the same append.
- A response is sent when every record that it may depend on is committed; this includes responses
  to reads.
- A request in a transaction is refused by the log (`RefusedByLog`), or decided. The log can only
  tell after all earlier decisions for that producer are written, so such requests of a producer
  wait for each other.
- Effects are emitted with the responses; `perform` of the runtime starts them.
- After a failed append, or an exception of the machine, the state in memory is invalid: every
  waiting request fails with `NotCoordinator` (clients look the coordinator up again), and the
  partition is loaded again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from ottla.coordination.machine import Batch, Marker, TransactionalMachine
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from ottla.clock import Clock, Now
    from ottla.coordination.machine import Decision, Effect, Machine, Reply, Token, Transaction

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES = 512 * 1024
"""Half of Kafka's usual limit for a batch, so that the decision that crosses it still fits."""


class CoordinatorLog(Protocol):
    """The runtime's interface to the internal topic."""

    def check(self, partition: int, transaction: Transaction) -> None:
        """Raise `RefusedByLog` for a fenced producer or coordinator."""

    def append(self, partition: int, batches: Sequence[Batch], wall_ms: int) -> Awaitable[object]:
        """Write the batches in order, stamped `wall_ms`; returns when all are committed."""

    def replay(self, partition: int) -> AsyncIterator[Sequence[Batch]]:
        """Yield all batches of the partition in order, some at a time."""


class CoordinatorError(OttlaError):
    """This coordinator cannot answer; `error_code` is Kafka's code for the reason."""

    error_code: int


class CoordinatorLoading(CoordinatorError):
    """The partition is being replayed; the client retries."""

    error_code = 14


class RefusedByLog(CoordinatorError):
    """The log refused the request; nothing was decided."""

    def __init__(self, error_code: int, reason: str) -> None:
        super().__init__(reason)
        self.error_code = error_code


class NotCoordinator(CoordinatorError):
    """The partition is not hosted here, or was just lost; the client looks it up again."""

    error_code = 16


def _no_effects(effect: Effect) -> None:
    raise TypeError(f"nobody performs {effect!r}")


class _Decided(NamedTuple, Generic[RecordT, ResponseT]):
    """A decision that waits for its append."""

    decision: Decision[RecordT, ResponseT]
    transaction: Transaction | None

    @property
    def needs_append(self) -> bool:
        """Whether there is anything to append."""
        return bool(self.decision.records) or isinstance(self.transaction, Marker)


class _Partition(Generic[RequestT, RecordT, ResponseT]):
    """One hosted partition: its machine, the requests that wait, and the next batch."""

    def __init__(
        self,
        index: int,
        machine: Machine[RequestT, RecordT, ResponseT],
        log: CoordinatorLog,
        clock: Clock,
        on_lost: Callable[[int], None],
        perform: Callable[[Effect], None],
    ) -> None:
        self.index = index
        self._machine = machine
        self._log = log
        self._clock = clock
        self._on_lost = on_lost
        self._perform = perform
        self._tokens = itertools.count()
        self._waiting: dict[Token, asyncio.Future[ResponseT]] = {}
        self._decided: deque[_Decided[RecordT, ResponseT]] = deque()
        self._unwritten: dict[int, asyncio.Future[None]] = {}  # by producer id, until appended
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0
        self._closed = False
        self.loading = True

    async def load(self) -> None:
        async for batches in self._log.replay(self.index):
            for batch in batches:
                self._replay(batch)
        self._machine.loaded(self._clock.now())
        self.loading = False
        if not self._closed:
            self._arm()

    def _replay(self, batch: Batch) -> None:
        machine = self._machine
        records, transaction = batch
        if transaction is None:
            for key, value in records:
                machine.replay(key, value)
        elif not isinstance(machine, TransactionalMachine):
            return
        elif isinstance(transaction, Marker):
            machine.replay_marker(transaction)
        else:
            for key, value in records:
                machine.replay_transactional(transaction.producer_id, key, value)

    def submit(
        self, request: RequestT, transaction: Transaction | None = None
    ) -> asyncio.Future[ResponseT]:
        token = next(self._tokens)
        future: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        self._run(lambda now: self._machine.decide(request, token, now), transaction)
        return future

    async def submit_in(
        self, transaction: Transaction, request: RequestT, admit: Callable[[], None]
    ) -> ResponseT:
        while (unwritten := self._unwritten.get(transaction.producer_id)) is not None:
            await asyncio.wait([unwritten])
        if self._closed:
            raise NotCoordinator
        admit()
        self._log.check(self.index, transaction)
        return await self.submit(request, transaction)

    def close(self) -> asyncio.Task[None] | None:
        """Stop; waiting requests fail with NOT_COORDINATOR.

        Returns the running append: a reload must wait for its end, or it could miss records.
        """
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._decided.clear()
        self._let_go(tuple(self._unwritten))
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(NotCoordinator())
        return self._writer

    def _run(
        self,
        step: Callable[[Now], Decision[RecordT, ResponseT]],
        transaction: Transaction | None = None,
    ) -> None:
        try:
            decision = step(self._clock.now())
        except Exception:
            logger.exception("coordinator partition %d failed to handle a request", self.index)
            self._on_lost(self.index)
        else:
            self._take(_Decided(decision, transaction))

    def _take(self, decided: _Decided[RecordT, ResponseT]) -> None:
        decision, transaction = decided
        if self._writer is None and not decided.needs_append:
            self._answer(decision.replies, decision.effects)
        else:
            self._decided.append(decided)
            if transaction is not None and decided.needs_append:
                written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._unwritten[transaction.producer_id] = written
            if self._writer is None:
                self._writer = asyncio.create_task(self._write())
        self._arm()

    async def _write(self) -> None:
        """Append until nothing is left; each round takes everything that arrived since."""
        try:
            while self._decided:
                batches, replies, effects = self._next_append()
                if batches:
                    await self._log.append(self.index, batches, self._clock.wall_ms())
                    self._let_go([b.transaction.producer_id for b in batches if b.transaction])
                self._answer(replies, effects)
        except Exception as error:
            if self._closed:
                # No request waits for this append: the partition moved, or its topic was deleted.
                logger.info("coordinator partition %d was given up: %r", self.index, error)
            else:
                logger.exception("append to coordinator partition %d failed", self.index)
                self._on_lost(self.index)
        finally:
            self._writer = None

    def _next_append(self) -> tuple[list[Batch], list[Reply[ResponseT]], list[Effect]]:
        batches: list[Batch] = []
        plain: list[tuple[bytes, bytes | None]] | None = None  # the last batch, while it can grow
        replies: list[Reply[ResponseT]] = []
        effects: list[Effect] = []
        size = 0
        while self._decided and size < MAX_BATCH_BYTES:
            decided = self._decided.popleft()
            decision, transaction = decided
            encoded = [self._machine.encode(record) for record in decision.records]
            size += sum(len(key) + len(value or b"") for key, value in encoded)
            replies += decision.replies
            effects += decision.effects
            if not decided.needs_append:
                continue
            if transaction is not None:
                batches.append(Batch(encoded, transaction))
                plain = None
            elif plain is None:
                batches.append(Batch(encoded))
                plain = encoded
            else:
                plain += encoded
        return batches, replies, effects

    def _let_go(self, producer_ids: Sequence[int]) -> None:
        """Allow new requests of these producers: their records are written or lost."""
        for producer_id in producer_ids:
            if (written := self._unwritten.pop(producer_id, None)) is not None:
                written.set_result(None)

    def _answer(self, replies: Sequence[Reply[ResponseT]], effects: Sequence[Effect]) -> None:
        for token, response in replies:
            future = self._waiting.pop(token, None)
            if future is not None and not future.done():
                future.set_result(response)
        for effect in effects:
            self._perform(effect)

    def _arm(self) -> None:
        """Wake up for the next deadline; if it moved later, sleep again."""
        deadline = self._machine.next_deadline()
        if deadline is None or (self._timer is not None and self._armed_for <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0, deadline - self._clock.monotonic_ms()) / 1000
        self._armed_for = deadline
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._run(self._machine.tick)


class CoordinatorRuntime(Generic[RequestT, RecordT, ResponseT]):
    """The hosted partitions of one internal topic.

    `perform` must not block: it starts the work of an effect and submits the outcome later.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        machine_for: Callable[[int], Machine[RequestT, RecordT, ResponseT]],
        clock: Clock,
        perform: Callable[[Effect], None] = _no_effects,
    ) -> None:
        self._log = log
        self._perform = perform
        self._machine_for = machine_for
        self._clock = clock
        self._partitions: dict[int, _Partition[RequestT, RecordT, ResponseT]] = {}
        self._reloads: set[asyncio.Task[None]] = set()
        self._draining: dict[int, asyncio.Task[None]] = {}

    async def load(self, index: int) -> None:
        """Host a partition: replay it, then serve it. After a failed replay it is not hosted."""
        self.unload(index)
        await self._load(self._host(index))

    def unload(self, index: int) -> None:
        """Stop hosting a partition; waiting requests get `NotCoordinator`."""
        partition = self._partitions.pop(index, None)
        if partition is not None and (writer := partition.close()) is not None:
            self._draining[index] = writer

    def is_hosted(self, index: int) -> bool:
        """Whether a partition is loaded, or being loaded."""
        return index in self._partitions

    def submit(self, index: int, request: RequestT) -> asyncio.Future[ResponseT]:
        """Decide at once; the future ends when the response may be sent."""
        return self._loaded(index).submit(request)

    async def submit_in(
        self,
        index: int,
        transaction: Transaction,
        request: RequestT,
        admit: Callable[[], None] = lambda: None,
    ) -> ResponseT:
        """The response to a request in a transaction, or to its end; `RefusedByLog` if fenced.

        `admit` is called in the same turn as the decision and may refuse the request, too.
        """
        return await self._loaded(index).submit_in(transaction, request, admit)

    async def close(self) -> None:
        """Stop hosting all partitions; returns when no append is running."""
        for task in self._reloads:
            task.cancel()
        for index in tuple(self._partitions):
            self.unload(index)
        for index in tuple(self._draining):
            await self._drained(index)

    def _loaded(self, index: int) -> _Partition[RequestT, RecordT, ResponseT]:
        partition = self._partitions.get(index)
        if partition is None:
            raise NotCoordinator
        if partition.loading:
            raise CoordinatorLoading
        return partition

    def _host(self, index: int) -> _Partition[RequestT, RecordT, ResponseT]:
        partition = _Partition(
            index, self._machine_for(index), self._log, self._clock, self._reload, self._perform
        )
        self._partitions[index] = partition
        return partition

    async def _load(self, partition: _Partition[RequestT, RecordT, ResponseT]) -> None:
        try:
            await self._drained(partition.index)
            await partition.load()
        except BaseException:
            if self._partitions.get(partition.index) is partition:
                del self._partitions[partition.index]
            raise

    async def _drained(self, index: int) -> None:
        """Wait for the last append of an earlier hosting of the partition."""
        while (writer := self._draining.get(index)) is not None:
            await asyncio.wait([writer])  # if the caller is cancelled, the next one waits
            if self._draining.get(index) is writer:
                del self._draining[index]

    def _reload(self, index: int) -> None:
        self.unload(index)
        task = asyncio.create_task(self._load(self._host(index)))
        self._reloads.add(task)
        task.add_done_callback(self._reload_done)

    def _reload_done(self, task: asyncio.Task[None]) -> None:
        self._reloads.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("coordinator partition could not be reloaded", exc_info=error)
