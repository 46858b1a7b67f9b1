"""Records of a share fetch by compiled code: it finds where they are, slices make what they hold.

Takes less than half of the time of `ottla.wire.records`, to which everything unusual is left:
headers, and whatever is wrong and has to be named. Needs the `arrow` extra.
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from ottla.client.share_delivery import WAITING
from ottla.client.share_types import ShareRecord
from ottla.wire.compression import DECOMPRESSION_HARD_LIMIT, codec_of, decompress
from ottla.wire.errors import WireError
from ottla.wire.kernels import decode
from ottla.wire.kernels.validate import address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from ottla.client.share_delivery import Delivery
    from ottla.wire.batch import RecordBatch

    I64: TypeAlias = npt.NDArray[np.int64]
    Rows: TypeAlias = I64 | slice

MICROSECONDS: Final = 1000  # in a millisecond

# What the class does with a tuple, without its detour through Python.
_make: Final[Callable[[tuple[object, ...]], ShareRecord]] = partial(tuple.__new__, ShareRecord)


class _Pieces(NamedTuple):
    """Where the keys or values of records are, as `decode.Pieces` has it."""

    sources: I64
    ends: npt.NDArray[np.int32]
    valid: npt.NDArray[np.uint8]

    @classmethod
    def allocate(cls, count: int) -> _Pieces:
        return cls(
            np.empty(count, np.int64),
            np.zeros(count + 1, np.int32),
            np.zeros(count // 8 + 1, np.uint8),
        )

    def addresses(self) -> decode.Pieces:
        return decode.Pieces(*(address_of(array) for array in self))

    def cut(self, data: bytes, base: int, chosen: Rows) -> Iterable[bytes | None]:
        """The bytes of the chosen rows; `base` is the address of `data`."""
        valid = np.unpackbits(self.valid, bitorder="little")[chosen]
        if not valid.any():
            return repeat(None)
        starts = self.sources[chosen] - base
        ends = starts + np.diff(self.ends)[chosen]
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        if valid.all():
            return [data[start:end] for start, end in places]
        return [
            data[start:end] if is_there else None
            for (start, end), is_there in zip(places, valid.tolist(), strict=True)
        ]


def load() -> None:
    """Have the kernel compiled, or read from its cache."""
    _scan([], b"", 0, 0)


def read_bulk(delivery: Delivery, batches: Sequence[RecordBatch]) -> list[ShareRecord] | None:
    """The acquired records, now waiting to be given to the caller; None: read them another way."""
    if not batches or len({batch.is_log_append_time for batch in batches}) > 1:
        return None
    try:
        blocks = [_block(batch) for batch in batches]
    except WireError:
        return None
    data = b"".join(blocks)
    sizes = [len(block) for block in blocks]
    if any(
        not 0 <= batch.record_count <= size // decode.MIN_RECORD_SIZE
        for batch, size in zip(batches, sizes, strict=True)
    ):
        return None
    first, end = delivery.firsts[0], delivery.spans[-1].end
    found = _scan(list(zip(batches, sizes, strict=True)), data, first, end)
    return None if found is None else _records(delivery, batches[0], data, *found)


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


def _block(batch: RecordBatch) -> memoryview:
    where = f"batch at offset {batch.base_offset}"
    limit = DECOMPRESSION_HARD_LIMIT
    return decompress(codec_of(batch.attributes), batch.payload, limit=limit, where=where)


def _scan(
    batches: Sequence[tuple[RecordBatch, int]], data: bytes, first: int, end: int
) -> tuple[I64, I64, _Pieces, _Pieces] | None:
    """Offsets, times, keys and values of the records in first <= offset < end, if all are plain."""
    places = []
    address = address_of(data)
    for batch, size in batches:
        kind = batch.is_log_append_time
        time = batch.max_timestamp if kind else batch.base_timestamp
        places.append((address, size, batch.record_count, batch.base_offset, time, kind))
        address += size
    plan = np.array(places, np.int64).reshape(len(places), decode.PLAN_FIELDS)
    most = int(plan[:, decode.COUNT].sum())
    offsets, times = np.empty(most, np.int64), np.empty(most, np.int64)
    keys, values, headers = (_Pieces.allocate(most) for _ in range(3))
    status, *_, rows = decode.scan(
        plan,
        first,
        end,
        decode.Fixed(address_of(offsets), address_of(times)),
        keys.addresses(),
        values.addresses(),
        headers.addresses(),
    )
    offsets = offsets[:rows]
    if status != decode.OK or headers.ends[rows] or (offsets[1:] <= offsets[:-1]).any():
        return None
    return offsets, times[:rows] // MICROSECONDS, keys, values


def _records(
    delivery: Delivery,
    batch: RecordBatch,
    data: bytes,
    offsets: I64,
    times: I64,
    keys: _Pieces,
    values: _Pieces,
) -> list[ShareRecord]:
    chosen, counts = claim(delivery, offsets)
    topic, partition = delivery.partition
    base = address_of(data)
    columns = zip(
        repeat(topic),
        repeat(partition),
        offsets[chosen].tolist(),
        times[chosen].tolist(),
        repeat(int(batch.is_log_append_time)),
        keys.cut(data, base, chosen),
        values.cut(data, base, chosen),
        repeat(()),
        counts.tolist(),
        repeat(delivery.number),
        strict=False,  # some have no end
    )
    return list(map(_make, columns))
