"""Reads single records of a batch; `builder` writes them.

This is the convenient way with one Python object per record, for coordinators, tests and small
consumers; bulk decoding and encoding is columnar and in `kernels`. Rules:

- Keys and values are `bytes`, copied out of the batch: a record is kept, compared and used as a
  dict key long after its buffer is needed, and a view would keep the whole buffer.
- Every length is checked against its record, every record against the batch, and the number of
  records against the header. Malformed bytes raise a BatchError, nothing else.
- Offset deltas rise strictly and stay within the header's last one; compaction leaves gaps.
- With log-append time all records have the batch's largest timestamp; their deltas are ignored.
- Header keys that are not UTF-8 are read with replacement characters, as Kafka's own reader does,
  so that one careless producer cannot stop all consumers.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.wire.compression import DECOMPRESSION_HARD_LIMIT, codec_of, decompress
from ottla.wire.errors import (
    InvalidVarint,
    LengthPastEnd,
    NegativeLength,
    RecordCountMismatch,
    RecordError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.wire.batch import RecordBatch

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Fields: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]

NO_TIMESTAMP: Final = -1
VARINT_BITS: Final = 32
VARLONG_BITS: Final = 64

CONTROL_KEY = struct.Struct(">hh")
MARKER_VALUE = struct.Struct(">hi")


class Record(NamedTuple):
    """One record with its place in the partition.

    The batch tells whether the producer or the broker set `timestamp`.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(IntEnum):
    """Kinds of control records; those from 2 on are for metadata logs."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecord(NamedTuple):
    """The one record of a control batch. Only transaction markers carry a coordinator epoch."""

    offset: int
    timestamp: int
    type: ControlType
    coordinator_epoch: int | None


def iter_records(batch: RecordBatch, *, limit: int = DECOMPRESSION_HARD_LIMIT) -> Iterator[Record]:
    """The records of `batch`, those of a control batch included; see `decompress` for `limit`."""
    return map(Record._make, iter_fields(batch, limit=limit))


def iter_fields(
    batch: RecordBatch, *, limit: int = DECOMPRESSION_HARD_LIMIT, first_offset: int = 0
) -> Iterator[Fields]:
    """Like `iter_records`, but yields the fields instead of `Record` objects.

    Records that must lie before `first_offset` are passed over by their lengths, unread; those that
    only may do so come, too.
    """
    where = f"batch at offset {batch.base_offset}"
    block = decompress(codec_of(batch.attributes), batch.payload, limit=limit, where=where)
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    reader = _RecordReader(block, where)
    data = bytes(block)
    last_delta = -1
    passed = 0
    if first_offset > batch.base_offset:
        # Deltas rise, so at most so many records are left from `first_offset` on.
        passed = max(0, batch.record_count - max(0, batch.last_offset - first_offset + 1))
        reader.skip(data, passed)
    for index in range(passed, batch.record_count):
        if reader.position == len(block):
            raise RecordCountMismatch(f"{batch.record_count} records", index, where)
        plain = _read_plain(data, reader.position)
        if plain is None:
            timestamp_delta, offset_delta, key, value, headers = reader.read()
        else:
            reader.start = reader.position
            reader.position, timestamp_delta, offset_delta, key, value = plain
            headers = ()
        if not last_delta < offset_delta <= batch.last_offset_delta:
            expected = f"an offset delta of {last_delta + 1} to {batch.last_offset_delta}"
            raise RecordError(expected, offset_delta, reader.where)
        last_delta = offset_delta
        yield (
            batch.base_offset + offset_delta,
            batch.base_timestamp + timestamp_delta if append_time is None else append_time,
            key,
            value,
            headers,
        )
    if batch.record_count < 0 or reader.position != len(block):
        got = f"{len(block) - reader.position} more bytes"
        raise RecordCountMismatch(f"{batch.record_count} records", got, where)


def read_control_record(batch: RecordBatch) -> ControlRecord:
    """The content of a control batch; kinds unknown to this version are UNKNOWN."""
    where = f"control batch at offset {batch.base_offset}"
    if not batch.is_control:
        raise RecordError("a control batch", f"attributes {batch.attributes:#06x}", where)
    if batch.record_count != 1:
        raise RecordCountMismatch("1 record", batch.record_count, where)
    (record,) = iter_records(batch)
    kind = _control_type(record, where)
    epoch = None
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        value = record.value or b""
        if len(value) < MARKER_VALUE.size:
            raise LengthPastEnd(f"a marker of {MARKER_VALUE.size} bytes", len(value), where)
        _, epoch = MARKER_VALUE.unpack_from(value)
    return ControlRecord(record.offset, record.timestamp, kind, epoch)


def _control_type(record: Record, where: str) -> ControlType:
    key = record.key or b""
    if len(key) < CONTROL_KEY.size:
        raise LengthPastEnd(f"a control key of {CONTROL_KEY.size} bytes", len(key), where)
    _, kind = CONTROL_KEY.unpack_from(key)
    try:
        return ControlType(kind)
    except ValueError:
        return ControlType.UNKNOWN


def _read_plain(data: bytes, at: int) -> tuple[int, int, int, bytes | None, bytes | None] | None:
    """The end, timestamp delta, offset delta, key and value of a plain record; else None.

    Most records are plain: all numbers in one or two bytes, none negative except the length of a
    null, no headers. All others, also invalid ones, are left to the much slower reader below.
    """
    try:
        size = data[at]
        at += 1
        if size > 127:
            size += (data[at] << 7) - 128
            at += 1
        end = at + (size >> 1)
        time = data[at + 1]
        at += 2
        if time > 127:
            time += (data[at] << 7) - 128
            at += 1
        delta = data[at]
        at += 1
        if delta > 127:
            delta += (data[at] << 7) - 128
            at += 1
        key_size = data[at]
        at += 1
        if key_size > 127:
            key_size += (data[at] << 7) - 128
            at += 1
        key_end = at + (key_size >> 1)
        value_size = data[key_end]
        start = key_end + 1
        if value_size > 127:
            value_size += (data[start] << 7) - 128
            start += 1
        value_end = start + (value_size >> 1)
        # A length of one stands for minus one, the null. Two bytes hold numbers below 2**14.
        is_plain = (
            value_end + 1 == end
            and data[value_end] == 0
            and size | time | delta | key_size | value_size < 1 << 14
            and not (size | time | delta) & 1
            and (key_size == 1 or not key_size & 1)
            and (value_size == 1 or not value_size & 1)
        )
    except IndexError:
        return None
    if not is_plain:
        return None
    key = None if key_size == 1 else data[at:key_end]
    value = None if value_size == 1 else data[start:value_end]
    return end, time >> 1, delta >> 1, key, value


class _RecordReader:
    """Reads a block record by record. No field may exceed `end`, the end of the current record."""

    __slots__ = ("_batch", "block", "end", "position", "start")

    def __init__(self, block: memoryview, where: str) -> None:
        self.block = block
        self.position = self.start = 0
        self.end = len(block)
        self._batch = where

    @property
    def where(self) -> str:
        return f"record at byte {self.start} of {self._batch}"

    def read(self) -> tuple[int, int, bytes | None, bytes | None, Headers]:
        """Timestamp delta, offset delta, key, value and headers of the next record."""
        self.start = self.position
        self.end = len(self.block)
        self.end = self._end_of("record", self._varint())
        self._skip_attributes()
        timestamp_delta = self._varint(VARLONG_BITS)
        offset_delta = self._varint()
        key = self._nullable_bytes("key")
        value = self._nullable_bytes("value")
        headers = self._headers()
        if self.position != self.end:
            left = f"{self.end - self.position} more bytes"
            raise RecordError("the record to end with its headers", left, self.where)
        return timestamp_delta, offset_delta, key, value, headers

    def skip(self, data: bytes, count: int) -> None:
        """Pass over so many records of the block, whose bytes are `data`."""
        at = self.position
        try:
            for _ in range(count):
                size = data[at]
                if size < 128 and not size & 1:
                    at += 1 + (size >> 1)
                elif not size & 1 and data[at + 1] < 128:
                    at += 2 + ((size + (data[at + 1] << 7) - 128) >> 1)
                else:
                    self.position = self.start = at
                    at = self._end_of("record", self._varint())
        except IndexError:
            at = len(data) + 1
        if at > len(data):
            raise LengthPastEnd(f"{count} records", "the end of the batch", self.where)
        self.position = at

    def _skip_attributes(self) -> None:
        if self.position == self.end:
            raise LengthPastEnd("the attributes", "the end of the record", self.where)
        self.position += 1

    def _headers(self) -> Headers:
        count = self._varint()
        if count < 0:
            raise NegativeLength("a header count of 0 or more", count, self.where)
        return tuple(self._header() for _ in range(count))

    def _header(self) -> tuple[str, bytes | None]:
        key = self._bytes("header key", self._varint())
        return key.decode("utf-8", "replace"), self._nullable_bytes("header value")

    def _nullable_bytes(self, what: str) -> bytes | None:
        length = self._varint()
        return None if length == -1 else self._bytes(what, length)

    def _bytes(self, what: str, length: int) -> bytes:
        start, self.position = self.position, self._end_of(what, length)
        return self.block[start : self.position].tobytes()

    def _end_of(self, what: str, length: int) -> int:
        if length < 0:
            raise NegativeLength(f"a {what} length of 0 or more", length, self.where)
        end = self.position + length
        if end > self.end:
            left = self.end - self.position
            raise LengthPastEnd(f"a {what} of at most {left} bytes", length, self.where)
        return end

    def _varint(self, bits: int = VARINT_BITS) -> int:
        """A zigzag number of `bits` bits, in groups of seven with the lowest first."""
        raw = shift = 0
        for position in range(self.position, self.end):
            byte = self.block[position]
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if raw >> bits:
                    break
                self.position = position + 1
                return (raw >> 1) ^ -(raw & 1)
            if shift >= bits:
                break
        raise InvalidVarint(f"a number of {bits} bits", f"the bytes at {self.position}", self.where)
