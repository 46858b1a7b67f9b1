"""The state that a partition keeps of its idempotent and transactional producers.

The rules, for batches with a producer id:

- an epoch below the known one is refused (47);
- a batch whose epoch, first and last sequence equal those of one of the last five is a duplicate:
  it is answered with its old offset and not appended;
- otherwise it must follow: sequence = last + 1 (2147483647 is followed by 0), or 0 with a new
  epoch; anything else is out of order (45). An unknown producer may start anywhere;
- a batch outside the transaction while one is open is refused (48);
- batches made by a coordinator have no sequences to check;
- a marker ends the transaction; one from an older coordinator is refused (52).

Everything that changes this state lives in this file. `check` decides, `update` applies; the same
`update` runs on append and on replay. No I/O, no clock.
"""

from __future__ import annotations

import enum
import struct
from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from ottla.log.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from ottla.log.index import AbortedTransaction, IndexSums
from ottla.wire.batch import CONTROL, MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL, RecordBatch
from ottla.wire.records import ControlType, read_control_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REMEMBERED_BATCHES: Final = 5  # max.in.flight.requests.per.connection of an idempotent producer
MAX_PRODUCERS: Final = 100_000  # per partition; a hostile client can invent ids without end
NO_OFFSET: Final = -1

_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEADER = struct.Struct(">hI")
_SNAPSHOT_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class Origin(enum.Enum):
    """Who made a batch: a client, or a coordinator of this broker (offsets, markers)."""

    CLIENT = enum.auto()
    COORDINATOR = enum.auto()


class CorruptSnapshot(ValueError):
    """A producer snapshot that cannot be read; the state is replayed from the log instead."""


class SentBatch(NamedTuple):
    """A remembered batch."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class Producer:
    """One producer's state, as DescribeProducers reports it."""

    producer_id: int
    epoch: int
    batches: list[SentBatch] = field(default_factory=list)
    coordinator_epoch: int = -1
    current_txn_first_offset: int = NO_OFFSET
    last_timestamp: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class _Ended(NamedTuple):
    """A transaction whose marker is in the log but maybe not yet below the high watermark."""

    first_offset: int
    marker_offset: int


_by_marker = attrgetter("marker_offset")


