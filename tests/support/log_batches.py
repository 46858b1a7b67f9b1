"""Batches as producers send them, for tests of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.batch import RecordBatch, iter_batches
from ottla.wire.builder import BatchBuilder, build_control_batch
from ottla.wire.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.partition import PartitionLog
    from ottla.log.reading import ReadResult
    from ottla.wire.records import ControlType


def batch_of(
    *values: bytes | None,
    timestamps: Sequence[int] | None = None,
    key: bytes | None = b"k",
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> RecordBatch:
    """One batch over a writable buffer; record i has the timestamp 1000 + i unless given."""
    builder = BatchBuilder(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    times = timestamps or range(1000, 1000 + len(values))
    for value, timestamp in zip(values, times, strict=True):
        builder.append(value, key=key, timestamp=timestamp)
    return RecordBatch(memoryview(builder.build()))


def marker(
    kind: ControlType, producer_id: int, epoch: int, *, coordinator_epoch: int = 0
) -> RecordBatch:
    data = build_control_batch(
        kind,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=1000,
    )
    return RecordBatch(memoryview(data))


def joined(result: ReadResult) -> bytes:
    data = b"".join(result.chunks)
    assert len(data) == result.size
    return data


def batches_in(result: ReadResult) -> list[RecordBatch]:
    """The batches of a read, each with a valid CRC."""
    batches = list(iter_batches(memoryview(joined(result))))
    for batch in batches:
        batch.verify_crc()
    return batches


def read_all(log: PartitionLog) -> bytes:
    """Everything between log start and end, in reads small enough to cross many segments."""
    offset = log.log_start_offset
    parts = []
    while offset < log.log_end_offset:
        result = log.read(offset, 700, upper_bound_offset=log.log_end_offset, min_one_message=True)
        if not result.chunks:
            break
        parts.append(joined(result))
        offset = batches_in(result)[-1].next_offset
    return b"".join(parts)
