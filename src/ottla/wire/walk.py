"""Check the records of one batch in plain Python, without creating objects.

For a process that does not load compiled kernels, such as a broker at its defaults. The results
equal those of `kernels.validate.validate_records`, at 0.6 microseconds per record instead of 0.01.
`records.iter_records` and every client can read a batch that passes:

- Every varint fits its type and ends within its record; every length stays within its record;
  every record ends where its length says; the records fill the block exactly, as many as counted.
- Lengths are 0 or more, -1 for a key, value or header value that is null.
- Attributes are below 128: no bit is assigned, and two clients read them as a varint.
- Offset deltas are 0, 1, 2 and so on: a producer leaves no gaps, only compaction does.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from ottla.wire.errors import (
    InvalidVarint,
    LengthPastEnd,
    NegativeLength,
    RecordCountMismatch,
    RecordError,
)
from ottla.wire.records import VARINT_BITS, VARLONG_BITS

MIN_RECORD_SIZE: Final = 7
"""One byte for each of the seven fields."""

MIN_HEADER_SIZE: Final = 2
MAX_ATTRIBUTES: Final = 127

Block: TypeAlias = bytes | bytearray | memoryview

_TWO_BYTES: Final = (1 << 14) - 1  # the largest number in two bytes of a varint


class RecordsSummary(NamedTuple):
    """The result of a check. Both deltas are relative to the batch's base timestamp."""

    null_keys: int
    max_timestamp_delta: int
    min_timestamp_delta: int  # 0 unless a record is older than the base timestamp


def check_record_count(count: int, size: int, where: str) -> None:
    """Refuse a count that `size` bytes of records cannot hold, before memory is allocated."""
    most = size // MIN_RECORD_SIZE
    if not 0 <= count <= most:
        raise RecordCountMismatch(f"0 to {most} records in {size} bytes", count, where)


def walk_records(block: Block, count: int, *, where: str = "records") -> RecordsSummary:
    """Check the `count` records that must fill the uncompressed `block`."""
    if count * MIN_RECORD_SIZE > len(block):
        check_record_count(count, len(block), where)
    end, summary = _walk(block, count, where)
    if end != len(block):
        raise RecordCountMismatch(f"{count} records", f"{len(block) - end} more bytes", where)
    return summary


def _walk(data: Block, count: int, where: str) -> tuple[int, RecordsSummary]:
    """Most records are plain: numbers in one or two bytes, no headers, no time before the base.

    Their checks are written out here, because a call for each varint would take five times as long.
    All others, also invalid ones, are left to `_any_record`.
    """
    at = null_keys = newest = oldest = 0
    first = True
    for zigzag_index in range(0, 2 * count, 2):
        start = at
        try:
            size = data[at]
            if size > 127:
                at += 1
                size += (data[at] << 7) - 128
            end = at + 1 + (size >> 1)
            attributes = data[at + 1]
            time = data[at + 2]
            at += 3
            if time > 127:
                time += (data[at] << 7) - 128
                at += 1
            delta = data[at]
            if delta > 127:
                at += 1
                delta += (data[at] << 7) - 128
                if delta > _TWO_BYTES:  # a third byte: batches of more than 8,192 records
                    at += 1
                    delta += (data[at] << 14) - (1 << 14)
            key = data[at + 1]
            if key > 127:
                at += 1
                key += (data[at + 1] << 7) - 128
            at += 2 + (key >> 1)
            value = data[at]
            if value > 127:
                at += 1
                value += (data[at] << 7) - 128
            at += 2 + (value >> 1)
            # An odd number is a negative one; 1 stands for -1, the length of a null.
            plain = (
                at == end
                and delta == zigzag_index
                and attributes <= MAX_ATTRIBUTES
                and not data[end - 1]
                and size | time | key | value <= _TWO_BYTES
                and not (size | time) & 1
                and (not key & 1 or key == 1)
                and (not value & 1 or value == 1)
            )
        except IndexError:
            plain = False
        if plain:
            timestamp = time >> 1
            is_null = key == 1
        else:
            at, timestamp, is_null = _any_record(data, start, zigzag_index, where)
            oldest = min(oldest, timestamp)
        if is_null:
            null_keys += 1
        if timestamp > newest or first:
            newest = timestamp
            first = False
    return at, RecordsSummary(null_keys, newest, oldest)


def _any_record(data: Block, start: int, zigzag_index: int, where: str) -> tuple[int, int, bool]:
    """Check the record at `start`: its end, its timestamp delta, and whether its key is null."""
    if start == len(data):
        raise RecordCountMismatch(f"more than {zigzag_index >> 1} records", "the end", where)
    where = f"{where}, record {zigzag_index >> 1}, byte {start}"
    end, at = _span(data, start, len(data), 0, where)
    if at == end:
        raise LengthPastEnd("the attributes", "the end of the record", where)
    attributes = data[at]
    timestamp, at = _varint(data, at + 1, end, VARLONG_BITS, where)
    delta, at = _varint(data, at, end, VARINT_BITS, where)
    key_at = at
    at, begin = _span(data, at, end, -1, where)
    is_null = begin == at and data[key_at] & 1 == 1
    at, _ = _span(data, at, end, -1, where)
    count, at = _varint(data, at, end, VARINT_BITS, where)
    if count < 0:
        raise NegativeLength("a header count of 0 or more", count, where)
    if count > (end - at) // MIN_HEADER_SIZE:
        raise LengthPastEnd(f"at most {(end - at) // MIN_HEADER_SIZE} headers", count, where)
    for _ in range(count):
        at, _ = _span(data, at, end, 0, where)
        at, _ = _span(data, at, end, -1, where)
    if at != end:
        raise RecordError("the record to end with its headers", f"{end - at} more bytes", where)
    if attributes > MAX_ATTRIBUTES:
        raise RecordError(f"attributes of 0 to {MAX_ATTRIBUTES}", attributes, where)
    if 2 * delta != zigzag_index:
        raise RecordError(f"an offset delta of {zigzag_index >> 1}", delta, where)
    return end, timestamp, is_null


def _span(data: Block, at: int, limit: int, least: int, where: str) -> tuple[int, int]:
    """End and begin of the bytes whose length is stored at `at`; at least `least`."""
    length, begin = _varint(data, at, limit, VARINT_BITS, where)
    if length < least:
        raise NegativeLength(f"a length of {least} or more", length, where)
    if length > limit - begin:
        raise LengthPastEnd(f"a length of at most {limit - begin}", length, where)
    return begin + max(length, 0), begin


def _varint(data: Block, at: int, limit: int, bits: int, where: str) -> tuple[int, int]:
    """The zigzag number of at most `bits` bits at `at`, and where it ends."""
    raw = shift = 0
    for position in range(at, limit):
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), position + 1
        if shift >= bits:
            break
    raise InvalidVarint(f"a number of {bits} bits", f"the bytes at {at}", where)
