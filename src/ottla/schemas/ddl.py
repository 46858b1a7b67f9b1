"""Spark's DDL to Arrow columns and back: `shop string, amount double, at timestamp`.

- The grammar is in `ddl_grammar`. `COMMENT 'text'` becomes the column's doc.
- Two columns whose names differ in case alone: the later one is renamed (`limits.finished`).
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from ottla.schemas import ddl_grammar as grammar
from ottla.schemas import names
from ottla.schemas.limits import finished
from ottla.schemas.model import InvalidSchema

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")

_WRITTEN: Final = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
}
_READ: Final = {word: kind for kind, word in _WRITTEN.items()}
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_ddl(text: str) -> pa.Schema:
    """The columns of `text`. Raises InvalidSchema with the place of the fault."""
    return finished(_fields(grammar.parse_columns(text)))


def to_ddl(columns: pa.Schema) -> str:
    """DDL that `parse_ddl` and Spark read as these columns."""
    return ", ".join(
        f"{_name(each.name)} {type_ddl(each.type)}{_comment(each)}" for each in columns
    )


def type_ddl(kind: pa.DataType) -> str:
    """One type as DDL."""
    if kind in _WRITTEN:
        return _WRITTEN[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    below = names.children(kind)
    if pa.types.is_struct(kind):
        inner = ", ".join(f"{_name(each.name)}: {type_ddl(each.type)}" for each in below)
        return f"struct<{inner}>"
    if pa.types.is_map(kind):
        return f"map<{type_ddl(below[0].type)}, {type_ddl(below[1].type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_ddl(below[0].type)}>"
    raise InvalidSchema(f"expected a type that Spark and Iceberg have, got {kind}")


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _comment(column: pa.Field) -> str:
    doc = (column.metadata or {}).get(names.DOC)
    if doc is None:
        return ""
    escaped = doc.decode().replace("\\", "\\\\").replace("'", "\\'")
    return f" COMMENT '{escaped}'"


def _fields(columns: tuple[grammar.Column, ...]) -> list[pa.Field]:
    return [names.field(one.name, _arrow(one.type), doc=one.comment) for one in columns]


def _arrow(kind: grammar.Type) -> pa.DataType:
    match kind:
        case grammar.Simple(name):
            return _READ[name]
        case grammar.Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case grammar.Array(element):
            return names.list_of(names.field(names.ELEMENT, _arrow(element)))
        case grammar.Map(key, value):
            return names.map_of(_arrow(key), names.field("value", _arrow(value)))
        case grammar.Struct(columns):
            return pa.struct(_fields(columns))
