"""Avro's types as columns."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ottla.schemas import names
from ottla.schemas.avro_tree import (
    MAX_DECIMAL_DIGITS,
    NULL,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
    is_nullable,
)
from ottla.schemas.bounds import MAX_DEPTH, MAX_LEAVES
from ottla.schemas.model import SchemaTooLarge

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")

_PRIMITIVES: Final = {
    "null": pa.string(),  # always null
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "time-millis": pa.int64(),
    "time-micros": pa.int64(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "timestamp-nanos": pa.int64(),
    "local-timestamp-millis": TIMESTAMP_NTZ,
    "local-timestamp-micros": TIMESTAMP_NTZ,
    "local-timestamp-nanos": pa.int64(),
    "uuid": pa.string(),
}
_DOCS: Final = {
    "time-millis": "milliseconds since midnight",
    "time-micros": "microseconds since midnight",
    "timestamp-nanos": "nanoseconds since 1970-01-01 UTC",
    "local-timestamp-nanos": "nanoseconds since 1970-01-01, local time",
}
ONLY: Final = "value"
"""The column of a schema that is not a record."""


def fields_of(node: Node) -> list[pa.Field]:
    """The columns of a schema; not yet `finished`."""
    walk = _Walk()
    if isinstance(node, Record):
        return walk.record(node, (), 1)
    return [walk.column(Field(ONLY, node), (), 1)]


def branch_names(union: Union) -> list[str]:
    """A name for each branch: that of its type; with equal short names, the full name."""
    shorts = [_type_name(each).rpartition(".")[2] for each in union.branches]
    return [
        short if shorts.count(short) == 1 else _type_name(branch).replace(".", "_")
        for short, branch in zip(shorts, union.branches, strict=True)
    ]


def _type_name(node: Node) -> str:
    if isinstance(node, Primitive):
        return node.kind
    if isinstance(node, Array):
        return "array"
    if isinstance(node, Map):
        return "map"
    return "union" if isinstance(node, Union) else node.name


class _Walk:
    def __init__(self) -> None:
        self._leaves = 0

    def record(self, record: Record, above: tuple[Record, ...], depth: int) -> list[pa.Field]:
        return [self.column(each, (*above, record), depth) for each in record.fields]

    def column(self, one: Field, above: tuple[Record, ...], depth: int) -> pa.Field:
        """The column of a field; `above` are the records around it."""
        if depth > MAX_DEPTH:
            raise SchemaTooLarge(f"expected columns at most {MAX_DEPTH} deep, got deeper ones")
        _is_nullable, node = is_nullable(one.node)
        if isinstance(node, Record) and (not node.fields or any(node is e for e in above)):
            # Recursive, or empty: Parquet has neither.
            return self._leaf(one, pa.string(), is_json=True)
        if isinstance(node, Union) and all(each == NULL for each in node.branches):
            return self._leaf(one, pa.string())
        if isinstance(node, Record):
            kind: pa.DataType = pa.struct(self.record(node, above, depth + 1))
        elif isinstance(node, Array):
            kind = names.list_of(self.column(Field("element", node.items), above, depth + 1))
        elif isinstance(node, Map):
            value = self.column(Field("value", node.values), above, depth + 1)
            kind = names.map_of(pa.string(), value)
        elif isinstance(node, Union):
            pairs = zip(branch_names(node), node.branches, strict=True)
            below = [
                self.column(Field(name, each), above, depth + 1)
                for name, each in pairs
                if each != NULL
            ]
            kind = pa.struct(below)
        else:
            return self._leaf(one, scalar_type(node), doc=_doc(node))
        return names.field(one.name, kind, aliases=one.aliases, doc=one.doc)

    def _leaf(
        self, one: Field, kind: pa.DataType, *, doc: str | None = None, is_json: bool = False
    ) -> pa.Field:
        self._leaves += 1
        if self._leaves > MAX_LEAVES:
            raise SchemaTooLarge(f"expected at most {MAX_LEAVES} leaf columns, got more")
        return names.field(one.name, kind, aliases=one.aliases, doc=one.doc or doc, is_json=is_json)


def scalar_type(node: Primitive | Fixed | Enum) -> pa.DataType:
    if isinstance(node, Enum):
        return pa.string()
    if node.logical == "decimal" and node.precision <= MAX_DECIMAL_DIGITS:
        return pa.decimal128(node.precision, node.scale)
    if isinstance(node, Fixed):
        return pa.string() if node.logical == "uuid" else pa.binary()
    return _LOGICAL.get(node.logical) or _PRIMITIVES[node.kind]


def _doc(node: Node) -> str | None:
    return _DOCS.get(node.logical) if isinstance(node, Primitive) else None
