"""The I/O of the producer: connects, sends, finds leaders, wakes waiting callers.

- `_pump` is the only place that decides to send. It runs once per turn of the event loop in which
  something changed, so that records sent in one turn leave together.
- A broker gets at most `MAX_IN_FLIGHT` requests at a time, each with batches of many partitions,
  on one connection; until that is open, no batch is taken for the broker. Nor is one while the
  broker wants to be sent nothing, because of a quota.
- In a transaction the `Gate` decides to which partitions batches may be sent, and is told of every
  failure.
- Responses are handled as they are read. Each connection attempt and each look-up (also of a
  producer id) is a task of its own; `close` ends all of them.
- An unexpected error fails only the batches it concerns, as a `ClientFault`. If these are unknown,
  all batches that were not sent fail, so that no caller waits endlessly.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ottla.client.cluster.cluster import METADATA_MAX_AGE
from ottla.client.cluster.connection import SOFTWARE_VERSION
from ottla.client.cluster.retry import MISSING_TOPIC_ATTEMPTS, RETRY, Stale, forgets
from ottla.client.cluster.view import NO_LEADER, TopicPartition
from ottla.client.errors import (
    REFUSED,
    ClientClosed,
    ClientError,
    ClientFault,
    HeldByQuota,
    KafkaError,
    RequestTimedOut,
    afresh,
    check,
)
from ottla.client.producer.accumulator import MAX_IN_FLIGHT, Accumulator, Limits
from ottla.client.producer.batches import Batch, Delivered, Identity, Outcome, Settled
from ottla.client.producer.types import NO_OFFSET, ProducerSettings
from ottla.client.producer.wire import PRODUCE, outcomes, produce_request, produce_versions
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import API_VERSIONS
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.connection import Connection

logger = logging.getLogger(__name__)

HELD = HeldByQuota(
    "the broker told this producer to wait, because it is over a quota; send less, or raise the "
    "quota with ottla quota set"
)

Waiter = asyncio.Future[Delivered]


class Gate(Protocol):
    """A transaction, as far as the sender has to know of it."""

    def ticket(self) -> int:
        """The number of the open transaction, for `check`; raises if none is open."""
        ...

    def check(self, ticket: int) -> None:
        """Raise unless the transaction of the ticket still takes records."""
        ...

    def admit(self, ready: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that may be sent to; `changed` is called when the others may be, too."""
        ...

    def failed(self, error: ClientError) -> ClientError:
        """The error for callers whose records are not written."""
        ...


class _Node:
    """A broker as the sender sees it."""

    __slots__ = ("busy", "connecting", "connection")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.connecting = False
        self.busy = 0


