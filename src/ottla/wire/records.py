"""Single records: read out of a batch, and built into one.

This is the convenient path, one Python object per record, for coordinators, tests and small
consumers; bulk reading and writing is columnar and lives in `kernels`. Rules:

- Keys and values are `bytes`, copied out of the batch: a record is kept, compared and used as a
  dict key long after the buffer that carried it is gone, and a view would hold all of that buffer.
- Every length is checked against the record it stands in, every record against the batch, and the
  number of records against the header. Malformed bytes raise a BatchError, nothing else.
- Offset deltas rise strictly and stay within the header's last one; compaction leaves gaps.
- With log-append time all records carry the batch's largest timestamp, whatever their deltas say.
- Header keys that are not UTF-8 are read with replacement characters, as Kafka's own reader does,
  so that one careless producer cannot stop every consumer behind it.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from crc32c import crc32c

from ottla.wire.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    RecordBatch,
)
from ottla.wire.compression import (
    DECOMPRESSION_HARD_LIMIT,
    Codec,
    codec_of,
    compress,
    decompress,
)
from ottla.wire.errors import (
    InvalidVarint,
    LengthPastEnd,
    NegativeLength,
    RecordCountMismatch,
    RecordError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Fields: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]

NO_TIMESTAMP: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_LEADER_EPOCH: Final = -1
VARINT_BITS: Final = 32
VARLONG_BITS: Final = 64

_CRC = struct.Struct(">I")
_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_MAX_OFFSET_DELTA: Final = 0x7FFFFFFF


class Record(NamedTuple):
    """One record with its place in the partition. Whose clock `timestamp` is, the batch knows."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(IntEnum):
    """What a control batch says; the kinds from 2 on belong to a metadata log."""

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


def iter_fields(batch: RecordBatch, *, limit: int = DECOMPRESSION_HARD_LIMIT) -> Iterator[Fields]:
    """As `iter_records`, for those who make something else of the fields of a `Record`."""
    where = f"batch at offset {batch.base_offset}"
    block = decompress(codec_of(batch.attributes), batch.payload, limit=limit, where=where)
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    reader = _RecordReader(block, where)
    data = bytes(block)
    last_delta = -1
    for index in range(batch.record_count):
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
    """What a control batch says. Kinds that came later than this code read as UNKNOWN."""
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
        if len(value) < _MARKER_VALUE.size:
            raise LengthPastEnd(f"a marker of {_MARKER_VALUE.size} bytes", len(value), where)
        _, epoch = _MARKER_VALUE.unpack_from(value)
    return ControlRecord(record.offset, record.timestamp, kind, epoch)


def control_type(batch: RecordBatch) -> ControlType:
    """The kind of a control batch: whether a transaction ends in COMMIT or ABORT."""
    return read_control_record(batch).type


def _control_type(record: Record, where: str) -> ControlType:
    key = record.key or b""
    if len(key) < _CONTROL_KEY.size:
        raise LengthPastEnd(f"a control key of {_CONTROL_KEY.size} bytes", len(key), where)
    _, kind = _CONTROL_KEY.unpack_from(key)
    try:
        return ControlType(kind)
    except ValueError:
        return ControlType.UNKNOWN


def _read_plain(data: bytes, at: int) -> tuple[int, int, int, bytes | None, bytes | None] | None:
    """Where the record ends, timestamp delta, offset delta, key and value, if it is a plain one.

    Most are: all numbers in one or two bytes, none negative but the length of a null, no headers.
    Whatever is not, bad bytes included, is left to the reader below, which takes far longer.
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
    """Walks over a block. No field may reach past `end`, where the record at hand says it ends."""

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


class BatchBuilder:
    """Collects records and writes them as one batch.

    The first record's timestamp becomes the base timestamp. A record without an offset gets the
    one after the last.
    """

    def __init__(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        base_offset: int = 0,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
    ) -> None:
        self._codec = codec
        self._level = level
        self._base_offset = base_offset
        self._leader_epoch = partition_leader_epoch
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._attributes = (
            codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
        )
        self._records = bytearray()
        self._count = 0
        self._last_offset_delta = -1
        self._base_timestamp = self._max_timestamp = NO_TIMESTAMP

    def __len__(self) -> int:
        return self._count

    @property
    def uncompressed_size(self) -> int:
        """The size of the batch as it stands, before compression."""
        return HEADER_SIZE + len(self._records)

    def append(
        self,
        value: bytes | None,
        *,
        timestamp: int,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        offset: int | None = None,
    ) -> int:
        """Add a record; returns its offset."""
        if offset is None:
            offset = self._base_offset + self._last_offset_delta + 1
        offset_delta = offset - self._base_offset
        if not self._last_offset_delta < offset_delta <= _MAX_OFFSET_DELTA:
            lowest = self._base_offset + self._last_offset_delta + 1
            raise ValueError(f"offset {offset} cannot follow in this batch; the next is {lowest}")
        if not self._count:
            self._base_timestamp = timestamp
        body = bytearray(1)  # attributes, of which none is assigned
        _put_varint(body, timestamp - self._base_timestamp)
        _put_varint(body, offset_delta)
        _put_bytes(body, key)
        _put_bytes(body, value)
        headers = tuple(headers)
        _put_varint(body, len(headers))
        for name, content in headers:
            _put_bytes(body, name.encode())
            _put_bytes(body, content)
        _put_varint(self._records, len(body))
        self._records += body
        self._count += 1
        self._last_offset_delta = offset_delta
        self._max_timestamp = max(self._max_timestamp, timestamp)
        return offset

    def build(self) -> bytearray:
        """The batch so far, CRC included; appending may go on."""
        block = compress(self._codec, self._records, level=self._level)
        batch = bytearray(HEADER_SIZE + len(block))
        batch[HEADER_SIZE:] = block
        block.release()  # without a codec it is a view of the records, which may still grow
        fields = (
            self._attributes,
            self._last_offset_delta,
            self._base_timestamp,
            self._max_timestamp,
            *self._producer,
            self._count,
        )
        length = len(batch) - LENGTH_OVERHEAD
        HEADER.pack_into(batch, 0, self._base_offset, length, self._leader_epoch, MAGIC, 0, *fields)
        _CRC.pack_into(batch, CRC_START - _CRC.size, crc32c(memoryview(batch)[CRC_START:]))
        return batch


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


def build_control_batch(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The marker that ends a transaction on a partition: `kind` is COMMIT or ABORT."""
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise ValueError(f"a transaction ends in COMMIT or ABORT, not in {kind.name}")
    builder = BatchBuilder(
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    builder.append(
        _MARKER_VALUE.pack(0, coordinator_epoch),
        key=_CONTROL_KEY.pack(0, kind),
        timestamp=timestamp,
    )
    return builder.build()


def _put_varint(out: bytearray, value: int) -> None:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        _put_varint(out, -1)
    else:
        _put_varint(out, len(data))
        out += data
