"""Field tables of messages in all versions, from which readers and writers are compiled.

A struct is one NamedTuple for all versions of its message; its `Field` rows tell in which versions
a field exists, may be null and is a tagged field. A field that a version does not have is left out
when written and takes its default when read. Times are integers in milliseconds (their names end in
`_ms`), error codes are integers, uuids are 16 bytes, records are any buffer and are never copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

Records: TypeAlias = bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview]
Struct: TypeAlias = type[Any]  # a NamedTuple class
Span: TypeAlias = tuple[int, int]

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
INTEGERS: Final = frozenset({"int8", "int16", "uint16", "int32", "int64"})
MAX_STRING_BYTES: Final = 0x7FFF
"""The largest length in the older forms; Kafka has the same limit in the newer forms."""

ZERO_UUID = bytes(16)
ALWAYS: Span = (0, 0x7FFF)
NEVER: Span = (1, 0)


class Field(NamedTuple):
    """One row: name and type, and the versions (inclusive) in which each property holds."""

    name: str
    type: str | Struct
    array: bool = False
    versions: Span = ALWAYS
    nullable: Span = NEVER
    tag: int | None = None
    tagged: Span = ALWAYS

    def in_version(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def nullable_in(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    def tagged_in(self, version: int) -> bool:
        return self.tag is not None and self.tagged[0] <= version <= self.tagged[1]


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A request or a response: its root struct and the fields of every struct in it."""

    api_key: int
    is_request: bool
    root: Struct
    versions: Span
    first_flexible: int | None
    structs: dict[Struct, tuple[Field, ...]]

    def flexible(self, version: int) -> bool:
        return self.first_flexible is not None and version >= self.first_flexible
