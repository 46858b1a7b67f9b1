"""Record batches of message format v2, as views of their bytes.

Layout (big endian, 61 bytes, then the records or one compressed block of them)::

    0 base_offset q | 8 batch_length i | 12 partition_leader_epoch i | 16 magic b | 17 crc I
    21 attributes h | 23 last_offset_delta i | 27 base_timestamp q | 35 max_timestamp q
    43 producer_id q | 51 producer_epoch h | 53 base_sequence i | 57 record_count i

The CRC-32C covers byte 21 to the end, so base offset and leader epoch can be patched without a
second pass over the data.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from ottla.wire.errors import CrcMismatch, InvalidBatchLength, TruncatedBatch, UnsupportedMagic

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
MAGIC_OFFSET: Final = 16  # in every message format there has been
LENGTH_OVERHEAD: Final = 12  # base_offset and batch_length are not counted by batch_length
MIN_BATCH_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD
CRC_START: Final = 21
MIN_LEGACY_LENGTH: Final = 14  # of a message of format v0; v1 has eight bytes more
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = 0x7FFFFFFF

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_LENGTH = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class RecordBatch:
    """One batch with an unpacked header; records are not read. `data` is exactly its bytes."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "data",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, data: memoryview) -> None:
        self.data = data
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(data)

    def __repr__(self) -> str:
        return (
            f"<RecordBatch offsets {self.base_offset}..{self.last_offset} "
            f"records {self.record_count} bytes {self.size}>"
        )

    @property
    def size(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2147483647 to 0; a batch without a producer has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones; once set, base_timestamp holds it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def payload(self) -> memoryview:
        """The records, or the compressed block."""
        return self.data[HEADER_SIZE:]

    def verify_crc(self) -> None:
        """Raise CrcMismatch unless the stored CRC matches the bytes."""
        computed = crc32c(self.data[CRC_START:])
        if computed != self.crc:
            raise CrcMismatch(f"{self.crc:#010x}", f"{computed:#010x}", self._where())

    def assign(self, base_offset: int, partition_leader_epoch: int) -> None:
        """Write the offset and epoch that the log assigned; the CRC does not cover them."""
        _I64.pack_into(self.data, 0, base_offset)
        _I32.pack_into(self.data, 12, partition_leader_epoch)
        self.base_offset = base_offset
        self.partition_leader_epoch = partition_leader_epoch

    def set_max_timestamp(self, timestamp_ms: int, *, log_append_time: bool) -> None:
        """Write the largest timestamp and its type, and a new CRC."""
        attributes = self.attributes & ~LOG_APPEND_TIME
        if log_append_time:
            attributes |= LOG_APPEND_TIME
        _I16.pack_into(self.data, 21, attributes)
        _I64.pack_into(self.data, 35, timestamp_ms)
        self.attributes = attributes
        self.max_timestamp = timestamp_ms
        self.crc = crc32c(self.data[CRC_START:])
        _CRC.pack_into(self.data, 17, self.crc)

    def _where(self) -> str:
        return f"batch at offset {self.base_offset}"


def batch_size_at(buffer: memoryview, position: int) -> int:
    """The whole size of the batch at `position`; raises if it is below the minimum."""
    left = len(buffer) - position
    if left < LENGTH_OVERHEAD:
        raise TruncatedBatch(f"{LENGTH_OVERHEAD} bytes", left, f"batch at byte {position}")
    _, batch_length = _LENGTH.unpack_from(buffer, position)
    if batch_length < MIN_BATCH_LENGTH:
        # A message of an older format may be shorter than this header: report the format instead.
        if batch_length >= MIN_LEGACY_LENGTH and left > MAGIC_OFFSET:
            _check_magic(buffer, position)
        raise InvalidBatchLength(
            f"at least {MIN_BATCH_LENGTH}", batch_length, f"batch at byte {position}"
        )
    return int(batch_length) + LENGTH_OVERHEAD


def read_batch(buffer: memoryview, position: int = 0) -> RecordBatch:
    """The batch at `position`; checks length and magic, but not the CRC."""
    size = batch_size_at(buffer, position)
    if len(buffer) - position < size:
        raise TruncatedBatch(f"{size} bytes", len(buffer) - position, f"batch at byte {position}")
    _check_magic(buffer, position)
    return RecordBatch(buffer[position : position + size])


def _check_magic(buffer: memoryview, position: int) -> None:
    magic = buffer[position + MAGIC_OFFSET]
    if magic != MAGIC:
        raise UnsupportedMagic(f"magic {MAGIC}", f"magic {magic}", f"batch at byte {position}")


def iter_batches(buffer: memoryview, *, partial_tail: bool = False) -> Iterator[RecordBatch]:
    """The batches that lie back to back in `buffer`.

    A fetch response may end inside a batch: with `partial_tail` the iteration ends there, else it
    raises TruncatedBatch.
    """
    position = 0
    while position < len(buffer):
        try:
            batch = read_batch(buffer, position)
        except TruncatedBatch:
            if partial_tail:
                return
            raise
        yield batch
        position += batch.size
