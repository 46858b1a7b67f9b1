"""Protobuf's messages as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.schemas import names
from ottla.schemas.bounds import MAX_DEPTH, MAX_LEAVES
from ottla.schemas.model import SchemaTooLarge

if TYPE_CHECKING:
    from ottla.schemas.proto_tree import Field, Message

SCALARS: Final = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int64": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "int32": pa.int32(),
    "fixed64": pa.decimal128(20, 0),
    "fixed32": pa.int64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "uint32": pa.int64(),
    "enum": pa.string(),
    "sfixed32": pa.int32(),
    "sfixed64": pa.int64(),
    "sint32": pa.int32(),
    "sint64": pa.int64(),
}
TIMESTAMP: Final = "google.protobuf.Timestamp"
_KNOWN: Final = "google.protobuf."
WRAPPERS: Final = frozenset(
    _KNOWN + name
    for name in (
        "DoubleValue",
        "FloatValue",
        "Int64Value",
        "UInt64Value",
        "Int32Value",
        "UInt32Value",
        "BoolValue",
        "StringValue",
        "BytesValue",
    )
)
ANY_JSON: Final = frozenset(_KNOWN + name for name in ("Struct", "Value", "ListValue", "Any"))
"""Messages that hold any value: a column of JSON text."""


def proto_fields(message: Message) -> list[pa.Field]:
    """The columns of a message; not yet `finished`."""
    return _Walk().fields(message, (), 1)


class _Walk:
    def __init__(self) -> None:
        self._leaves = 0

    def fields(self, message: Message, above: tuple[Message, ...], depth: int) -> list[pa.Field]:
        return [self.column(each, (*above, message), depth) for each in message.fields]

    def column(self, one: Field, above: tuple[Message, ...], depth: int) -> pa.Field:
        inner = one.message
        if one.is_repeated and inner is not None and inner.is_map_entry:
            key, value = inner.fields
            item = self._single("value", value, above, depth + 1)
            return names.field(one.name, names.map_of(SCALARS[key.kind], item))
        if one.is_repeated:
            element = self._single(names.ELEMENT, one, above, depth + 1)
            return names.field(one.name, names.list_of(element))
        return self._single(one.name, one, above, depth)

    def _single(self, name: str, one: Field, above: tuple[Message, ...], depth: int) -> pa.Field:
        if depth > MAX_DEPTH:
            raise SchemaTooLarge(f"expected columns at most {MAX_DEPTH} deep, got deeper ones")
        inner = one.message
        if inner is None:
            return self._leaf(name, SCALARS[one.kind])
        if inner.name == TIMESTAMP:
            return self._leaf(name, pa.timestamp("us", tz="UTC"))
        if inner.name in WRAPPERS:
            return self._leaf(name, SCALARS[inner.fields[0].kind])
        is_again = any(inner is each for each in above)
        if inner.name in ANY_JSON or is_again or not inner.fields:
            return self._leaf(name, pa.string(), is_json=True)
        return names.field(name, pa.struct(self.fields(inner, above, depth + 1)))

    def _leaf(self, name: str, kind: pa.DataType, *, is_json: bool = False) -> pa.Field:
        self._leaves += 1
        if self._leaves > MAX_LEAVES:
            raise SchemaTooLarge(f"expected at most {MAX_LEAVES} leaf columns, got more")
        return names.field(name, kind, is_json=is_json)
