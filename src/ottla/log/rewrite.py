"""Rewrites a batch: without some of its records (compaction), or in another codec.

Base offset, last offset delta, producer and sequence stay as they are, so that offsets and
idempotence survive; count, largest timestamp and CRC are recomputed. Records are copied as raw
bytes, not decoded and encoded again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from ottla.wire.batch import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    RecordBatch,
)
from ottla.wire.compression import Codec, codec_of, compress, decompress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_CRC = struct.Struct(">I")
_CRC_POSITION: Final = CRC_START - _CRC.size


def rewrite_batch(
    batch: RecordBatch,
    keep: Sequence[bool],
    timestamps: Sequence[int],
    delete_horizon_ms: int | None,
) -> memoryview:
    """The batch with the records that `keep` names, one flag and one timestamp for each record.

    A delete horizon takes the place of the base timestamp, from which the records' own are counted.
    """
    base_timestamp = batch.base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    where = f"batch at offset {batch.base_offset}"
    block = decompress(codec_of(batch.attributes), batch.payload, where=where)
    raw: Iterable[bytes] = (
        bytes(body) for body, kept in zip(_split(block), keep, strict=True) if kept
    )
    shift = batch.base_timestamp - base_timestamp
    if shift:
        raw = (_shifted(body, shift) for body in raw)
    records = bytearray()
    for body in raw:
        _put_varint(records, len(body))
        records += body
    kept_times = [time for time, kept in zip(timestamps, keep, strict=True) if kept]
    attributes = batch.attributes
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
    if not kept_times:
        attributes &= ~CODEC_MASK
    newest = batch.max_timestamp
    if kept_times and not batch.is_log_append_time:
        newest = max(kept_times)
    return _assemble(batch, attributes, base_timestamp, newest, len(kept_times), records)


def recompress_batch(batch: RecordBatch, codec: Codec) -> RecordBatch:
    """The same records in another codec; the batch itself if it has that codec already."""
    if codec_of(batch.attributes) is codec:
        return batch
    where = f"batch at offset {batch.base_offset}"
    block = decompress(codec_of(batch.attributes), batch.payload, where=where)
    attributes = (batch.attributes & ~CODEC_MASK) | codec
    return RecordBatch(
        _assemble(
            batch,
            attributes,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.record_count,
            block,
        )
    )


def _assemble(
    batch: RecordBatch,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    records: bytearray | memoryview,
) -> memoryview:
    payload = compress(Codec(attributes & CODEC_MASK), records) if records else b""
    data = bytearray(HEADER_SIZE + len(payload))
    data[HEADER_SIZE:] = payload
    HEADER.pack_into(
        data,
        0,
        batch.base_offset,
        len(data) - LENGTH_OVERHEAD,
        batch.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    _CRC.pack_into(data, _CRC_POSITION, crc32c(memoryview(data)[CRC_START:]))
    return memoryview(data)


def _split(block: memoryview) -> Iterator[memoryview]:
    """The bodies of the records, without the length before each; `iter_records` checked them."""
    position = 0
    while position < len(block):
        length, start = _read_varint(block, position)
        position = start + length
        yield block[start:position]


def _shifted(body: bytes, shift: int) -> bytes:
    """The record with its timestamp delta, which follows the attributes byte, moved by `shift`."""
    delta, rest = _read_varint(memoryview(body), 1)
    out = bytearray(body[:1])
    _put_varint(out, delta + shift)
    return bytes(out + body[rest:])


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """A zigzag number and where it ends."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def _put_varint(out: bytearray, value: int) -> None:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
