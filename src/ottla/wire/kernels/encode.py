"""Columns to records: one pass that measures and cuts into batches, one that writes.

Columns are addresses of Arrow's buffers. They are not checked, as in Arrow's own functions: callers
must validate arrays from untrusted sources first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ottla.wire.kernels.jit import (
    byte_at,
    copy_bytes,
    inlined,
    kernel,
    load_i64,
    store_i8,
)

if TYPE_CHECKING:
    from ottla.wire.kernels.jit import I32, I64

ABSENT: Final = 0
"""The address of absent data: a column of nulls, or a bitmap without nulls."""

OK: Final = 0
RECORD_TOO_LARGE: Final = 1
NULL_HEADER_KEY: Final = 2

_BAD_HEADER: Final = -1


class Column(NamedTuple):
    """A column of variable length: 64-bit offsets, bytes, and a bitmap read from bit `first`."""

    offsets: int = ABSENT
    data: int = ABSENT
    valid: int = ABSENT
    first: int = 0


class Headers(NamedTuple):
    """Lists of headers (a column whose data are counted, not addressed), their keys and values."""

    lists: Column = Column()
    keys: Column = Column()
    values: Column = Column()


@inlined
def _zigzag(value: int) -> np.uint64:
    return np.uint64((value << 1) ^ (value >> 63))


@inlined
def _varint_size(value: int) -> int:
    rest = _zigzag(value) >> np.uint64(7)
    size = 1
    while rest:
        rest >>= np.uint64(7)
        size += 1
    return size


@inlined
def _length(column: Column, row: int) -> int:
    """-1 for null."""
    if column.offsets == ABSENT:
        return -1
    if column.valid != ABSENT:
        bit = column.first + row
        if not byte_at(column.valid + (bit >> 3)) >> (bit & 7) & 1:
            return -1
    return load_i64(column.offsets, row + 1) - load_i64(column.offsets, row)


@inlined
def _piece_size(length: int) -> int:
    return _varint_size(length) + max(length, 0)


@kernel
def _headers_size(headers: Headers, row: int) -> int:
    first = load_i64(headers.lists.offsets, row)
    size = 0
    for header in range(first, first + _length(headers.lists, row)):
        key_length = _length(headers.keys, header)
        if key_length < 0:
            return _BAD_HEADER
        size += _piece_size(key_length) + _piece_size(_length(headers.values, header))
    return size


@kernel
def measure(
    rows: int,
    limit: int,
    timestamps: I64,
    keys: Column,
    values: Column,
    headers: Headers,
    sizes: I32,
    starts: I64,
    payloads: I64,
    max_timestamps: I64,
) -> tuple[int, int, int]:
    """Cut into batches of at most `limit` bytes of records; their base timestamp is the first.

    Writes each record's size (without its own length), each batch's first row, bytes and largest
    timestamp. Returns (status, row, batches).
    """
    batch = -1
    used = limit
    first = 0
    for row in range(rows):
        content = _piece_size(_length(keys, row)) + _piece_size(_length(values, row)) + 1
        count = _length(headers.lists, row)
        if count > 0:
            header_bytes = _headers_size(headers, row)
            if header_bytes == _BAD_HEADER:
                return NULL_HEADER_KEY, row, 0
            content += _varint_size(count) - 1 + header_bytes
        delta = timestamps[row] - timestamps[first]
        size = 1 + _varint_size(delta) + _varint_size(row - first) + content
        whole = _varint_size(size) + size
        if used + whole > limit:
            size = 3 + content  # deltas of zero
            whole = _varint_size(size) + size
            if whole > limit:
                return RECORD_TOO_LARGE, row, 0
            batch += 1
            used = 0
            first = row
            starts[batch] = row
            max_timestamps[batch] = timestamps[row]
        used += whole
        sizes[row] = size
        payloads[batch] = used
        max_timestamps[batch] = max(max_timestamps[batch], timestamps[row])
    return OK, 0, batch + 1


@inlined
def _write_varint(position: int, value: int) -> int:
    rest = _zigzag(value)
    while rest >= np.uint64(0x80):
        store_i8(position, 0, int(rest | np.uint64(0x80)))
        rest >>= np.uint64(7)
        position += 1
    store_i8(position, 0, int(rest))
    return position + 1


@inlined
def _write_piece(position: int, column: Column, row: int) -> int:
    length = _length(column, row)
    position = _write_varint(position, length)
    if length > 0:
        copy_bytes(position, column.data + load_i64(column.offsets, row), length)
        position += length
    return position


@kernel
def _write_headers(position: int, headers: Headers, row: int, count: int) -> int:
    position = _write_varint(position, count)
    first = load_i64(headers.lists.offsets, row)
    for header in range(first, first + count):
        position = _write_piece(position, headers.keys, header)
        position = _write_piece(position, headers.values, header)
    return position


@kernel
def write(
    start: int,
    stop: int,
    timestamps: I64,
    keys: Column,
    values: Column,
    headers: Headers,
    sizes: I32,
    target: int,
) -> None:
    """Write the records of one batch, rows start to stop, at `target`; `measure` made room."""
    position = target
    for row in range(start, stop):
        position = _write_varint(position, sizes[row])
        store_i8(position, 0, 0)
        position = _write_varint(position + 1, timestamps[row] - timestamps[start])
        position = _write_varint(position, row - start)
        position = _write_piece(position, keys, row)
        position = _write_piece(position, values, row)
        count = _length(headers.lists, row)
        if count > 0:
            position = _write_headers(position, headers, row, count)
        else:
            store_i8(position, 0, 0)
            position += 1
