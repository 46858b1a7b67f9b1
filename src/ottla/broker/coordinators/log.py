"""An internal topic as the coordinators see it: append batches, replay a partition.

What stands in a producer's transaction is a transactional batch without a sequence, as only a
coordinator may write it; the transaction's end is a control batch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.coordination.machine import Batch, Marker, Transactional
from ottla.coordination.runtime import Refused
from ottla.log.errors import LogError, StorageFailure
from ottla.log.producer_state import Origin
from ottla.wire.batch import RecordBatch, iter_batches, read_batch
from ottla.wire.builder import BatchBuilder, build_control_batch
from ottla.wire.records import ControlType, iter_records, read_control_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.partitions import Appended, Partitions
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.coordination.machine import Transaction

REPLAY_BYTES: Final = 4 * 1024 * 1024  # one step of a replay; between two the loop serves others


Note: TypeAlias = "Callable[[int, int, bytes, bytes | None], None]"
"""Told of every committed record in order: partition, offset, key, value."""


class Hosting(NamedTuple):
    """What coordinators use of their node: the cluster they are part of, and logs."""

    cluster: Cluster
    data: Data
    partitions: Partitions
    appended: Appended
    workers: Workers
    clock: Clock


class InternalTopicLog:
    """The `CoordinatorLog` of one internal topic whose partitions this node leads."""

    def __init__(self, hosting: Hosting, topic: str, note: Note | None = None) -> None:
        self._hosting = hosting
        self._topic = topic
        self._note = note

    def check(self, partition: int, transaction: Transaction) -> None:
        hosted = self._hosting.partitions.find(self._topic, partition)
        try:
            hosted.log.check_coordinator(_built(Batch((), transaction), 0))
        except LogError as error:
            raise Refused(error.code, str(error)) from error

    async def append(self, partition: int, batches: Sequence[Batch], now_ms: int) -> None:
        hosted = self._hosting.partitions.find(self._topic, partition)
        for batch in batches:
            if isinstance(batch.transaction, Marker):
                # In time: the runtime decides nothing for this producer until this is written.
                hosted.verifications.pop(batch.transaction.producer_id, None)
        results = hosted.log.append_many(
            [_built(batch, now_ms) for batch in batches],
            leader_epoch=hosted.leader_epoch,
            now_ms=now_ms,
            origin=Origin.COORDINATOR,
        )
        durable = self._hosting.appended([hosted])
        if durable is not None:
            await durable
        if not hosted.log.online:
            raise StorageFailure(f"{hosted!r} went offline")
        for batch, result in zip(batches, results, strict=True):
            if isinstance(result, LogError):
                raise result
            if self._note is not None:
                for offset, (key, value) in enumerate(batch.records, result.base_offset):
                    self._note(partition, offset, key, value)

    async def replay(self, partition: int) -> AsyncIterator[Sequence[Batch]]:
        log = self._hosting.partitions.find(self._topic, partition).log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = partial(
                log.read,
                offset,
                REPLAY_BYTES,
                upper_bound_offset=log.log_end_offset,
                min_one_message=True,
            )
            chunks, _ = await self._hosting.workers.run(read)
            if not chunks:
                return
            batches = [batch for chunk in chunks for batch in iter_batches(memoryview(chunk))]
            offset = batches[-1].next_offset
            yield [found for batch in batches for found in self._found(partition, batch)]

    def _found(self, partition: int, batch: RecordBatch) -> Iterator[Batch]:
        """The batch as it was appended; none for a control batch that ends no transaction."""
        if batch.is_control:
            kind, coordinator_epoch = read_control_record(batch)[2:]
            if coordinator_epoch is not None:
                commit = kind is ControlType.COMMIT
                producer = batch.producer_id, batch.producer_epoch
                yield Batch((), Marker(*producer, coordinator_epoch, commit))
            return
        records = [
            (record.offset, record.key, record.value)
            for record in iter_records(batch)
            if record.key is not None
        ]
        if self._note is not None:
            for record_offset, key, value in records:
                self._note(partition, record_offset, key, value)
        transaction = None
        if batch.is_transactional:
            transaction = Transactional(batch.producer_id, batch.producer_epoch)
        yield Batch([(key, value) for _, key, value in records], transaction)


def _built(batch: Batch, now_ms: int) -> RecordBatch:
    records, transaction = batch
    if isinstance(transaction, Marker):
        return marker_batch(transaction, now_ms)
    builder = BatchBuilder()
    if transaction is not None:
        builder = BatchBuilder(**transaction._asdict(), transactional=True)
    for key, value in records:
        builder.append(value, key=key, timestamp=now_ms)
    return read_batch(memoryview(builder.build()))


def marker_batch(marker: Marker, now_ms: int) -> RecordBatch:
    """The control batch that ends a transaction in one partition."""
    data = build_control_batch(
        ControlType.COMMIT if marker.commit else ControlType.ABORT,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now_ms,
    )
    return read_batch(memoryview(data))
