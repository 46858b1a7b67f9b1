"""Record batches written and read one byte at a time: what the kernels are held against.

Nothing here is shared with the kernels, and nothing is fast.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from ottla.wire.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, LOG_APPEND_TIME, RecordBatch
from ottla.wire.compression import codec_of, compress, decompress
from ottla.wire.errors import (
    InvalidVarint,
    LengthPastEnd,
    NegativeLength,
    RecordCountMismatch,
    RecordError,
)

if TYPE_CHECKING:
    import random

Headers = tuple[tuple[bytes, bytes | None], ...]


class Record(NamedTuple):
    timestamp_delta: int = 0
    offset_delta: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


class Row(NamedTuple):
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def varint(value: int) -> bytes:
    rest = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while rest > 127:
        out.append(rest % 128 + 128)
        rest //= 128
    out.append(rest)
    return bytes(out)


def piece(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record) -> bytes:
    body = bytearray(1)
    body += varint(record.timestamp_delta) + varint(record.offset_delta)
    body += piece(record.key) + piece(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += piece(key) + piece(value)
    return varint(len(body)) + body


def encode_batch(
    payload: bytes,
    count: int,
    *,
    base_offset: int = 0,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer_id: int = -1,
) -> bytes:
    """A batch with a correct length and CRC around an uncompressed payload, sound or not."""
    block = bytes(compress(codec_of(attributes), payload))
    batch = bytearray(
        HEADER.pack(
            base_offset,
            HEADER_SIZE - LENGTH_OVERHEAD + len(block),
            0,
            2,
            0,
            attributes,
            count - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            0,
            0,
            count,
        )
    )
    batch += block
    batch[17:21] = struct.pack(">I", crc32c(batch[21:]))
    return bytes(batch)


def batch_of(*records: Record, base_offset: int = 0, **fields: int) -> bytes:
    payload = b"".join(map(encode_record, records))
    return encode_batch(payload, len(records), base_offset=base_offset, **fields)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def varint(self, most_bytes: int, bits: int) -> int:
        value = 0
        for index in range(most_bytes):
            if self.position >= len(self.data):
                raise InvalidVarint("a varint", "the end", "plain")
            byte = self.data[self.position]
            self.position += 1
            value += (byte % 128) << (7 * index)
            if byte < 128:
                if value >= 2**bits:
                    break
                return value // 2 if value % 2 == 0 else -(value + 1) // 2
        raise InvalidVarint("a varint", "more bits", "plain")

    def take(self, length: int) -> bytes:
        if length > len(self.data) - self.position:
            raise LengthPastEnd("less", length, "plain")
        self.position += length
        return self.data[self.position - length : self.position]

    def piece(self, least: int) -> bytes | None:
        length = self.varint(5, 32)
        if length < least:
            raise NegativeLength("more", length, "plain")
        return None if length == -1 else self.take(length)


def _decode_record(reader: _Reader) -> Record:
    body = _Reader(reader.piece(0) or b"")
    body.take(1)
    timestamp_delta = body.varint(10, 64)
    offset_delta = body.varint(5, 32)
    key = body.piece(-1)
    value = body.piece(-1)
    count = body.varint(5, 32)
    if count < 0:
        raise NegativeLength("a count", count, "plain")
    if count * 2 > len(body.data) - body.position:
        raise LengthPastEnd("a count", count, "plain")
    headers = tuple((body.piece(0) or b"", body.piece(-1)) for _ in range(count))
    if body.position != len(body.data):
        raise RecordError("an end", "more bytes", "plain")
    return Record(timestamp_delta, offset_delta, key, value, headers)


def _wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def decode_records(payload: bytes, count: int) -> list[Record]:
    if not 0 <= count * 7 <= len(payload):
        raise RecordCountMismatch("a credible count", count, "plain")
    reader = _Reader(payload)
    records = []
    for index in range(count):
        if reader.position == len(payload):
            raise RecordCountMismatch(count, index, "plain")
        records.append(_decode_record(reader))
    if reader.position != len(payload):
        raise RecordCountMismatch(count, "more", "plain")
    return records


def decode_batch(data: bytes) -> list[Row]:
    batch = RecordBatch(memoryview(data))
    payload = bytes(decompress(codec_of(batch.attributes), batch.payload))
    rows = []
    for record in decode_records(payload, batch.record_count):
        timestamp = _wrap(batch.base_timestamp + record.timestamp_delta)
        if batch.attributes & LOG_APPEND_TIME:
            timestamp = batch.max_timestamp
        if abs(timestamp) * 1000 >= 2**63:
            raise RecordError("a timestamp in microseconds", timestamp, "plain")
        rows.append(
            Row(
                _wrap(batch.base_offset + record.offset_delta),
                timestamp,
                int(batch.is_log_append_time),
                record.key,
                record.value,
                tuple((key.decode(errors="replace"), value) for key, value in record.headers),
            )
        )
    return rows


def random_bytes(rng: random.Random) -> bytes | None:
    size = rng.choice((None, 0, 1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 100, 200))
    return None if size is None else rng.randbytes(size)


def random_record(rng: random.Random, offset_delta: int) -> Record:
    headers = tuple(
        (rng.choice((b"", b"h", b"trace-id")), random_bytes(rng))
        for _ in range(rng.choice((0, 0, 0, 1, 3)))
    )
    delta = rng.choice((0, 1, -1, 63, 64, 10_000, -(2**40)))
    return Record(delta, offset_delta, random_bytes(rng), random_bytes(rng), headers)


def random_batch(rng: random.Random, *, base_offset: int = 0, codec: int = 0) -> bytes:
    records = [random_record(rng, delta) for delta in range(rng.randint(1, 12))]
    return batch_of(
        *records,
        base_offset=base_offset,
        attributes=codec | rng.choice((0, 0, LOG_APPEND_TIME)),
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_500,
    )


def mutated(rng: random.Random, *, codec: int = 0) -> bytes:
    """A batch of which the frame is right (length, CRC, compression) and the records are not."""
    batch = RecordBatch(memoryview(random_batch(rng)))
    payload = bytearray(batch.payload)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(payload)) if payload else 0
        match rng.randrange(6):
            case 0:
                payload[at : at + 1] = rng.randbytes(1)
            case 1:
                payload[at : at + 1] = rng.choice((b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"))
            case 2:
                payload[at:at] = rng.choice((b"\x00", b"\xff" * 4, b"\x80" * 9, rng.randbytes(3)))
            case 3:
                del payload[at : at + rng.randint(1, 4)]
            case 4:
                del payload[at:]
            case _:
                payload[at:at] = payload[at : at + rng.randint(1, 40)]
    hostile = (batch.record_count + 1, batch.record_count - 1, 0, -1, 2**31 - 1, -(2**31))
    count = rng.choice(hostile) if rng.random() < 0.1 else batch.record_count
    return encode_batch(
        bytes(payload),
        count,
        attributes=(batch.attributes & LOG_APPEND_TIME) | codec,
        last_offset_delta=100,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
    )
