"""Records to columns: one pass that finds and checks everything, then one copy per column.

The pass reads payloads (uncompressed records) by address, so the bytes of many fetches need not be
contiguous. It writes fixed-width values directly; for variable ones it notes their address and
their end in the column, and `jit.gather` then copies each once.

A record is `varint length, int8 attributes, varlong timestamp delta, varint offset delta, key,
value, varint header count, headers`; key and value are a varint length (-1 for null) and bytes.
Offsets and timestamps wrap around at 64 bits, as they do in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.wire.kernels.jit import (
    INT32_MAX,
    byte_at,
    inlined,
    kernel,
    store_i8,
    store_i32,
    store_i64,
)
from ottla.wire.walk import MAX_ATTRIBUTES, MIN_HEADER_SIZE

if TYPE_CHECKING:
    from ottla.wire.kernels.jit import I32, I64

NOT_WANTED: Final = 0
"""The address of a column that is not to be written."""

# Fields of a plan's row: one batch each.
ADDRESS, SIZE, COUNT, BASE_OFFSET, BASE_TIMESTAMP, LOG_APPEND_TIME = range(6)
PLAN_FIELDS: Final = 6

# Status codes; `validate.record_error` gives each its exception.
OK: Final = 0
BAD_VARINT: Final = 1
NEGATIVE_LENGTH: Final = 2
LENGTH_PAST_END: Final = 3
TOO_FEW_RECORDS: Final = 4
TOO_MANY_RECORDS: Final = 5
RECORD_SIZE: Final = 6
TIMESTAMP_RANGE: Final = 7
COLUMN_TOO_LARGE: Final = 8
OFFSET_DELTA: Final = 9
BAD_ATTRIBUTES: Final = 10

MAX_INT64: Final = 0x7FFFFFFFFFFFFFFF
MIN_INT64: Final = -0x8000000000000000
MICROSECONDS: Final = 1000
MAX_TIMESTAMP_MS: Final = MAX_INT64 // MICROSECONDS
"""Later timestamps (after the year 294,247) have no value in microseconds."""


class Record(NamedTuple):
    """A record's parts by address.

    If the status is not OK, `end` is the place of the error, `detail` the value found there, and
    the other fields are undefined.
    """

    status: int
    end: int
    detail: int
    timestamp_delta: int
    offset_delta: int
    key: int
    key_length: int
    value: int
    value_length: int
    headers: int
    header_count: int


class Fixed(NamedTuple):
    """Addresses of the arrays of numbers."""

    offsets: int = NOT_WANTED
    timestamps: int = NOT_WANTED
    timestamp_types: int = NOT_WANTED


class Pieces(NamedTuple):
    """Addresses of the arrays that describe a column before its bytes are gathered.

    Piece i lies at the address sources[i] and ends at ends[i + 1] of the column. The caller sets
    ends[0] and the bitmap `valid` to zero.
    """

    sources: int = NOT_WANTED
    ends: int = NOT_WANTED
    valid: int = NOT_WANTED


@kernel
def _long_varint(position: int, end: int, bits: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while position < end:
        byte = byte_at(position)
        # The last allowed byte of a type has room for some bits only, and no continuation bit.
        if shift + 7 > bits and byte >> (bits - shift):
            return 0, -1
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return ((value >> 1) & MAX_INT64) ^ -(value & 1), position
        shift += 7
    return 0, -1


@inlined
def _varint(position: int, end: int, bits: int) -> tuple[int, int]:
    """The zigzag varint of at most `bits` bits at `position`, and what follows it (-1: bad)."""
    if position < end:
        low = byte_at(position)
        if low < 0x80:
            return (low >> 1) ^ -(low & 1), position + 1
        if position + 1 < end:
            high = byte_at(position + 1)
            if high < 0x80:
                value = (low & 0x7F) | (high << 7)
                return (value >> 1) ^ -(value & 1), position + 2
    return _long_varint(position, end, bits)


@inlined
def _span(position: int, end: int, least: int) -> tuple[int, int, int, int]:
    """A length of at least `least` and its bytes: (status, begin, length, what follows)."""
    length, begin = _varint(position, end, 32)
    if begin < 0:
        return BAD_VARINT, position, 0, position
    if length < least:
        return NEGATIVE_LENGTH, position, length, position
    if length > end - begin:
        return LENGTH_PAST_END, position, length, position
    return OK, begin, length, begin + max(length, 0)


@kernel
def _walk_headers(position: int, end: int, count: int) -> tuple[int, int, int]:
    """Check `count` headers that must fill up to `end`: (status, position, detail)."""
    for _ in range(count):
        status, _begin, length, follows = _span(position, end, 0)
        if status != OK:
            return status, position, length
        position = follows
        status, _begin, length, follows = _span(position, end, -1)
        if status != OK:
            return status, position, length
        position = follows
    if position != end:
        return RECORD_SIZE, position, end - position
    return OK, position, 0


@inlined
def _bad(status: int, position: int, detail: int) -> Record:
    return Record(status, position, detail, 0, 0, 0, 0, 0, 0, 0, 0)


@inlined
def _record(start: int, limit: int) -> Record:
    """Check the record at `start`, whole."""
    status, begin, length, end = _span(start, limit, 0)
    if status != OK:
        return _bad(status, start, length)
    if length == 0:
        return _bad(LENGTH_PAST_END, begin, 1)
    position = begin + 1
    timestamp_delta, follows = _varint(position, end, 64)
    if follows < 0:
        return _bad(BAD_VARINT, position, 0)
    position = follows
    offset_delta, follows = _varint(position, end, 32)
    if follows < 0:
        return _bad(BAD_VARINT, position, 0)
    status, key, key_length, position = _span(follows, end, -1)
    if status != OK:
        return _bad(status, position, key_length)
    status, value, value_length, position = _span(position, end, -1)
    if status != OK:
        return _bad(status, position, value_length)
    count, headers = _varint(position, end, 32)
    if headers < 0:
        return _bad(BAD_VARINT, position, 0)
    if count < 0:
        return _bad(NEGATIVE_LENGTH, position, count)
    if count > (end - headers) // MIN_HEADER_SIZE:
        return _bad(LENGTH_PAST_END, position, count)
    if count == 0 and headers == end:
        detail = 0
    else:  # records without headers need not pay for the call
        status, end, detail = _walk_headers(headers, end, count)
    return Record(
        status,
        end,
        detail,
        timestamp_delta,
        offset_delta,
        key,
        key_length,
        value,
        value_length,
        headers,
        count,
    )


@inlined
def _put_fixed(fixed: Fixed, row: int, offset: int, timestamp: int, log_append_time: int) -> bool:
    """Write the numbers of `row`; False if its timestamp has no value in microseconds."""
    if fixed.offsets != NOT_WANTED:
        store_i64(fixed.offsets, row, offset)
    if fixed.timestamp_types != NOT_WANTED:
        store_i32(fixed.timestamp_types, row, log_append_time)
    if fixed.timestamps != NOT_WANTED:
        if timestamp > MAX_TIMESTAMP_MS or timestamp < -MAX_TIMESTAMP_MS:
            return False
        store_i64(fixed.timestamps, row, timestamp * MICROSECONDS)
    return True


@inlined
def _put(column: Pieces, row: int, end: int, address: int, length: int) -> int:
    """Note the address of the bytes of `row`; returns their end in the column."""
    if column.sources == NOT_WANTED:
        return end
    store_i64(column.sources, row, address)
    if length >= 0:
        end += length
        byte = column.valid + (row >> 3)
        store_i8(byte, 0, byte_at(byte) | 1 << (row & 7))
    store_i32(column.ends, row + 1, end)
    return end


@kernel
def scan(
    plan: I64,
    start_offset: int,
    end_offset: int,
    fixed: Fixed,
    keys: Pieces,
    values: Pieces,
    headers: Pieces,
) -> tuple[int, int, int, int, int, int]:
    """Walk every batch of `plan`, write the rows with start_offset <= offset < end_offset.

    The arrays at the addresses have room for all records of the plan. The pieces of `headers` are
    the headers of a row, with their number as length. With log append time, the plan's base
    timestamp is the batch's largest.

    Returns (status, batch, record, position, detail, rows).
    """
    row = 0
    key_end = 0
    value_end = 0
    header_end = 0
    for batch in range(plan.shape[0]):
        address = plan[batch, ADDRESS]
        limit = address + plan[batch, SIZE]
        count = plan[batch, COUNT]
        base_offset = plan[batch, BASE_OFFSET]
        base_timestamp = plan[batch, BASE_TIMESTAMP]
        log_append_time = plan[batch, LOG_APPEND_TIME]
        position = address
        for index in range(count):
            if position == limit:
                return TOO_FEW_RECORDS, batch, index, 0, count, 0
            record = _record(position, limit)
            position = record.end
            if record.status != OK:
                return record.status, batch, index, position - address, record.detail, 0
            offset = base_offset + record.offset_delta
            if offset < start_offset or offset >= end_offset:
                continue
            timestamp = base_timestamp + record.timestamp_delta * (1 - log_append_time)
            if not _put_fixed(fixed, row, offset, timestamp, log_append_time):
                return TIMESTAMP_RANGE, batch, index, position - address, timestamp, 0
            key_end = _put(keys, row, key_end, record.key, record.key_length)
            value_end = _put(values, row, value_end, record.value, record.value_length)
            # No headers read as null, as they do in Spark's own Kafka source.
            header_count = record.header_count or -1
            header_end = _put(headers, row, header_end, record.headers, header_count)
            if max(key_end, value_end, header_end) > INT32_MAX:
                return COLUMN_TOO_LARGE, batch, index, 0, 0, 0
            row += 1
        if position != limit:
            return TOO_MANY_RECORDS, batch, count, 0, limit - position, 0
    return OK, 0, 0, 0, 0, row


@kernel
def scan_headers(sources: I64, ends: I32, rows: int, keys: Pieces, values: Pieces) -> bool:
    """Find the keys and values of all headers that `scan` found and checked.

    Returns whether they fit into a column each.
    """
    header = 0
    key_end = 0
    value_end = 0
    for row in range(rows):
        position = sources[row]
        for _ in range(ends[row + 1] - ends[row]):
            _status, begin, length, position = _span(position, MAX_INT64, 0)
            key_end = _put(keys, header, key_end, begin, length)
            _status, begin, length, position = _span(position, MAX_INT64, -1)
            value_end = _put(values, header, value_end, begin, length)
            if max(key_end, value_end) > INT32_MAX:
                return False
            header += 1
    return True


@kernel
def summarize(address: int, size: int, count: int) -> tuple[int, int, int, int, int, int, int]:
    """Check the records of one batch without writing.

    Returns (status, record, position, detail, null keys, largest timestamp delta, smallest one
    but no more than 0). The rules are those of `walk`, which are stricter than a reader's.
    """
    position = address
    limit = address + size
    null_keys = 0
    largest = MIN_INT64
    smallest = 0
    for index in range(count):
        if position == limit:
            return TOO_FEW_RECORDS, index, 0, count, 0, 0, 0
        record = _record(position, limit)
        if record.status != OK:
            return record.status, index, record.end - address, record.detail, 0, 0, 0
        attributes = byte_at(_varint(position, limit, 32)[1])
        if attributes > MAX_ATTRIBUTES:
            return BAD_ATTRIBUTES, index, position - address, attributes, 0, 0, 0
        if record.offset_delta != index:
            return OFFSET_DELTA, index, position - address, record.offset_delta, 0, 0, 0
        position = record.end
        null_keys += record.key_length < 0
        largest = max(largest, record.timestamp_delta)
        smallest = min(smallest, record.timestamp_delta)
    if position != limit:
        return TOO_MANY_RECORDS, count, 0, limit - position, 0, 0, 0
    return OK, 0, 0, 0, null_keys, largest, smallest
