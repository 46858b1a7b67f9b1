"""Records on their way to the brokers: which batch goes next, in which order, under which sequence.

No sockets, no clock: time comes in as an argument, `Batch`es and `Settled` values go out. Rules:

- A partition's batches leave in the order they were made. The last one takes records until it is
  full; it leaves when it is full, when `linger` has passed, or in a hurry (flush, memory is short).
- With idempotence, up to `MAX_IN_FLIGHT` batches of a partition are in flight, all to one broker;
  that is how many a broker remembers. Until the first batch is written it is only one, because a
  broker that does not know the producer (any more) accepts any batch first. It is also one without
  idempotence, or a later batch could overtake a retry.
- A retried batch is sent alone, when nothing else of its partition is in flight, and no new batch
  is sent before it is settled. So order survives every temporary failure.
- A batch gets its producer id, epoch and sequence when it is first sent. Retries keep them as long
  as the batch may have been written, so that the broker recognises it.
- If the broker refuses the sequence of the oldest batch (OUT_OF_ORDER_SEQUENCE_NUMBER and the
  like), it has written neither that batch nor any after it. They get a new producer id, and
  sequences start at 0. (Kafka gives an idempotent producer a new id, not a new epoch.)
- In a transaction the caller sets the identity (`restart`) and it is never replaced: if the
  sequence of the oldest batch is refused, the batch and the transaction have failed.
- A batch that is not acknowledged by its deadline fails. If it is in flight, it keeps its place
  until the response arrives, which is then ignored.
- Memory is reserved before records come in, and released when their batch is settled.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.client.cluster.retry import RETRY, Stale, forgets
from ottla.client.errors import ClientError, ClientFault, KafkaError, RequestTimedOut
from ottla.client.producer.batches import Batch, Delivered, Identity, Outcome, Settled
from ottla.wire.batch import MAX_SEQUENCE
from ottla.wire.builder import BatchBuilder
from ottla.wire.compression import Codec
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.client.cluster.view import TopicPartition
    from ottla.client.producer.types import Outgoing
    from ottla.wire.writers import Part

Token = TypeVar("Token")

MAX_IN_FLIGHT: Final = 5
MISPLACED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""The broker's memory of the producer does not fit the batch, which it has not written."""

FORGOTTEN_AFTER: Final = 3600.0
"""Seconds; far below any sensible producer.id.expiration.ms (a day), too rare to cost anything."""

_WRAP: Final = MAX_SEQUENCE + 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    batch_size: int
    linger: float
    buffer_memory: int
    max_request_size: int
    delivery_timeout: float
    idempotent: bool = True
    transactional: bool = False
    codec: Codec = Codec.NONE
    level: int | None = None


@dataclass(slots=True)
class _Queue(Generic[Token]):
    """A partition's batches in their order, and the place of the next one among its sequences."""

    batches: deque[Batch[Token]] = field(default_factory=deque)
    in_flight: int = 0
    node: int = -1
    identity: Identity | None = None
    next_sequence: int = 0
    broken: bool = False
    established: bool = False
    """Whether the broker has written something under the identity, and not too long ago."""
    written: float = 0.0
    trouble: str = "it could not be sent"

    def waiting(self) -> Batch[Token] | None:
        """The oldest batch that is not under way."""
        for batch in self.batches:
            if not batch.in_flight:
                return batch
        return None

    def next_deadline(self) -> float:
        return next((one.deadline for one in self.batches if not one.given_up), math.inf)

    def break_seals(self) -> None:
        self.broken = True
        for batch in self.batches:
            if not batch.in_flight:
                batch.identity = None


