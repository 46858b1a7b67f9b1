"""Kafka's primitive encodings in the internal topics.

Rules: keys and old values are non-flexible (int16 string lengths, int32 array lengths); newer
values are flexible (unsigned varint of length + 1, then a tagged section). A null has length -1,
or 0 when flexible. Unknown tags are skipped. Every length is checked against the bytes that are
left before anything is allocated for it, so a damaged record costs no more than its own size.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ottla.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

MAX_VARINT_BYTES = 5
"""An unsigned varint holds 32 bits, seven to a byte."""


class MalformedRecord(WireError):
    """A malformed record of an internal topic."""

    summary = "malformed coordinator record"


class UnsupportedRecordVersion(WireError):
    """A value that a newer release wrote and this one cannot read."""

    summary = "unsupported coordinator record version"


class Reader:
    """Reads one key or value from its start; `flexible` selects the encoding of lengths."""

    __slots__ = ("_data", "_pos", "_where", "flexible")

    def __init__(self, data: bytes, where: str, *, flexible: bool = False) -> None:
        self._data = data
        self._pos = 0
        self._where = where
        self.flexible = flexible

    def _take(self, size: int) -> bytes:
        left = len(self._data) - self._pos
        if not 0 <= size <= left:
            raise MalformedRecord(f"at most {left} bytes", size, self._where)
        start = self._pos
        self._pos = start + size
        return self._data[start : self._pos]

    def int8(self) -> int:
        return int(_INT8.unpack(self._take(1))[0])

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(8))[0])

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def uvarint(self) -> int:
        value = 0
        for index in range(MAX_VARINT_BYTES):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise MalformedRecord(f"a varint of {MAX_VARINT_BYTES} bytes", "a longer one", self._where)

    def _text(self, size: int) -> str:
        raw = self._take(size)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedRecord("UTF-8", raw, self._where) from error

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.int16()
        return None if size == -1 else self._text(size)

    def string(self) -> str:
        return self._required(self.nullable_string(), "a string")

    def nullable_blob(self) -> bytes | None:
        size = self.uvarint() - 1 if self.flexible else self.int32()
        return None if size == -1 else self._take(size)

    def blob(self) -> bytes:
        return self._required(self.nullable_blob(), "bytes")

    def nullable_array(self, read: Callable[[], T]) -> tuple[T, ...] | None:
        size = self.uvarint() - 1 if self.flexible else self.int32()
        if size == -1:
            return None
        left = len(self._data) - self._pos
        if not 0 <= size <= left:  # no element is smaller than one byte
            raise MalformedRecord(f"at most {left} elements", size, self._where)
        return tuple(read() for _ in range(size))

    def array(self, read: Callable[[], T]) -> tuple[T, ...]:
        return self._required(self.nullable_array(read), "an array")

    def tags(self) -> dict[int, Reader]:
        """The tagged section: one reader per tag; callers use the tags that they know."""
        found = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            body = self._take(self.uvarint())
            found[tag] = Reader(body, f"{self._where} tag {tag}", flexible=True)
        return found

    def end(self) -> None:
        if left := len(self._data) - self._pos:
            raise MalformedRecord("the end", f"{left} more bytes", self._where)

    def _required(self, value: T | None, kind: str) -> T:
        if value is None:
            raise MalformedRecord(kind, "null", self._where)
        return value


class Writer:
    """Builds one key or value, which `Reader` reads."""

    __slots__ = ("_out", "flexible")

    def __init__(self, *, flexible: bool = False) -> None:
        self._out = bytearray()
        self.flexible = flexible

    def int8(self, value: int) -> Writer:
        self._out += _INT8.pack(value)
        return self

    def int16(self, value: int) -> Writer:
        self._out += _INT16.pack(value)
        return self

    def int32(self, value: int) -> Writer:
        self._out += _INT32.pack(value)
        return self

    def int64(self, value: int) -> Writer:
        self._out += _INT64.pack(value)
        return self

    def uuid(self, value: UUID) -> Writer:
        self._out += value.bytes
        return self

    def uvarint(self, value: int) -> Writer:
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)
        return self

    def string(self, value: str | None) -> Writer:
        raw = None if value is None else value.encode()
        size = -1 if raw is None else len(raw)
        self.uvarint(size + 1) if self.flexible else self.int16(size)
        self._out += raw or b""
        return self

    def blob(self, value: bytes | None) -> Writer:
        size = -1 if value is None else len(value)
        self.uvarint(size + 1) if self.flexible else self.int32(size)
        self._out += value or b""
        return self

    def array(self, values: Iterable[T] | None, write: Callable[[T], object]) -> Writer:
        items = () if values is None else tuple(values)
        size = -1 if values is None else len(items)
        self.uvarint(size + 1) if self.flexible else self.int32(size)
        for item in items:
            write(item)
        return self

    def tags(self, tagged: Mapping[int, Writer] | None = None) -> Writer:
        """Closes a flexible struct; `tagged` maps each tag to its written body, ascending."""
        fields = tagged or {}
        self.uvarint(len(fields))
        for tag, body in fields.items():
            self.uvarint(tag).uvarint(len(body._out))
            self._out += body._out
        return self

    def done(self) -> bytes:
        return bytes(self._out)
