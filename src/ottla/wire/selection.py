"""Select the batches with records for a reader, and find the next offset.

Control batches have none. For a reader of committed records, neither have the transactions in the
aborted list of a Fetch response, from their first offset up to the producer's abort marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.wire.batch import iter_batches
from ottla.wire.records import iter_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from _typeshed import ReadableBuffer

    from ottla.wire.batch import RecordBatch

    Buffers: TypeAlias = ReadableBuffer | Sequence[ReadableBuffer]

_ABORT_MARKER: Final = b"\x00\x00\x00\x00"  # a control record's key: version 0, type 0


def each_batch(buffers: Buffers, *, partial_tail: bool = False) -> Iterator[RecordBatch]:
    """The batches of all buffers in order; with `partial_tail` each may end inside one."""
    for buffer in buffers if isinstance(buffers, (list, tuple)) else (buffers,):
        yield from iter_batches(memoryview(buffer).cast("B"), partial_tail=partial_tail)


def next_offset(buffers: Buffers, *, partial_tail: bool = False) -> int | None:
    """The next offset to read: after the last complete batch of any kind."""
    offset = None
    for batch in each_batch(buffers, partial_tail=partial_tail):
        offset = batch.next_offset
    return offset


def data_batches(
    batches: Iterable[RecordBatch],
    aborted: Iterable[tuple[int, int]],
    *,
    verify_crc: bool,
    limit: int,
) -> Iterator[RecordBatch]:
    """The batches with records; `aborted` are the (producer id, first offset) of a Fetch response.

    `limit` is how far a control batch may be decompressed.
    """
    pending = sorted(((first, producer) for producer, first in aborted), reverse=True)
    aborting: set[int] = set()
    for batch in batches:
        while pending and pending[-1][0] <= batch.last_offset:
            aborting.add(pending.pop()[1])
        if batch.is_control:
            if batch.producer_id in aborting and _is_abort_marker(batch, verify_crc, limit):
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            yield batch


def _is_abort_marker(batch: RecordBatch, verify_crc: bool, limit: int) -> bool:
    if verify_crc:
        batch.verify_crc()
    keys = [record.key for record in iter_records(batch, limit=limit)]
    return bool(keys) and keys[0] == _ABORT_MARKER