class Accumulator(Generic[Token]):
    """The machine. `random` spreads retries; see `Backoff`."""

    def __init__(self, limits: Limits, random: Callable[[], float]) -> None:
        self.limits = limits
        self.used = 0
        self.identity: Identity | None = None
        self.wants_identity = False
        self._random = random
        self._busy: dict[TopicPartition, _Queue[Token]] = {}
        self._known: dict[TopicPartition, _Queue[Token]] = {}

    # Memory.

    def reserve(self, size: int) -> bool:
        """Reserve memory; returns whether there was room."""
        if self.used + size > self.limits.buffer_memory:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        self.used -= size

    # Records in.

    def append(
        self,
        partition: TopicPartition,
        record: Outgoing,
        timestamp: int,
        size: int,
        now: float,
    ) -> tuple[Batch[Token], int]:
        """The batch a record was put in, and its place there. `size` bytes have been reserved."""
        queue = self._busy.get(partition)
        batch = queue.batches[-1] if queue is not None else None
        builder = None if batch is None else batch.builder
        if builder is None or builder.uncompressed_size + size > self.limits.batch_size:
            batch = None
            builder = BatchBuilder(codec=self.limits.codec, level=self.limits.level)
        index = builder.append(
            record.value, timestamp=timestamp, key=record.key, headers=record.headers
        )
        if batch is None:
            # Queued once there is something in it: a record that cannot be encoded leaves nothing.
            batch = self._new_batch(partition, now)
            batch.builder = builder
            self._queue(partition, now).batches.append(batch)
        batch.count += 1
        batch.reserved += size
        return batch, index

    def add(
        self, partition: TopicPartition, data: Part, count: int, size: int, now: float
    ) -> Batch[Token]:
        """A batch that comes encoded, without a seal. `size` bytes have been reserved for it."""
        batch = self._new_batch(partition, now)
        batch.data = data
        batch.count = count
        batch.reserved = size
        self._queue(partition, now).batches.append(batch)
        return batch

    def _new_batch(self, partition: TopicPartition, now: float) -> Batch[Token]:
        return Batch(partition, now, now + self.limits.delivery_timeout, count=0, reserved=0)

    def _queue(self, partition: TopicPartition, now: float) -> _Queue[Token]:
        queue = self._busy.get(partition)
        if queue is None:
            # Sequences go on where they were when the partition was last busy.
            queue = self._busy[partition] = self._known.setdefault(partition, _Queue())
            if now - queue.written >= FORGOTTEN_AFTER:
                queue.established = False
        return queue

    # Batches out.

    def __iter__(self) -> Iterator[Batch[Token]]:
        """The batches that are not settled."""
        for queue in self._busy.values():
            yield from queue.batches

    def ready(self, now: float, *, hurry: bool = False) -> tuple[list[TopicPartition], float]:
        """The partitions that have something to send now, and when to ask again at the latest."""
        found = []
        wake = math.inf
        for partition, queue in self._busy.items():
            due = self._due(queue, hurry=hurry)
            if due <= now:
                found.append(partition)
            else:
                wake = min(wake, due)
            wake = min(wake, queue.next_deadline())
        return found, wake

    def _due(self, queue: _Queue[Token], *, hurry: bool) -> float:
        """When the next batch may leave, as far as that is a matter of time."""
        batch = queue.waiting()
        if batch is None or queue.in_flight >= (MAX_IN_FLIGHT if queue.established else 1):
            return math.inf
        if batch.attempts:
            return math.inf if queue.in_flight else batch.not_before
        if queue.in_flight and (queue.broken or queue.batches[0].attempts > 1):
            return math.inf
        if hurry or batch.builder is None or batch is not queue.batches[-1]:
            return -math.inf
        if batch.builder.uncompressed_size >= self.limits.batch_size:
            return -math.inf
        return batch.created + self.limits.linger

    def take(
        self, partitions: Iterable[TopicPartition], node: int, now: float, *, hurry: bool = False
    ) -> tuple[list[Batch[Token]], list[Settled[Token]]]:
        """What to send to `node` in one request: at most one batch for each of the partitions.

        Also returns the outcomes of batches that could not be built.
        """
        taken: list[Batch[Token]] = []
        spoiled: list[Settled[Token]] = []
        room = self.limits.max_request_size
        for partition in partitions:
            queue = self._busy.get(partition)
            if queue is None or self._due(queue, hurry=hurry) > now:
                continue
            if queue.in_flight and queue.node != node:
                continue
            batch = queue.waiting()
            assert batch is not None
            if not self._may_seal(queue, batch):
                continue
            try:
                batch.close()
            except Exception as error:  # noqa: BLE001  # any error of a codec fails this batch only
                fault = ClientFault.of(f"encode records for {partition}", error)
                spoiled.append(self._finish(queue, batch, fault))
                continue
            if taken and len(batch.data) > room:
                continue
            self._seal(queue, batch)
            room -= len(batch.data)
            batch.attempts += 1
            batch.in_flight = True
            queue.in_flight += 1
            queue.node = node
            taken.append(batch)
            # A partition that had its turn goes to the end of the queue.
            self._busy[partition] = self._busy.pop(partition)
        return taken, spoiled

    def _may_seal(self, queue: _Queue[Token], batch: Batch[Token]) -> bool:
        """Whether there is an identity for the batch; a broken queue needs another than before."""
        if not self.limits.idempotent or batch.identity is not None:
            return True
        if queue.identity is not None and not queue.broken:
            return True
        if self.identity is None or self.identity == queue.identity:
            self.wants_identity = True
            return False
        return True

    def _seal(self, queue: _Queue[Token], batch: Batch[Token]) -> None:
        if not self.limits.idempotent or batch.identity is not None:
            return
        if queue.identity is None or queue.broken:
            queue.identity = self.identity
            queue.next_sequence = 0
            queue.broken = queue.established = False
        assert queue.identity is not None
        batch.seal(queue.identity, queue.next_sequence, transactional=self.limits.transactional)
        queue.next_sequence = (queue.next_sequence + batch.count) % _WRAP

    def identified(self, identity: Identity) -> None:
        """InitProducerId was answered."""
        self.identity = identity
        self.wants_identity = False

    def restart(self, identity: Identity) -> None:
        """Count from 0 in every partition, under this identity. Nothing is to be under way."""
        assert not self._busy
        self._known.clear()
        self.identified(identity)

    # Outcomes.

    def settle(
        self, batch: Batch[Token], outcome: Outcome, now: float
    ) -> tuple[Settled[Token] | None, Stale]:
        """Apply the outcome of a batch in flight; return whom to tell, and what is stale."""
        queue = self._busy[batch.partition]
        batch.in_flight = False
        queue.in_flight -= 1
        if isinstance(outcome, Delivered):
            queue.established = self.limits.idempotent and batch.identity == queue.identity
            queue.written = now
            return self._finish(queue, batch, outcome), Stale.NOTHING
        stale = self._passes(queue, batch, outcome)
        if stale is None or batch.given_up:
            return self._finish(queue, batch, outcome), stale or Stale.NOTHING
        if queue.broken:
            batch.identity = None
        queue.trouble = str(outcome)
        batch.not_before = now + RETRY.delay(batch.attempts, self._random())
        return None, stale

    def _passes(
        self, queue: _Queue[Token], batch: Batch[Token], error: ClientError
    ) -> Stale | None:
        """What to look up before the batch is sent again, or None if that is pointless."""
        if isinstance(error, KafkaError) and error.code in MISPLACED and self.limits.idempotent:
            if batch is queue.batches[0]:
                if self.limits.transactional:
                    return None
                queue.break_seals()
            # Otherwise it came too early, since one before it comes back.
            return Stale.NOTHING
        return forgets(error, batch.attempts, repeatable=True)

    def expire(self, now: float) -> list[Settled[Token]]:
        """Fail batches that are past their deadline."""
        late = [queue for queue in self._busy.values() if queue.next_deadline() <= now]
        return [
            self._give_up(queue, batch, self._too_late(batch.partition, queue.trouble))
            for queue in late
            for batch in list(queue.batches)
            if batch.deadline <= now and not batch.given_up
        ]

    def _too_late(self, partition: TopicPartition, trouble: str) -> RequestTimedOut:
        return RequestTimedOut(
            f"records for {partition} not acknowledged in {self.limits.delivery_timeout:g} s: "
            f"{trouble}; see that the broker is up, or raise delivery_timeout_ms"
        )

    def abandon(
        self, error: ClientError, only: Callable[[TopicPartition], bool] = lambda _: True
    ) -> list[Settled[Token]]:
        """Give up everything, or everything for some partitions."""
        return [
            self._give_up(self._busy[batch.partition], batch, error)
            for batch in list(self)
            if only(batch.partition) and not batch.given_up
        ]

    def blame(self, partitions: Iterable[TopicPartition], error: ClientError) -> None:
        """Note why these partitions cannot be sent to, for the error at the deadline."""
        for partition in partitions:
            if partition in self._busy:
                self._busy[partition].trouble = str(error)

    def _give_up(
        self, queue: _Queue[Token], batch: Batch[Token], error: ClientError
    ) -> Settled[Token]:
        if not batch.in_flight:
            return self._finish(queue, batch, error)
        batch.given_up = True
        tokens, batch.tokens = batch.tokens, []
        return Settled(tokens, error)

    def _finish(
        self, queue: _Queue[Token], batch: Batch[Token], outcome: Outcome
    ) -> Settled[Token]:
        queue.batches.remove(batch)
        self.release(batch.reserved)
        if not queue.batches:
            del self._busy[batch.partition]
        return Settled(batch.tokens, outcome)
