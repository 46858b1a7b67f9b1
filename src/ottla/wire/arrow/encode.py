"""Columns to record batches for Produce.

Rules:

- Keys, values and headers are binary or string columns of any kind; text is encoded as UTF-8.
- Nulls become null keys, values and header values. A null list of headers counts as empty; a header
  without a key is an error, and so is a record that does not fit into a batch.
- Batches are limited by their uncompressed size. A batch that compression does not make smaller is
  sent uncompressed, as librdkafka does, so that no batch exceeds the limit.
- Offset deltas count from 0; the base timestamp is that of the first record.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from ottla.wire.arrow import memory
from ottla.wire.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MAX_SEQUENCE,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
)
from ottla.wire.compression import Codec, compress
from ottla.wire.kernels import encode
from ottla.wire.kernels.jit import INT32_MAX
from ottla.wire.kernels.validate import address_of

if TYPE_CHECKING:
    from ottla.wire.kernels.jit import I64

MAX_BATCH_BYTES: Final = 1024 * 1024
"""Twelve bytes below Kafka's default of `max.message.bytes`."""

NO_PRODUCER_EPOCH: Final = -1
NO_LEADER_EPOCH: Final = -1

_CRC = struct.Struct(">I")
_CRC_AT: Final = 17
_MILLISECONDS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


class RecordTooLarge(ValueError):
    """A record does not fit into a batch of its own."""


class NullHeaderKey(ValueError):
    """A header has no key."""


class UnsupportedColumn(ValueError):
    """A column has a type that cannot be encoded."""


class BatchOptions(NamedTuple):
    """Options for all batches of one call."""

    codec: Codec
    level: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool


