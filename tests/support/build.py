"""Whole batches from records, for tests; clients and coordinators append to a `BatchBuilder`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.batch import NO_PRODUCER_ID, NO_SEQUENCE
from ottla.wire.builder import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, BatchBuilder
from ottla.wire.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.wire.records import Record


def build_batch(
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """`records` as one batch. Their offsets are kept: they rise from `base_offset` on."""
    builder = BatchBuilder(
        codec=codec,
        level=level,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    for offset, timestamp, key, value, headers in records:
        builder.append(value, timestamp=timestamp, key=key, headers=headers, offset=offset)
    return builder.build()
