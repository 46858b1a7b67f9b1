"""Avro, read within limits, by the schema that wrote it.

Numbers keep their digits, bytes are hex; times, dates, decimals and UUIDs are written as people
write them. Every value costs a node of the budget, so a block that claims 2^60 nulls ends soon.
"""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ottla.console.decode.tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, Number, Tree, Unreadable

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = {"timestamp-millis": 1_000, "timestamp-micros": 1}
"""Microseconds in a unit."""
MAX_SCALE: Final = 1_000
"""Digits after the point of a decimal; more are no amount of anything."""


class Avro:
    """Reads values of one schema, given as JSON with full names."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named: dict[str, Any] = {}
        self._collect(schema)

    def read(self, data: bytes) -> Tree:
        """The document; raises `Unreadable`."""
        if len(data) > MAX_BYTES:
            raise Unreadable(f"Avro of more than {MAX_BYTES:,} bytes")
        reading = _Reading(data, self._named)
        tree = reading.value(self._schema, 0)
        if reading.at != len(data):
            raise Unreadable(f"not of this schema: {len(data) - reading.at:,} bytes are left over")
        return tree

    def _collect(self, schema: Any) -> None:
        left = [schema]
        while left:
            one = left.pop()
            if isinstance(one, list):
                left += one
            elif isinstance(one, dict):
                if "name" in one:
                    self._named[one["name"]] = one
                left += [one[key] for key in ("items", "values") if key in one]
                left += [field["type"] for field in one.get("fields", ())]
                if isinstance(one.get("type"), dict | list):
                    left.append(one["type"])


class _Reading:
    """One value while it is read."""

    def __init__(self, data: bytes, named: dict[str, Any]) -> None:
        self.at = 0
        self._data = data
        self._named = named
        self._left = MAX_NODES

    def value(self, schema: Any, depth: int) -> Tree:
        self._left -= 1
        if self._left < 0:
            raise Unreadable(f"Avro of more than {MAX_NODES:,} nodes")
        if depth > MAX_DEPTH:
            raise Unreadable(f"Avro nested more than {MAX_DEPTH} deep")
        while isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            return self._union(schema, depth)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, dict | list):
            return self.value(kind, depth + 1)
        if kind in ("record", "error"):
            return {one["name"]: self.value(one["type"], depth + 1) for one in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"], depth + 1) for _ in self._entries()]
        if kind == "map":
            return {self._text(): self.value(schema["values"], depth + 1) for _ in self._entries()}
        if kind == "enum":
            return self._symbol(schema["symbols"])
        return self._scalar(kind, schema if isinstance(schema, dict) else {})

    def _union(self, branches: list[Any], depth: int) -> Tree:
        number = self._long()
        if not 0 <= number < len(branches):
            raise Unreadable(f"not of this schema: a union has no branch {number}")
        return self.value(branches[number], depth + 1)

    def _entries(self) -> Any:
        """One turn for each entry of all blocks."""
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # the block's bytes, for those who skip it
            for _ in range(count):
                yield None

    def _symbol(self, symbols: list[str]) -> str:
        number = self._long()
        if not 0 <= number < len(symbols):
            raise Unreadable(f"not of this schema: an enum has no symbol {number}")
        return symbols[number]

    def _scalar(self, kind: str, schema: dict[str, Any]) -> Tree:
        logical = schema.get("logicalType")
        if kind == "null":
            return None
        if kind == "boolean":
            return self._bytes(1) != b"\0"
        if kind in ("int", "long"):
            return _number(self._long(), logical)
        if kind == "float":
            return _float(struct.unpack("<f", self._bytes(4))[0])
        if kind == "double":
            return _float(struct.unpack("<d", self._bytes(8))[0])
        if kind == "string":
            return self._text()
        if kind in ("bytes", "fixed"):
            found = self._bytes(self._long() if kind == "bytes" else schema["size"])
            return _binary(found, logical, schema)
        raise Unreadable(f"the schema has a type {kind!r:.60} that is not known")

    def _text(self) -> str:
        try:
            return self._bytes(self._long()).decode()
        except UnicodeDecodeError:
            raise Unreadable("not of this schema: a string is not UTF-8") from None

    def _bytes(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self._data):
            raise Unreadable("not of this schema: it ends too early")
        found = self._data[self.at : end]
        self.at = end
        return found

    def _long(self) -> int:
        value = shift = 0
        while True:
            if self.at >= len(self._data) or shift > 63:
                raise Unreadable("not of this schema: it ends too early")
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7


def _number(value: int, logical: object) -> Tree:
    try:
        if logical == "date":
            return f"{_EPOCH + timedelta(days=value):%Y-%m-%d}"
        if logical in _TIMES:
            at = _EPOCH + timedelta(microseconds=value * _TIMES[str(logical)])
            return at.isoformat().replace("+00:00", "Z")
    except OverflowError:
        pass  # a time that no calendar has stays a number
    return Number(value)


def _float(value: float) -> Tree:
    shown = repr(value)
    return shown if shown in ("nan", "inf", "-inf") else Number(shown)


def _binary(value: bytes, logical: object, schema: dict[str, Any]) -> Tree:
    scale = schema.get("scale", 0)
    if logical == "decimal" and isinstance(scale, int) and 0 <= scale <= MAX_SCALE:
        return _decimal(int.from_bytes(value, "big", signed=True), scale)
    if logical == "uuid" and len(value) == 16:
        return str(uuid.UUID(bytes=value))
    return f"0x{value.hex()}"


def _decimal(unscaled: int, scale: int) -> Tree:
    try:
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
    except ValueError:  # more digits than Python writes
        raise Unreadable("a decimal has too many digits") from None
    sign = "-" if unscaled < 0 else ""
    return Number(f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}")
