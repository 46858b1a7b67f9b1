"""How a value names its schema (Confluent's wire format).

| where | bytes |
|---|---|
| prefix | `00` and an int32 id, or `01` and 16 bytes of GUID; Protobuf: then message indexes |
| header `__value_schema_id`, `__key_schema_id` | `01`, 16 bytes of GUID; Protobuf: then indexes |

Message indexes are zigzag varints: their count, then each; a single `00` stands for [0]. A header
comes before a prefix: with it, the value has no prefix. The last header of that name counts.

This module is pure, for one record; `framing_kernels` does whole columns by the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.schemas.model import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

ID: Final = 0x00
GUID: Final = 0x01
ID_SIZE: Final = 5
GUID_SIZE: Final = 17
VALUE_HEADER: Final = "__value_schema_id"
KEY_HEADER: Final = "__key_schema_id"
MAX_INDEXES: Final = 64
"""Most message indexes: messages nest no deeper in any schema that a column can hold."""

MAX_INDEX_BYTES: Final = 5 * (MAX_INDEXES + 1)


class NotFramed(SchemaError):
    """The value names no schema: it has neither a prefix nor a header of the wire format."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Which schema a value has. `id` or `guid` is set; the payload begins at `start`."""

    id: int | None
    guid: bytes | None
    indexes: tuple[int, ...]
    start: int


def split(
    value: bytes,
    headers: Iterable[tuple[str, bytes | None]] = (),
    *,
    is_key: bool = False,
    has_indexes: bool = False,
) -> Frame:
    """The frame of `value`; `has_indexes` for Protobuf. Raises NotFramed."""
    wanted = KEY_HEADER if is_key else VALUE_HEADER
    header = None
    is_given = False
    for name, each in headers:
        if name == wanted:
            header, is_given = each, True
    if is_given:
        if header is None or len(header) < GUID_SIZE or header[0] != GUID:
            raise NotFramed(
                f"expected 01 and 16 bytes in the header {wanted}, got {_shown(header)}"
            )
        indexes, end = indexes_of(header, GUID_SIZE) if has_indexes else ((), GUID_SIZE)
        if end != len(header):
            raise NotFramed(f"expected the header {wanted} to end after the id, got more bytes")
        return Frame(None, header[1:GUID_SIZE], indexes, 0)
    if value[:1] == b"\x00" and len(value) >= ID_SIZE:
        number = int.from_bytes(value[1:ID_SIZE], "big", signed=True)
        start, guid = ID_SIZE, None
    elif value[:1] == b"\x01" and len(value) >= GUID_SIZE:
        start, guid, number = GUID_SIZE, value[1:GUID_SIZE], -1
    else:
        raise NotFramed(
            "expected a value that begins with 00 and a schema id, or 01 and a GUID, "
            f"got {_shown(value)}"
        )
    indexes, start = indexes_of(value, start) if has_indexes else ((), start)
    return Frame(None if guid else number, guid, indexes, start)


def indexes_of(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Message indexes at `start`, and what follows them. Raises NotFramed."""
    count, at = _varint(data, start)
    if count == 0:
        return (0,), at
    if not 0 < count <= MAX_INDEXES:
        raise NotFramed(f"expected 1 to {MAX_INDEXES} message indexes, got {count}")
    found = []
    for _ in range(count):
        index, at = _varint(data, at)
        if index < 0:
            raise NotFramed(f"expected a message index from 0 on, got {index}")
        found.append(index)
    return tuple(found), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise NotFramed("expected message indexes as varints, got other bytes")


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    return f"{len(data)} bytes" + (f" that begin with {data[:1].hex()}" if data else "")
