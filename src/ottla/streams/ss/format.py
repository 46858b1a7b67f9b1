"""The parts of a `.ss` file: header, beacon, marker, and the sizes of frames."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.streams.errors import FormatError, TruncatedFile
from ottla.streams.types import INTERNAL

MAGIC = b"Ss"
VERSION = 1
HEADER_SIZE = 128
MAX_NAME = 111
CR = 0x0D
MIN_INTERVAL = 128
"""Smallest beacon interval that can be read: a beacon without markers must fit."""

WRITE_UNIT = 1024
"""Intervals that are written are multiples of this."""

FRAME_OVERHEAD = 32
BEACON_OVERHEAD = 7
MARKER_OVERHEAD = 27
MAX_MARKER = MARKER_OVERHEAD + 255
MAX_PAYLOAD = 2**32 - 1
MAX_SHARD = 2**64 - 1
EOS = b"EOS"
INTERNAL_KEY = INTERNAL.encode()

FRAME_HEAD = struct.Struct(">QQQI")
FRAME_TAIL = struct.Struct("<HB")
"""Checksum in little form and the carriage return."""

_HEADER_TAIL = struct.Struct(">QI")
_BEACON_HEAD = struct.Struct(">BIB")
_MARKER_TAIL = struct.Struct(">QQQH")


class Header(NamedTuple):
    """The first 128 bytes."""

    name: str
    created_ms: int
    interval: int

    def encode(self) -> bytes:
        """128 bytes; a name that is too long is cut at a character."""
        name = self.name.encode()[:MAX_NAME].decode(errors="ignore").encode()
        body = MAGIC + bytes((VERSION, len(name))) + name
        body += _HEADER_TAIL.pack(self.created_ms, self.interval)
        return body.ljust(HEADER_SIZE - 1, b"\0") + bytes((CR,))


def decode_header(data: bytes) -> Header:
    """The header, or what is wrong with it."""
    if not MAGIC.startswith(data[:2]):
        raise FormatError(f"magic is {data[:2]!r}, not {MAGIC!r}: not a .ss file", offset=0)
    if data[2:3] not in {b"", bytes([VERSION])}:
        raise FormatError(f"version is {data[2]}; this reader knows {VERSION}", offset=2)
    if len(data) < HEADER_SIZE:
        raise TruncatedFile(f"a .ss file has a header of {HEADER_SIZE} bytes", offset=len(data))
    size = data[3]
    if size > MAX_NAME or data[HEADER_SIZE - 1] != CR:
        raise FormatError("the header's name or end is damaged", offset=3)
    created_ms, interval = _HEADER_TAIL.unpack_from(data, 4 + size)
    if interval < MIN_INTERVAL:
        raise FormatError(f"beacon interval {interval} is below {MIN_INTERVAL}", offset=12 + size)
    return Header(data[4 : 4 + size].decode(errors="replace"), created_ms, interval)


class Marker(NamedTuple):
    """How far one shard had come where a beacon stands."""

    key: bytes
    shard: int
    seq: int
    timestamp_ms: int
    running: int


class Beacon(NamedTuple):
    """`remaining` bytes of the current frame follow, other beacons not counted."""

    remaining: int
    markers: tuple[Marker, ...]

    def encode(self) -> bytes:
        """As it stands in the file."""
        parts = [_BEACON_HEAD.pack(CR, self.remaining, len(self.markers))]
        for marker in self.markers:
            parts.append(bytes((len(marker.key),)) + marker.key)
            parts.append(_MARKER_TAIL.pack(*marker[1:]))
        return b"".join(parts) + bytes((CR,))


def max_markers(interval: int) -> int:
    """How many markers a beacon may hold, so that it stays below half the interval."""
    return min(255, (interval - BEACON_OVERHEAD) // MAX_MARKER) // 2


def decode_beacon(data: bytes | bytearray, at: int, offset: int) -> tuple[Beacon, int] | None:
    """The beacon at `at` and where it ends; None if it is not all there. `offset` is for errors."""
    end = len(data)
    if end - at < BEACON_OVERHEAD:
        return None
    mark, remaining, count = _BEACON_HEAD.unpack_from(data, at)
    if mark != CR:
        raise FormatError("a beacon is missing", offset=offset)
    start, at = at, at + _BEACON_HEAD.size
    markers = []
    for _ in range(count):
        if at >= end or end - at < MARKER_OVERHEAD + data[at]:
            return None
        size = data[at]
        key = bytes(data[at + 1 : at + 1 + size])
        markers.append(Marker(key, *_MARKER_TAIL.unpack_from(data, at + 1 + size)))
        at += MARKER_OVERHEAD + size
    if at >= end:
        return None
    if data[at] != CR:
        raise FormatError("a beacon has a wrong length", offset=offset + at - start)
    return Beacon(remaining, tuple(markers)), at + 1
