"""Decodes records of a share fetch: compiled code finds their places, Arrow builds the values.

Takes less than half of the time of `ottla.wire.records`, which still decodes everything unusual:
records with headers, and damaged records that need an error message. Needs the `arrow` extra.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ottla.client.share.delivery import WAITING
from ottla.client.share.types import ShareRecord
from ottla.wire.compression import DECOMPRESSION_HARD_LIMIT, codec_of, decompress
from ottla.wire.errors import WireError
from ottla.wire.kernels import decode
from ottla.wire.kernels.jit import gather
from ottla.wire.kernels.validate import address_of
from ottla.wire.walk import MIN_RECORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ottla.client.share.delivery import Delivery
    from ottla.wire.batch import RecordBatch

    I64: TypeAlias = npt.NDArray[np.int64]
    Rows: TypeAlias = I64 | slice

MICROSECONDS: Final = 1000  # in a millisecond
# Below this to call compiled code takes longer than to do without.
FEWEST: Final = 64

# The columns that the walk writes about pieces, in this order.
_KEYS, _VALUES, _HEADERS = range(3)


class _Found(NamedTuple):
    """What a walk writes: numbers, and of pieces where they are, as `decode.Pieces` has it.

    A poll brings some hundred records: to make an array costs as much as to fill it, so columns
    are rows of few arrays.
    """

    numbers: I64
    """Offsets, then times."""
    sources: I64
    ends: npt.NDArray[np.int32]
    valid: npt.NDArray[np.uint8]

    @classmethod
    def allocate(cls, count: int) -> _Found:
        pieces = _HEADERS + 1
        return cls(
            np.empty((2, count), np.int64),
            np.empty((pieces, count), np.int64),
            np.zeros((pieces, count + 1), np.int32),
            np.zeros((pieces, count // 8 + 1), np.uint8),
        )

    def addresses(self) -> tuple[decode.Fixed, list[decode.Pieces]]:
        fixed, *pieces = [_row_addresses(array) for array in self]
        return decode.Fixed(*fixed), [decode.Pieces(*of) for of in zip(*pieces, strict=True)]

    def column(self, number: int, rows: int, chosen: Rows) -> list[bytes | None]:
        """The bytes of the chosen ones of the rows; Arrow makes objects faster than slices do."""
        ends = self.ends[number]
        data = np.empty(int(ends[rows]), np.uint8)
        gather(self.sources[number], ends, rows, address_of(data))
        buffers = [pa.py_buffer(one) for one in (self.valid[number], ends, data)]
        column = pa.BinaryArray.from_buffers(pa.binary(), rows, buffers)
        found: list[bytes | None] = column.to_numpy(zero_copy_only=False)[chosen].tolist()
        return found


def load() -> None:
    """Have the kernels compiled, or read from their cache."""
    _Found.allocate(0).column(_KEYS, 0, slice(0))
    _scan([], [], 0, 0)


def read_many(delivery: Delivery, batches: Sequence[RecordBatch]) -> list[ShareRecord] | None:
    """As `read_bulk`, where that pays."""
    if sum(batch.record_count for batch in batches) < FEWEST:
        return None
    return read_bulk(delivery, batches)


def read_bulk(delivery: Delivery, batches: Sequence[RecordBatch]) -> list[ShareRecord] | None:
    """The acquired records, now waiting to be given to the caller; None: read them another way."""
    if not batches or len({batch.is_log_append_time for batch in batches}) > 1:
        return None
    try:
        blocks = [_block(batch) for batch in batches]
    except WireError:
        return None
    if any(
        not 0 <= batch.record_count <= len(block) // MIN_RECORD_SIZE
        for batch, block in zip(batches, blocks, strict=True)
    ):
        return None
    first, end = delivery.firsts[0], delivery.spans[-1].end
    found = _scan(batches, blocks, first, end)
    return None if found is None else _records(delivery, batches[0], *found)


def claim(delivery: Delivery, offsets: I64) -> tuple[Rows, npt.NDArray[np.int32]]:
    """Let the acquired ones of records wait for the caller: which they are, and delivery counts.

    The offsets ascend, and lie between the first and the last that was acquired.
    """
    spans = delivery.spans
    if len(spans) == 1:
        if len(offsets) == len(spans[0].states):
            spans[0].states[:] = bytes([WAITING]) * len(offsets)
        else:
            np.frombuffer(spans[0].states, np.uint8)[offsets - spans[0].first] = WAITING
        counts = np.full(len(offsets), spans[0].delivery_count, np.int32)
        return slice(0, len(offsets)), counts
    ends = np.array([span.end for span in spans])
    # The range that an offset is in, or the one before the hole that it is in.
    at = np.searchsorted(np.array(delivery.firsts), offsets, side="right") - 1
    chosen = np.flatnonzero((at >= 0) & (offsets < ends[at]))
    for span in spans:
        low, high = np.searchsorted(offsets, [span.first, span.end])
        np.frombuffer(span.states, np.uint8)[offsets[low:high] - span.first] = WAITING
    counts = np.array([span.delivery_count for span in spans], dtype=np.int32)
    return chosen, counts[at[chosen]]


def _row_addresses(array: npt.NDArray[Any]) -> list[int]:
    first, step = address_of(array), array.strides[0]
    return [first + row * step for row in range(len(array))]


def _block(batch: RecordBatch) -> memoryview:
    where = f"batch at offset {batch.base_offset}"
    limit = DECOMPRESSION_HARD_LIMIT
    return decompress(codec_of(batch.attributes), batch.payload, limit=limit, where=where)


def _scan(
    batches: Sequence[RecordBatch], blocks: Sequence[memoryview], first: int, end: int
) -> tuple[int, _Found] | None:
    """How many records there are in first <= offset < end, and where, if all are plain."""
    places = []
    most = 0
    for batch, block in zip(batches, blocks, strict=True):
        kind = batch.is_log_append_time
        time = batch.max_timestamp if kind else batch.base_timestamp
        count = batch.record_count
        places.append((address_of(block), len(block), count, batch.base_offset, time, kind))
        most += count
    plan = np.array(places, np.int64).reshape(len(places), decode.PLAN_FIELDS)
    found = _Found.allocate(most)
    fixed, pieces = found.addresses()
    status, *_, rows = decode.scan(plan, first, end, fixed, *pieces)
    offsets = found.numbers[0, :rows]
    if status != decode.OK or found.ends[_HEADERS, rows] or (offsets[1:] <= offsets[:-1]).any():
        return None
    return rows, found


def _records(delivery: Delivery, batch: RecordBatch, rows: int, found: _Found) -> list[ShareRecord]:
    offsets, times = found.numbers[:, :rows]
    chosen, counts = claim(delivery, offsets)
    topic, partition = delivery.partition
    columns = zip(
        repeat(topic),
        repeat(partition),
        offsets[chosen].tolist(),
        (times[chosen] // MICROSECONDS).tolist(),
        repeat(int(batch.is_log_append_time)),
        found.column(_KEYS, rows, chosen),
        found.column(_VALUES, rows, chosen),
        repeat(()),
        counts.tolist(),
        repeat(delivery.number),
        strict=False,  # some have no end
    )
    # What the class does with a tuple, without its detour through Python.
    return list(map(tuple.__new__, repeat(ShareRecord), columns))