class Sender:
    """Owns the accumulator, and every task of a producer."""

    def __init__(
        self, client: Client, settings: ProducerSettings, random: Callable[[], float]
    ) -> None:
        self.records: Accumulator[Waiter] = Accumulator(
            Limits(
                batch_size=min(settings.batch_size, settings.max_request_size),
                linger=settings.linger_ms / 1000,
                buffer_memory=settings.buffer_memory,
                max_request_size=settings.max_request_size,
                delivery_timeout=settings.delivery_timeout_ms / 1000,
                idempotent=settings.enable_idempotence,
                transactional=settings.transactional_id is not None,
                codec=settings.codec,
                level=settings.compression_level,
            ),
            random,
        )
        self.closed = False
        self.gate: Gate | None = None
        self._client = client
        self._settings = settings
        self._random = random
        self._acks = int(settings.required_acks)
        self._versions = produce_versions(
            settings.codec, transactional=settings.transactional_id is not None
        )
        self._nodes: dict[int, _Node] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._for_room: deque[tuple[asyncio.Future[None], int]] = deque()
        self._flushes = 0
        self._pumping: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looking_up = False
        self._look_again = math.inf
        self._identifying = False

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    # What the producer calls.

    async def reserve(self, size: int) -> None:
        """Wait for memory, in the order of asking. `size` is at most all there is."""
        self.refuse()
        if not self._for_room and self.records.reserve(size):
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._for_room.append((turn, size))
        self.changed()
        patience = self._settings.max_block_ms / 1000
        try:
            async with asyncio.timeout(patience):
                await turn
        except TimeoutError:
            if _is_granted(turn):
                return
            self._give_room()
            raise RequestTimedOut(
                f"no room for {size} bytes in {patience:g} s: buffer_memory "
                f"({self._settings.buffer_memory}) is full; see that the broker is up, send fewer "
                "records at once, or raise buffer_memory or max_block_ms"
            ) from None
        except asyncio.CancelledError:
            if _is_granted(turn):
                self.release(size)
            else:
                self._give_room()
            raise

    def release(self, size: int) -> None:
        """Give back memory that was reserved and is not needed."""
        self.records.release(size)
        self._give_room()

    def waiter(self, batch: Batch[Waiter]) -> Waiter:
        """A future for the outcome of a batch; cancelling it only stops waiting."""
        waiter: Waiter = self._loop.create_future()
        batch.tokens.append(waiter)
        return waiter

    def changed(self) -> None:
        """Something may be there to send: look once this turn of the loop is over."""
        if self._pumping is None and not self.closed:
            self._pumping = self._loop.call_soon(self._pump)

    def ticket(self) -> int:
        """Taken at the start of a call; `check` it before records are handed over."""
        self.refuse()
        return 0 if self.gate is None else self.gate.ticket()

    def check(self, ticket: int) -> None:
        """Raise if the producer was closed, or the transaction ended, since the ticket was got."""
        self.refuse()
        if self.gate is not None:
            self.gate.check(ticket)

    def refuse(self) -> None:
        """Raise if the producer is closed, or if this is not its event loop."""
        self._client.check_loop()
        if self.closed:
            raise ClientClosed("the producer is closed; make a new one")

    async def flush(self) -> None:
        """Wait until all accepted records are acknowledged or have failed."""
        waiters = [self.waiter(batch) for batch in self.records if not batch.given_up]
        self._flushes += 1
        self.changed()
        try:
            await asyncio.gather(*waiters, return_exceptions=True)
        finally:
            self._flushes -= 1

    def drop(self, error: ClientError) -> None:
        """Fail unsent batches, and stop waiting for sent ones."""
        self._tell(self.records.abandon(error))

    async def drain(self) -> None:
        """Wait until nothing is under way, after `drop`."""
        waiters = [self.waiter(batch) for batch in self.records]
        await asyncio.gather(*waiters, return_exceptions=True)

    async def close(self) -> None:
        """Fail open batches and end all tasks."""
        self.closed = True
        self.drop(ClientClosed("the producer was closed before the record was acknowledged"))
        for turn, _ in self._for_room:
            if not turn.done():
                turn.set_exception(
                    ClientClosed("the producer was closed while its memory was full")
                )
        self._for_room.clear()
        for handle in (self._timer, self._pumping):
            if handle is not None:
                handle.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Sending.

    def _pump(self) -> None:
        self._pumping = None
        try:
            self._send_ready()
        except Exception as error:
            fault = ClientFault.of("send records", error)
            logger.exception("%s; all records that have not left fail", fault)
            self.drop(fault)

    def _send_ready(self) -> None:
        now = self._loop.time()
        self._keep_fresh(now)
        self._tell(self.records.expire(now))
        hurry = self._flushes > 0 or bool(self._for_room)
        ready, wake = self.records.ready(now, hurry=hurry)
        if self.gate is not None:
            ready = self.gate.admit(ready)
        for number, partitions in self._by_leader(ready).items():
            node = self._nodes.setdefault(number, _Node())
            if not self._is_connected(number, node):
                self._connect(number, node, partitions)
                continue
            assert node.connection is not None
            if node.connection.is_muted:
                self.records.blame(partitions, HELD)
                wake = min(wake, node.connection.muted_until)
                continue
            while node.busy < MAX_IN_FLIGHT:
                batches, spoiled = self.records.take(partitions, number, now, hurry=hurry)
                self._tell(spoiled)
                if not batches:
                    break
                self._produce(node, node.connection, batches)
        if self.records.wants_identity and not self._identifying:
            self._identifying = True
            self._start(self._identify())
        self._wake_at(wake)

    def _by_leader(self, ready: Sequence[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        topics = self._client.view.topics
        for partition in ready:
            topic = topics.get(partition.topic)
            leader = NO_LEADER if topic is None else topic.leader_of(partition.partition)
            if leader == NO_LEADER:
                self._look_up()
            else:
                found.setdefault(leader, []).append(partition)
        return found

    def _is_connected(self, number: int, node: _Node) -> bool:
        connection = node.connection
        if connection is None or not connection.is_open:
            return False
        broker = self._client.view.brokers.get(number)
        return broker is None or broker.address == connection.address

    def _wake_at(self, when: float) -> None:
        """A timer that rings early does no harm, so one that is set is kept if it will do."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = None if when == math.inf else self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._pump()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the producer goes on after an error", exc_info=error)
            self.changed()

    def _produce(self, node: _Node, connection: Connection, batches: list[Batch[Waiter]]) -> None:
        node.busy += 1
        then = partial(self._produced, node, batches)
        within = self._client.request_timeout
        try:
            version = connection.pick_version(PRODUCE, *self._versions)
            request = produce_request(
                batches,
                self._acks,
                int(self._settings.request_timeout_ms),
                self._settings.transactional_id,
            )
            if self._acks:
                connection.ask(request, version, then, within)
            else:
                # Nothing would bound the memory of records that get no answer, so something that
                # gets one follows them: it says that they were read.
                fence = ApiVersionsRequest("ottla", SOFTWARE_VERSION)
                fence_version = connection.pick_version(API_VERSIONS)
                connection.send_unanswered(request, version)
                connection.ask(fence, fence_version, then, within)
        except ClientError as error:
            then(error)
        except Exception as error:
            if len(batches) > 1:
                # Nothing was written. Alone, the one that cannot be sent fails alone.
                node.busy -= 1
                for batch in batches:
                    self._produce(node, connection, [batch])
                return
            logger.exception("cannot send records for %s", batches[0].partition)
            then(ClientFault.of(f"send to {batches[0].partition}", error))

    def _produced(self, node: _Node, batches: list[Batch[Waiter]], answer: Any) -> None:
        """Take in an answer, or why there is none, as it comes from the connection."""
        node.busy -= 1
        if self.closed:
            return
        now = self._loop.time()
        settled = []
        try:
            found = self._outcomes(batches, answer)
        except Exception as error:
            logger.exception("cannot make sense of an answer to Produce")
            found = [ClientFault.of("read the answer to Produce", error)] * len(batches)
        for batch, outcome in zip(batches, found, strict=True):
            done, stale = self.records.settle(batch, outcome, now)
            if done is not None:
                settled.append(done)
            if stale:
                self._look_up()
        self._tell(settled)
        self.changed()

    def _outcomes(self, batches: list[Batch[Waiter]], answer: Any) -> Sequence[Outcome]:
        if isinstance(answer, ClientError):
            return [answer] * len(batches)
        if self._acks == 0:
            return [Delivered(NO_OFFSET, NO_OFFSET)] * len(batches)
        return outcomes(batches, answer)

    # Finding brokers and the producer id.

    def _connect(self, number: int, node: _Node, partitions: Sequence[TopicPartition]) -> None:
        if not node.connecting:
            node.connecting = True
            self._start(self._connected(number, node, partitions))

    async def _connected(
        self, number: int, node: _Node, partitions: Sequence[TopicPartition]
    ) -> None:
        try:
            node.connection = await self._client.connection_to(number)
        except REFUSED as error:
            # The broker will not let us in, however often we come.
            self._tell(self.records.abandon(error, lambda one: one in partitions))
        except ClientError as error:
            self.records.blame(partitions, error)
            self._look_up()
            await asyncio.sleep(RETRY.delay(1, self._random()))
        finally:
            node.connecting = False
        self.changed()

    def _keep_fresh(self, now: float) -> None:
        """Topics grow and leaders move without a failure that would tell."""
        if self._look_again == math.inf:
            self._look_again = now + METADATA_MAX_AGE
        elif self._look_again <= now:
            self._look_again = now + METADATA_MAX_AGE
            self._look_up()

    def _look_up(self) -> None:
        if not self._looking_up:
            self._looking_up = True
            self._client.forget(Stale.METADATA)
            self._start(self._looked_up())

    async def _looked_up(self) -> None:
        """Refresh the leaders; records of deleted topics fail."""
        names = {batch.partition.topic for batch in self.records}
        try:
            await self._client.retry(lambda: self._client.topics(names))
        except REFUSED as error:
            self._blame_or_abandon(error, names)
        except ClientError as error:
            self._blame_or_abandon(error, self._without(names, error))
        finally:
            # A leader may still be missing: the next look is not to follow at once.
            self._loop.call_later(RETRY.delay(1, self._random()), self._looked)

    def _looked(self) -> None:
        self._looking_up = False
        self.changed()

    def _without(self, names: set[str], error: ClientError) -> set[str]:
        """The topics that this error is about."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.NONE
        return {name for name in names if self._client.view.missing.get(name) == code}

    def _blame_or_abandon(self, error: ClientError, topics: set[str]) -> None:
        """What no retry can help with fails the records of these topics."""
        if forgets(error, MISSING_TOPIC_ATTEMPTS, repeatable=True) is None:
            self._tell(self.records.abandon(error, lambda one: one.topic in topics))
        else:
            self.records.blame([batch.partition for batch in self.records], error)

    async def _identify(self) -> None:
        """Get a fresh producer id, for all who wait."""

        async def attempt() -> InitProducerIdResponse:
            request = InitProducerIdRequest(transactional_id=None)
            answer: InitProducerIdResponse = await self._client.send(request, to="any")
            check(answer.error_code, "get a producer id (this needs the right to write to a topic)")
            return answer

        try:
            answer = await self._client.retry(attempt)
        except ClientError as error:
            self.records.wants_identity = False
            self._blame_or_abandon(error, {batch.partition.topic for batch in self.records})
        else:
            self.records.identified(Identity(answer.producer_id, answer.producer_epoch))
        finally:
            self._identifying = False
        self.changed()

    # Telling.

    def _tell(self, settled: Sequence[Settled[Waiter]]) -> None:
        for tokens, outcome in settled:
            if self.gate is not None and not isinstance(outcome, Delivered):
                outcome = self.gate.failed(outcome)  # noqa: PLW2901  # the same, in its words
            for waiter in tokens:
                if waiter.done():
                    continue
                if isinstance(outcome, Delivered):
                    waiter.set_result(outcome)
                else:
                    waiter.set_exception(afresh(outcome))
        if settled:
            self._give_room()

    def _give_room(self) -> None:
        while self._for_room:
            turn, size = self._for_room[0]
            if not turn.done():
                if not self.records.reserve(size):
                    return
                turn.set_result(None)
            self._for_room.popleft()


def _is_granted(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None
