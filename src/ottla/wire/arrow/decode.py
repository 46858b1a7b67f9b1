"""Record batches to the columns of Spark's Kafka source.

Rules:

- The values of uncompressed batches are copied once, from the input buffer to the column.
- Every batch that may have rows is checked completely (CRC, then each record), whichever columns
  are requested. Only a timestamp outside the range of microseconds is accepted if its column is not
  requested.
- Control batches have no rows, and neither have the aborted transactions in `aborted`.
- A row without headers has null headers; invalid UTF-8 in a header key becomes U+FFFD. Both as in
  Spark's own Kafka source.
- Columns have 32-bit offsets, because Spark supports no others: more than 2 GiB in one column
  raises ColumnTooLarge, and the caller must pass fewer buffers at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.wire.arrow import memory
from ottla.wire.columns import COLUMNS_WITHOUT_HEADERS, check_columns
from ottla.wire.compression import Codec, codec_of, decompress
from ottla.wire.errors import BatchError
from ottla.wire.kernels import decode
from ottla.wire.kernels.jit import INT32_MAX, gather
from ottla.wire.kernels.validate import address_of, record_error
from ottla.wire.selection import data_batches, each_batch
from ottla.wire.walk import check_record_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from ottla.wire.batch import RecordBatch
    from ottla.wire.kernels.jit import I32, I64, U8
    from ottla.wire.selection import Buffers

HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", HEADER_TYPE))),
    ]
)

DECOMPRESSED_LIMIT: Final = 1024 * 1024 * 1024
"""Most decompressed bytes per call: half of what a column holds, so that bombs fail early."""

MIN_OFFSET: Final = -0x8000000000000000
MAX_OFFSET: Final = 0x7FFFFFFFFFFFFFFF

# In the order of the kernel's parameters.
_FIXED: Final[dict[str, type[np.int64 | np.int32]]] = {
    "offset": np.int64,
    "timestamp": np.int64,
    "timestampType": np.int32,
}
_VARIABLE: Final = ("key", "value", "headers")


class ColumnTooLarge(ValueError):
    """A column would exceed 2 GiB; the data are valid."""


def batches_to_arrow(
    buffers: Buffers,
    topic: str,
    partition: int,
    *,
    columns: Sequence[str] = COLUMNS_WITHOUT_HEADERS,
    start_offset: int | None = None,
    end_offset: int | None = None,
    aborted: Iterable[tuple[int, int]] = (),
    partial_tail: bool = False,
    verify_crc: bool = True,
    decompressed_limit: int = DECOMPRESSED_LIMIT,
) -> pa.RecordBatch:
    """The records with start_offset <= offset < end_offset, in the order of `buffers`.

    Each buffer has whole batches back to back; with `partial_tail` it may end inside one, which is
    left out. `columns` are names of SCHEMA, and the result has them in this order; other columns
    are neither written nor copied. `aborted` are the (producer id, first offset) of a Fetch
    response.
    """
    check_columns(columns)
    start = MIN_OFFSET if start_offset is None else start_offset
    end = MAX_OFFSET if end_offset is None else end_offset
    where = f"{topic}-{partition}"
    try:
        batches = [
            batch
            for batch in data_batches(
                each_batch(buffers, partial_tail=partial_tail),
                aborted,
                verify_crc=verify_crc,
                limit=decompressed_limit,
            )
            if batch.last_offset >= start and batch.base_offset < end
        ]
        plan = _plan(batches, verify_crc, decompressed_limit)
        scanned = _scan(plan, start, end, columns)
    except BatchError as error:
        raise type(error)(error.expected, error.got, f"{where}: {error.where}") from None
    made = columns or ("partition",)  # a batch without columns would have no rows
    rows = pa.RecordBatch.from_arrays(
        [_column(name, scanned, topic, partition) for name in made],
        schema=pa.schema([SCHEMA.field(name) for name in made]),
    )
    return rows if columns else rows.select([])


class _Plan(NamedTuple):
    """The input of the kernel, and the blocks it points into."""

    batches: list[RecordBatch]
    rows: I64
    blocks: list[memoryview]


def _plan(batches: list[RecordBatch], verify_crc: bool, decompressed_limit: int) -> _Plan:
    rows = []
    blocks = []
    budget = decompressed_limit
    for batch in batches:
        where = f"batch at offset {batch.base_offset}"
        if verify_crc:
            batch.verify_crc()
        block = batch.payload
        codec = codec_of(batch.attributes)
        # Compaction leaves headers without records, with the old codec in their attributes.
        if codec is not Codec.NONE and len(block):
            block = decompress(codec, block, limit=budget, where=where)
            budget -= len(block)
        check_record_count(batch.record_count, len(block), where)
        blocks.append(block)
        rows.append(
            (
                address_of(block),
                len(block),
                batch.record_count,
                batch.base_offset,
                batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp,
                batch.is_log_append_time,
            )
        )
    plan = np.array(rows, np.int64).reshape(len(rows), decode.PLAN_FIELDS)
    return _Plan(batches, plan, blocks)


class _Pieces(NamedTuple):
    sources: I64
    ends: I32
    valid: U8

    @classmethod
    def allocate(cls, count: int) -> _Pieces:
        ends = memory.allocate(count + 1, np.int32)
        ends[0] = 0
        valid = memory.allocate(count // 8 + 1, np.uint8)
        valid.fill(0)
        return cls(memory.allocate(count, np.int64), ends, valid)

    def addresses(self) -> decode.Pieces:
        return decode.Pieces(*(address_of(array) for array in self))


class _Scanned(NamedTuple):
    plan: _Plan  # kept as long as addresses into its blocks are used
    rows: int
    fixed: dict[str, npt.NDArray[np.int64 | np.int32]]
    pieces: dict[str, _Pieces]


def _scan(plan: _Plan, start: int, end: int, columns: Sequence[str]) -> _Scanned:
    most = int(plan.rows[:, decode.COUNT].sum())
    fixed = {name: memory.allocate(most, _FIXED[name]) for name in columns if name in _FIXED}
    pieces = {name: _Pieces.allocate(most) for name in columns if name in _VARIABLE}
    status, batch, record, position, detail, rows = decode.scan(
        plan.rows,
        start,
        end,
        decode.Fixed(
            *(address_of(fixed[name]) if name in fixed else decode.NOT_WANTED for name in _FIXED)
        ),
        *(pieces[name].addresses() if name in pieces else decode.Pieces() for name in _VARIABLE),
    )
    if status == decode.COLUMN_TOO_LARGE:
        raise ColumnTooLarge(f"expected columns of at most {INT32_MAX} bytes, got more")
    if status != decode.OK:
        where = f"batch at offset {plan.batches[batch].base_offset}"
        raise record_error(status, record, position, detail, where)
    return _Scanned(plan, rows, fixed, pieces)


def _column(name: str, scanned: _Scanned, topic: str, partition: int) -> pa.Array:
    if name == "topic":
        return pa.repeat(pa.scalar(topic, pa.string()), scanned.rows)
    if name == "partition":
        return pa.repeat(pa.scalar(partition, pa.int32()), scanned.rows)
    if name in _FIXED:
        buffers = [None, pa.py_buffer(scanned.fixed[name])]
        return pa.Array.from_buffers(SCHEMA.field(name).type, scanned.rows, buffers)
    if name == "headers":
        return _headers(scanned.pieces[name], scanned.rows)
    return _gathered(scanned.pieces[name], scanned.rows)


def _headers(headers: _Pieces, rows: int) -> pa.Array:
    count = int(headers.ends[rows])
    if not count:
        return pa.nulls(rows, SCHEMA.field("headers").type)
    keys, values = _Pieces.allocate(count), _Pieces.allocate(count)
    if not decode.scan_headers(
        headers.sources, headers.ends, rows, keys.addresses(), values.addresses()
    ):
        raise ColumnTooLarge(f"expected headers of at most {INT32_MAX} bytes, got more")
    fields = [_readable(_gathered(keys, count)), _gathered(values, count)]
    return pa.Array.from_buffers(
        SCHEMA.field("headers").type,
        rows,
        [pa.py_buffer(headers.valid), pa.py_buffer(headers.ends)],
        children=[pa.StructArray.from_arrays(fields, fields=list(HEADER_TYPE))],
    )


def _gathered(pieces: _Pieces, rows: int) -> pa.Array:
    data = memory.allocate(int(pieces.ends[rows]), np.uint8)
    gather(pieces.sources, pieces.ends, rows, address_of(data))
    buffers = [pa.py_buffer(array) for array in (pieces.valid, pieces.ends, data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _readable(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        # One by one, because it is rare: only a broken producer writes such keys.
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
