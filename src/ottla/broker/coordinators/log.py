"""An internal topic as the coordinators see it: append batches, replay a partition.

Records of a producer's transaction are a transactional batch without a sequence, which only a
coordinator may write; the transaction's end is a control batch.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.coordination.machine import Batch, Marker, Transactional
from ottla.coordination.runtime import NotCoordinator, RefusedByLog
from ottla.log.errors import LogError, StorageFailure
from ottla.log.life import Life
from ottla.log.producer_state import Origin
from ottla.wire.batch import RecordBatch, iter_batches, read_batch
from ottla.wire.builder import BatchBuilder, build_control_batch
from ottla.wire.records import ControlType, iter_records, read_control_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.durability import Durability
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.coordination.machine import Transaction
    from ottla.log.partition import PartitionLog

REPLAY_BYTES: Final = 4 * 1024 * 1024  # one read of a replay
REPLAY_RECORDS: Final = 1_000  # folded in one turn of the loop: some 10 ms


Note: TypeAlias = "Callable[[int, int, bytes, bytes | None], None]"
"""Told of every committed record in order: partition, offset, key, value."""


class Hosting(NamedTuple):
    """What coordinators use of their node: the cluster they are part of, and logs."""

    cluster: Cluster
    data: Data
    partitions: Partitions
    durability: Durability
    workers: Workers
    clock: Clock


class InternalTopicLog:
    """The `CoordinatorLog` of one internal topic whose partitions this node leads."""

    def __init__(self, hosting: Hosting, topic: str, note: Note | None = None) -> None:
        self._hosting = hosting
        self._topic = topic
        self._note = note
        self._replayed: dict[int, HostedPartition] = {}

    def check(self, partition: int, transaction: Transaction) -> None:
        try:
            hosted = self._replayed[partition]
            hosted.log.check_coordinator(_built(Batch((), transaction), 0))
        except LogError as error:
            raise RefusedByLog(error.code, str(error)) from error

    async def append(self, partition: int, batches: Sequence[Batch], now_ms: int) -> None:
        hosted = await self._hosting.partitions.open(self._topic, partition, write=True)
        if hosted is not self._replayed.get(partition) or hosted.leaving:
            # The topic may have been recreated: these records are not for its log.
            raise NotCoordinator
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
        durable = self._hosting.durability.join([hosted])
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
        """Files are read and batches taken apart in a worker, under a lease of the log.

        If the log is closed meanwhile (and perhaps reopened), the replay ends with `LogClosed`, and
        the machine with the replayed state is dropped.
        """
        hosted = await self._hosting.partitions.open(self._topic, partition)
        self._replayed[partition] = hosted
        log = hosted.log
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            found = await self._hosting.workers.run(partial(_read, log, offset, end))
            if not found:
                return
            for batches, offsets in _portions(found):
                if log.life is not Life.OPEN:
                    raise NotCoordinator
                if self._note is not None:
                    for at, (key, value) in zip(offsets, _records_of(batches), strict=True):
                        self._note(partition, at, key, value)
                yield batches
                await asyncio.sleep(0)  # others have their turn
            offset = found[-1].next_offset


class _Found(NamedTuple):
    """A batch of the log, taken apart."""

    batch: Batch
    offsets: list[int]
    """Of its records."""
    next_offset: int


def _read(log: PartitionLog, offset: int, end: int) -> list[_Found]:
    """In a worker: one step of a replay."""
    chunks, _ = log.read_files(offset, REPLAY_BYTES, upper_bound_offset=end, min_one_message=True)
    return [_taken_apart(batch) for chunk in chunks for batch in iter_batches(memoryview(chunk))]


def _taken_apart(batch: RecordBatch) -> _Found:
    """The batch as it was appended; empty for a control batch that ends no transaction."""
    batch.verify_crc()
    if batch.is_control:
        kind, coordinator_epoch = read_control_record(batch)[2:]
        marker = None
        if coordinator_epoch is not None:
            commit = kind is ControlType.COMMIT
            marker = Marker(batch.producer_id, batch.producer_epoch, coordinator_epoch, commit)
        return _Found(Batch((), marker), [], batch.next_offset)
    offsets: list[int] = []
    records: list[tuple[bytes, bytes | None]] = []
    for record in iter_records(batch):
        if record.key is not None:
            offsets.append(record.offset)
            records.append((record.key, record.value))
    transaction = None
    if batch.is_transactional:
        transaction = Transactional(batch.producer_id, batch.producer_epoch)
    return _Found(Batch(records, transaction), offsets, batch.next_offset)


def _portions(found: Sequence[_Found]) -> Iterator[tuple[list[Batch], list[int]]]:
    """Batches with about `REPLAY_RECORDS` records at a time, and the offsets of the records."""
    batches: list[Batch] = []
    offsets: list[int] = []
    for one in found:
        batches.append(one.batch)
        offsets += one.offsets
        if len(offsets) >= REPLAY_RECORDS:
            yield batches, offsets
            batches, offsets = [], []
    if batches:
        yield batches, offsets


def _records_of(batches: Sequence[Batch]) -> Iterator[tuple[bytes, bytes | None]]:
    for batch in batches:
        yield from batch.records


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
