"""Builds batches record by record, for coordinators, tests and small producers.

One Python call per record; bulk encoding is columnar and in `kernels`. Offsets rise strictly within
a batch; `records` reads the result.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

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
)
from ottla.wire.compression import Codec, compress
from ottla.wire.records import CONTROL_KEY, MARKER_VALUE, NO_TIMESTAMP, ControlType

if TYPE_CHECKING:
    from collections.abc import Iterable


NO_PRODUCER_EPOCH: Final = -1
NO_LEADER_EPOCH: Final = -1

_CRC = struct.Struct(">I")
_MAX_OFFSET_DELTA: Final = 0x7FFFFFFF
_ONE_BYTE: Final = 64  # lengths below are one byte as a varint


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
        """The current size of the batch before compression."""
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
        body = bytearray(1)  # attributes, which are all unused
        since = timestamp - self._base_timestamp
        if 0 <= since < _ONE_BYTE:
            body.append(since << 1)
        else:
            _put_varint(body, since)
        _put_varint(body, offset_delta)
        _put_bytes(body, key)
        _put_bytes(body, value)
        if headers:
            _put_headers(body, tuple(headers))
        else:
            body.append(0)
        _put_varint(self._records, len(body))
        self._records += body
        self._count += 1
        self._last_offset_delta = offset_delta
        self._max_timestamp = max(self._max_timestamp, timestamp)
        return offset

    def build(self) -> bytearray:
        """The batch so far with its CRC; more records can be appended."""
        block = compress(self._codec, self._records, level=self._level)
        batch = bytearray(HEADER_SIZE + len(block))
        batch[HEADER_SIZE:] = block
        block.release()  # without a codec it is a view of the records, which can still grow
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
    """The marker that ends a transaction in a partition: `kind` is COMMIT or ABORT."""
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
        MARKER_VALUE.pack(0, coordinator_epoch),
        key=CONTROL_KEY.pack(0, kind),
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
        out.append(1)  # -1
    elif (length := len(data)) < _ONE_BYTE:
        out.append(length << 1)
        out += data
    else:
        _put_varint(out, length)
        out += data


def _put_headers(out: bytearray, headers: tuple[tuple[str, bytes | None], ...]) -> None:
    """Fast for short names and values, whose lengths take one byte each."""
    _put_varint(out, len(headers))
    for name, content in headers:
        raw = name.encode()
        if content is not None and len(raw) < _ONE_BYTE and len(content) < _ONE_BYTE:
            out.append(len(raw) << 1)
            out += raw
            out.append(len(content) << 1)
            out += content
        else:
            _put_bytes(out, raw)
            _put_bytes(out, content)
