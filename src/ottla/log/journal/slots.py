"""A slot: new batches of several partitions, written at once and whole or not at all.

All numbers are big-endian.

    header, 80 bytes   magic "OWL1" | u16 format=1 | u16 kind=1 | 16s stream | u64 seq | 16s nonce
                       | i64 created_ms | u32 node | u64 trim | u32 flags | u32 size of the slot
                       | u32 crc32c of the 76 bytes before
    extents            batches of one partition each, exactly as in its segment file, back to back
    index, 56 each     16s topic id | u32 partition | u32 leader epoch | i64 base | i64 end
                       | u32 position in the slot | u32 length | u32 crc32c of them | u32 flags
    trailer, 32 bytes  u32 position of the index | u32 entries | u32 crc32c of the index
                       | u64 size of the slot | u64 seq | magic "OWLE"

`end` is the offset after the last record. `trim` is the first slot of the stream that is still
needed. `nonce` and `flags` are zero in a journal.

Rule: a slot counts only if header, trailer, index and every extent have their checksums. Decoding
costs no more memory than the bytes it is given, and never reads outside them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.storage import Buffer

MAGIC: Final = b"OWL1"
END_MAGIC: Final = b"OWLE"
FORMAT: Final = 1
DATA: Final = 1
NO_NONCE: Final = bytes(16)

_HEADER = struct.Struct(">4sHH16sQ16sqIQII")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">16sIIqqIIII")
_TRAILER = struct.Struct(">IIIQQ4s")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
ENTRY_BYTES: Final = _ENTRY.size
TRAILER_BYTES: Final = _TRAILER.size
FRAME_BYTES: Final = HEADER_BYTES + TRAILER_BYTES


class CorruptSlot(Exception):
    """The bytes are not a whole slot."""


class NewExtent(NamedTuple):
    """Consecutive batches of one partition, to be written."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    base: int
    end: int
    size: int
    chunks: Sequence[Buffer]


class Header(NamedTuple):
    """The header of a slot."""

    stream: bytes
    seq: int
    created_ms: int
    node: int
    trim: int
    size: int


class Extent(NamedTuple):
    """Where the batches of one partition lie in a slot."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    base: int
    end: int
    position: int
    length: int


class Slot(NamedTuple):
    header: Header
    extents: tuple[Extent, ...]


def slot_size(extents: Sequence[NewExtent]) -> int:
    return FRAME_BYTES + sum(extent.size + ENTRY_BYTES for extent in extents)


def encode(
    extents: Sequence[NewExtent], *, stream: bytes, seq: int, trim: int, node: int, now_ms: int
) -> list[Buffer]:
    """A slot as buffers to be written one after the other; batches are not copied."""
    from crc32c import crc32c  # loaded with the first log, not to be ready

    size = slot_size(extents)
    head = _HEADER.pack(MAGIC, FORMAT, DATA, stream, seq, NO_NONCE, now_ms, node, trim, 0, size)
    parts: list[Buffer] = [head + _CRC.pack(crc32c(head))]
    entries: list[bytes] = []
    pack = _ENTRY.pack
    position = HEADER_BYTES
    for topic_id, partition, leader_epoch, base, end, length, chunks in extents:
        crc = 0
        for chunk in chunks:
            crc = crc32c(chunk, crc)
        parts += chunks
        entries.append(pack(topic_id, partition, leader_epoch, base, end, position, length, crc, 0))
        position += length
    index = b"".join(entries)
    trailer = _TRAILER.pack(position, len(extents), crc32c(index), size, seq, END_MAGIC)
    parts.append(index + trailer)
    return parts


def decode_header(data: Buffer) -> Header | None:
    """The header at the start of `data`; None if there is none that is whole."""
    from crc32c import crc32c

    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        return None
    head = data[: _HEADER.size]
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if crc32c(head) != crc:
        return None
    _, form, kind, stream, seq, _, created_ms, node, trim, _, size = _HEADER.unpack(head)
    if form != FORMAT or kind != DATA or size < FRAME_BYTES or trim > seq:
        return None
    return Header(stream, seq, created_ms, node, trim, size)


def decode(data: memoryview) -> Slot:
    """The slot that `data` begins with; CorruptSlot unless every checksum is right."""
    from crc32c import crc32c

    header = decode_header(data)
    if header is None:
        raise CorruptSlot("there is no header")
    if header.size > len(data):
        raise CorruptSlot(f"{header.size} bytes are {len(data)}")
    end = header.size - TRAILER_BYTES
    start, entries, index_crc, size, seq, magic = _TRAILER.unpack_from(data, end)
    if magic != END_MAGIC or seq != header.seq or size != header.size:
        raise CorruptSlot("the end is another slot's")
    if start < HEADER_BYTES or start + entries * ENTRY_BYTES != end:
        raise CorruptSlot("the index is not where the end says")
    index = data[start:end]
    if crc32c(index) != index_crc:
        raise CorruptSlot("the index is damaged")
    extents = []
    expected = HEADER_BYTES
    for topic_id, partition, epoch, base, until, position, length, crc, _ in _ENTRY.iter_unpack(
        index
    ):
        if position != expected or position + length > start:
            raise CorruptSlot("an extent is not where the index says")
        if crc32c(data[position : position + length]) != crc:
            raise CorruptSlot(f"the batches {base} to {until} of partition {partition} are damaged")
        expected += length
        extents.append(Extent(topic_id, partition, epoch, base, until, position, length))
    if expected != start:
        raise CorruptSlot("the slot has unused bytes")
    return Slot(header, tuple(extents))