def arrow_to_batches(
    data: pa.RecordBatch | pa.Table,
    *,
    now_ms: int,
    key: str | None = None,
    value: str = "value",
    headers: str | None = None,
    timestamp: str | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> list[memoryview]:
    """The rows of `data`, in order, as batches of at most `max_batch_bytes` each.

    Columns are given by name. Records without a timestamp (no column, or null) get `now_ms`;
    integers are taken as milliseconds. Uncompressed batches are views of one allocation.
    """
    chunks = data.combine_chunks().to_batches() if isinstance(data, pa.Table) else [data]
    options = BatchOptions(codec, level, producer_id, producer_epoch, base_sequence, transactional)
    batches: list[memoryview] = []
    rows = 0
    for chunk in chunks:
        if not chunk.num_rows:
            continue
        records = _Records(
            chunk.num_rows,
            _timestamps(chunk, timestamp, now_ms),
            _Source.of(chunk.column(value), value),
            _Source.of(chunk.column(key), key) if key is not None else _NULLS,
            _Lists.of(chunk.column(headers), headers) if headers is not None else _NO_LISTS,
        )
        batches += _encode(records, options, rows, max_batch_bytes)
        rows += chunk.num_rows
    return batches


class _Source(NamedTuple):
    """A column for the kernel, and the buffers it points into."""

    column: encode.Column
    buffers: tuple[object, ...]

    @classmethod
    def of(cls, array: pa.Array, name: str) -> _Source:
        kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if pa.types.is_null(kind) or not len(array):
            return _NULLS
        if not _is_bytes(kind):
            raise UnsupportedColumn(f"column {name}: expected binary or string, got {array.type}")
        if not _has_offsets(array.type):
            array = array.cast(pa.large_string() if _is_text(kind) else pa.large_binary())
        data = array.buffers()[2]
        return cls._build(array, _offsets(array), 0 if data is None else data.address)

    @classmethod
    def _build(cls, array: pa.Array, offsets: I64, data: int) -> _Source:
        valid = array.buffers()[0] if array.null_count else None
        column = encode.Column(
            address_of(offsets),
            data,
            encode.ABSENT if valid is None else valid.address,
            array.offset,
        )
        return cls(column, (array, offsets))


_NULLS: Final = _Source(encode.Column(), ())


class _Lists(NamedTuple):
    """Headers for the kernel, and the buffers they point into."""

    headers: encode.Headers
    buffers: tuple[object, ...]

    @classmethod
    def of(cls, array: pa.Array, name: str) -> _Lists:
        kind = array.type
        if pa.types.is_null(kind):
            return _NO_LISTS
        if not (
            (pa.types.is_list(kind) or pa.types.is_large_list(kind))
            and pa.types.is_struct(kind.value_type)
            and {field.name for field in kind.value_type} == {"key", "value"}
        ):
            raise UnsupportedColumn(
                f"column {name}: expected list<struct<key: string, value: binary>>, got {kind}"
            )
        fields = array.values.flatten()
        names = [field.name for field in kind.value_type]
        keys = _Source.of(fields[names.index("key")], f"{name}.key")
        values = _Source.of(fields[names.index("value")], f"{name}.value")
        lists = _Source._build(array, _offsets(array), 0)
        headers = encode.Headers(lists.column, keys.column, values.column)
        return cls(headers, (keys, values, lists))


_NO_LISTS: Final = _Lists(encode.Headers(), ())


class _Records(NamedTuple):
    rows: int
    timestamps: I64
    values: _Source
    keys: _Source
    headers: _Lists


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        _is_text(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _has_offsets(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_string(kind)
        or types.is_large_binary(kind)
        or types.is_large_string(kind)
    )


def _offsets(array: pa.Array) -> I64:
    """The offsets of the visible rows as 64-bit numbers, so that one kernel handles both widths."""
    types = pa.types
    large = (
        types.is_large_binary(array.type)
        or types.is_large_string(array.type)
        or types.is_large_list(array.type)
    )
    in_view = slice(array.offset, array.offset + len(array) + 1)
    offsets = array.buffers()[1]
    if large:
        return np.frombuffer(offsets, np.int64)[in_view]
    wide = memory.allocate(len(array) + 1, np.int64)
    np.copyto(wide, np.frombuffer(offsets, np.int32)[in_view])
    return wide


def _timestamps(chunk: pa.RecordBatch, name: str | None, now_ms: int) -> I64:
    milliseconds = memory.allocate(chunk.num_rows, np.int64)
    if name is None:
        milliseconds.fill(now_ms)
        return milliseconds
    array = chunk.column(name)
    if pa.types.is_timestamp(array.type):
        times, divided_by = _MILLISECONDS[array.type.unit]
    elif pa.types.is_int64(array.type):
        times, divided_by = 1, 1
    else:
        raise UnsupportedColumn(f"column {name}: expected timestamp or int64, got {array.type}")
    filled = array.cast(pa.int64()).fill_null(0).to_numpy()
    np.multiply(filled, times, out=milliseconds)
    np.floor_divide(milliseconds, divided_by, out=milliseconds)
    if array.null_count:
        milliseconds[array.is_null().to_numpy(zero_copy_only=False)] = now_ms
    return milliseconds


def _encode(
    records: _Records, options: BatchOptions, sequence: int, max_batch_bytes: int
) -> list[memoryview]:
    rows = records.rows
    limit = min(max_batch_bytes, INT32_MAX) - HEADER_SIZE
    sizes = memory.allocate(rows, np.int32)
    starts, payloads, max_timestamps = (np.empty(rows, np.int64) for _ in range(3))
    columns = (
        records.timestamps,
        records.keys.column,
        records.values.column,
        records.headers.headers,
        sizes,
    )
    status, row, count = encode.measure(rows, limit, *columns, starts, payloads, max_timestamps)
    if status == encode.NULL_HEADER_KEY:
        raise NullHeaderKey(f"row {sequence + row}: expected a key for each header, got null")
    if status == encode.RECORD_TOO_LARGE:
        raise RecordTooLarge(
            f"row {sequence + row}: expected a record of at most {limit} bytes, got more"
        )
    output = memory.allocate(int(payloads[:count].sum()) + HEADER_SIZE * count, np.uint8)
    view = output.data
    target = address_of(output)
    batches = []
    position = 0
    for index in range(count):
        start = int(starts[index])
        stop = int(starts[index + 1]) if index + 1 < count else rows
        size = HEADER_SIZE + int(payloads[index])
        encode.write(start, stop, *columns, target + position + HEADER_SIZE)
        batch, codec = _compressed(view[position : position + size], options)
        times = int(records.timestamps[start]), int(max_timestamps[index])
        _seal(batch, codec, options, sequence + start, stop - start, times)
        batches.append(batch)
        position += size
    return batches


def _compressed(batch: memoryview, options: BatchOptions) -> tuple[memoryview, Codec]:
    if options.codec is not Codec.NONE:
        payload = batch[HEADER_SIZE:]
        block = compress(options.codec, payload, level=options.level)
        if len(block) < len(payload):
            return memoryview(bytearray(HEADER_SIZE) + block), options.codec
    return batch, Codec.NONE


def _seal(
    batch: memoryview,
    codec: Codec,
    options: BatchOptions,
    sequence: int,
    count: int,
    times: tuple[int, int],
) -> None:
    """Write the header of a batch whose records are in place."""
    if options.base_sequence == NO_SEQUENCE:
        base_sequence = NO_SEQUENCE
    else:
        base_sequence = (options.base_sequence + sequence) & MAX_SEQUENCE
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LENGTH_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        codec | (TRANSACTIONAL if options.transactional else 0),
        count - 1,
        *times,
        options.producer_id,
        options.producer_epoch,
        base_sequence,
        count,
    )
    _CRC.pack_into(batch, _CRC_AT, crc32c(batch[CRC_START:]))