class ProducerStates:
    """All producers of one partition, least recently active first."""

    def __init__(self, max_producers: int = MAX_PRODUCERS) -> None:
        self._max_producers = max_producers
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # first offset of each open transaction -> producer id
        self._ended: list[_Ended] = []  # by marker; gone once that is committed

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    # Deciding

    def check(self, batch: RecordBatch, origin: Origin) -> SentBatch | None:
        """None if the batch may be appended, the old one if it is a duplicate; else raises."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        if batch.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {batch.producer_id} sent epoch {batch.producer_epoch}, "
                f"the current one is {producer.epoch}"
            )
        if batch.attributes & CONTROL:
            self._check_marker(batch, producer)
            return None
        if origin is Origin.CLIENT:
            duplicate = self._check_sequence(batch, producer)
            if duplicate is not None:
                return duplicate
        if producer.current_txn_first_offset >= 0 and not batch.attributes & TRANSACTIONAL:
            raise InvalidTxnState(
                f"producer {batch.producer_id} has an open transaction; the batch is not part of it"
            )
        return None

    @staticmethod
    def _check_sequence(batch: RecordBatch, producer: Producer) -> SentBatch | None:
        first, last = batch.base_sequence, batch.last_sequence
        if batch.producer_epoch != producer.epoch:
            expected = 0
        else:
            for sent in producer.batches:
                if sent.first_sequence == first and sent.last_sequence == last:
                    return sent
            expected = (producer.last_sequence + 1) & MAX_SEQUENCE
        if first != expected:
            raise OutOfOrderSequence(
                f"producer {batch.producer_id} epoch {batch.producer_epoch} sent sequence {first}, "
                f"expected {expected}"
            )
        return None

    @staticmethod
    def _check_marker(batch: RecordBatch, producer: Producer) -> None:
        epoch = read_control_record(batch).coordinator_epoch
        if epoch is not None and epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"marker of coordinator epoch {epoch}, "
                f"the current one is {producer.coordinator_epoch}"
            )

    # Applying

    def update(self, batch: RecordBatch, base_offset: int) -> AbortedTransaction | None:
        """Take in a batch that has `base_offset` in the log; an abort that ended data is returned.

        On replay a header is enough, except for control batches.
        """
        producer = self._touch(batch)
        producer.last_timestamp = batch.max_timestamp
        if batch.attributes & CONTROL:
            return self._end_transaction(batch, base_offset, producer)
        producer.batches.append(_sent(batch, base_offset))
        if len(producer.batches) > REMEMBERED_BATCHES:
            del producer.batches[0]
        # An empty batch is what compaction left of data whose transaction has long ended.
        opens = batch.attributes & TRANSACTIONAL and batch.record_count
        if opens and producer.current_txn_first_offset < 0:
            producer.current_txn_first_offset = base_offset
            self._open[base_offset] = batch.producer_id
        return None

    def recall(self, headers: Iterable[RecordBatch]) -> None:
        """Remember batches again that were counted before: a snapshot has only the last of each."""
        for header in headers:
            producer = self._producers.get(header.producer_id)
            if producer is None or header.attributes & CONTROL or not producer.batches:
                continue
            if (
                header.producer_epoch != producer.epoch
                or header.last_offset >= producer.last_offset
            ):
                continue
            sent = _sent(header, header.base_offset)
            known = sorted({*producer.batches, sent}, key=attrgetter("last_offset"))
            producer.batches = known[-REMEMBERED_BATCHES:]

    def _touch(self, batch: RecordBatch) -> Producer:
        """The batch's producer, now the most recently active one."""
        producer = self._producers.pop(batch.producer_id, None)
        if producer is None:
            if len(self._producers) >= self._max_producers:
                self._evict()
            producer = Producer(batch.producer_id, batch.producer_epoch)
        elif producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.batches.clear()
        self._producers[batch.producer_id] = producer
        return producer

    def _evict(self) -> None:
        """Forget the longest inactive producer; those inside a transaction are never forgotten."""
        for producer_id, producer in self._producers.items():
            if producer.current_txn_first_offset < 0:
                del self._producers[producer_id]
                return

    def _end_transaction(
        self, batch: RecordBatch, base_offset: int, producer: Producer
    ) -> AbortedTransaction | None:
        marker = read_control_record(batch)
        if marker.coordinator_epoch is None:
            return None
        producer.coordinator_epoch = marker.coordinator_epoch
        first = producer.current_txn_first_offset
        if first < 0:
            return None
        producer.current_txn_first_offset = NO_OFFSET
        del self._open[first]
        self._ended.append(_Ended(first, base_offset))
        if marker.type is ControlType.COMMIT:
            return None
        stable = min(self._open, default=base_offset + 1)
        return AbortedTransaction(batch.producer_id, first, base_offset, stable)

    # Offsets and time

    def committed(self, high_watermark: int) -> None:
        """Forget the ends of transactions that every reader may see now."""
        if self._ended and self._ended[0].marker_offset < high_watermark:
            del self._ended[: bisect_left(self._ended, high_watermark, key=_by_marker)]

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Start of the first transaction that is open, or ended only past the high watermark."""
        if not self._open and not self._ended:
            return None
        self.committed(high_watermark)
        candidates = [end.first_offset for end in self._ended]
        candidates += self._open
        return min(candidates, default=None)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for `expiration_ms`, unless in a transaction; how many went.

        Nothing else ends them, not even the deletion of all they sent: a batch that is sent again
        after that is still a duplicate.
        """
        gone = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.current_txn_first_offset < 0
            and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    # Snapshots

    def encode(self, sums: IndexSums | None = None) -> bytes:
        """Kafka's `.snapshot`: of each producer only the last batch survives a restart.

        `sums` are those of the segment that ends here.
        """
        body = bytearray(_SNAPSHOT_COUNT.pack(len(self._producers)))
        for producer in self._producers.values():
            last = producer.batches[-1] if producer.batches else None
            body += _SNAPSHOT_ENTRY.pack(
                producer.producer_id,
                producer.epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else NO_OFFSET,
                last.offset_delta if last else 0,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.current_txn_first_offset,
            )
        return _snapshot(body, sums)

    @classmethod
    def decode(cls, data: bytes, max_producers: int = MAX_PRODUCERS) -> ProducerStates:
        entries, _ = _split_snapshot(data)
        states = cls(max_producers)
        for entry in _SNAPSHOT_ENTRY.iter_unpack(entries[_SNAPSHOT_COUNT.size :]):
            states._restore(*entry)
        return states

    def _restore(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp: int,
        coordinator_epoch: int,
        txn_first_offset: int,
    ) -> None:
        batches = []
        if last_offset >= 0:
            first = NO_SEQUENCE
            if last_sequence != NO_SEQUENCE:
                first = (last_sequence - offset_delta) & MAX_SEQUENCE
            batches = [SentBatch(first, last_sequence, last_offset, offset_delta, timestamp)]
        self._producers[producer_id] = Producer(
            producer_id, epoch, batches, coordinator_epoch, txn_first_offset, timestamp
        )
        if txn_first_offset >= 0:
            self._open[txn_first_offset] = producer_id


def snapshot_sums(data: bytes) -> IndexSums | None:
    """The segment's checksums in a snapshot; CorruptSnapshot if it cannot be read."""
    return IndexSums.decode(_split_snapshot(data)[1])


def with_sums(data: bytes, sums: IndexSums) -> bytes:
    """The same snapshot for another segment before it."""
    return _snapshot(_split_snapshot(data)[0], sums)


def _snapshot(body: bytes | bytearray | memoryview, sums: IndexSums | None) -> bytes:
    content = bytes(body) + (sums.encode() if sums else b"")
    return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc32c(content)) + content


def _split_snapshot(data: bytes) -> tuple[memoryview, memoryview]:
    """Count and entries, and what follows them."""
    if len(data) < _SNAPSHOT_HEADER.size + _SNAPSHOT_COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are no snapshot")
    version, crc = _SNAPSHOT_HEADER.unpack_from(data)
    body = memoryview(data)[_SNAPSHOT_HEADER.size :]
    if version != _SNAPSHOT_VERSION or crc != crc32c(body):
        raise CorruptSnapshot("snapshot of another version, or its CRC does not match")
    (count,) = _SNAPSHOT_COUNT.unpack_from(body)
    end = _SNAPSHOT_COUNT.size + count * _SNAPSHOT_ENTRY.size
    if not _SNAPSHOT_COUNT.size <= end <= len(body):
        raise CorruptSnapshot(f"{count} entries do not fit {len(body)} bytes")
    return body[:end], body[end:]


def _sent(batch: RecordBatch, base_offset: int) -> SentBatch:
    return SentBatch(
        batch.base_sequence,
        batch.last_sequence,
        base_offset + batch.last_offset_delta,
        batch.last_offset_delta,
        batch.max_timestamp,
    )
