"""What a column knows beyond its Arrow type: names in the record, aliases, doc, and text of JSON.

It lives in the metadata of Arrow fields, under the keys below. Iceberg keeps only `doc`, so a table
stores the rest in its properties: `names_of` gives it, `with_names` puts it back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SOURCE: Final = b"ottla.source"
"""The field's name in the record, if the column has another one."""
ALIASES: Final = b"ottla.aliases"
"""JSON list of earlier names in the record: Avro's aliases, and old names of renamed columns."""
JSON_TEXT: Final = b"ottla.json"
"""A text column that holds any JSON value as JSON."""
DOC: Final = b"doc"
"""The column's comment; pyiceberg uses this key."""

_OF_NAMES: Final = (SOURCE, ALIASES, JSON_TEXT)

ELEMENT: Final = "element"
"""The name of a list's values, as in Iceberg and Parquet."""


def field(
    name: str,
    kind: pa.DataType,
    *,
    source: str | None = None,
    aliases: Iterable[str] = (),
    doc: str | None = None,
    is_json: bool = False,
) -> pa.Field:
    """A column that may be null."""
    metadata: dict[bytes, bytes] = {}
    if source is not None and source != name:
        metadata[SOURCE] = source.encode()
    if others := list(aliases):
        metadata[ALIASES] = json.dumps(others).encode()
    if doc:
        metadata[DOC] = doc.encode()
    if is_json:
        metadata[JSON_TEXT] = b"1"
    return pa.field(name, kind, metadata=metadata or None)


def list_of(value: pa.Field) -> pa.ListType:
    return pa.list_(value.with_name(ELEMENT))


def map_of(key: pa.DataType, value: pa.Field) -> pa.MapType:
    return pa.map_(key, value.with_name("value"))


def source_of(column: pa.Field) -> str:
    """The name of `column` in the record."""
    found: bytes | None = (column.metadata or {}).get(SOURCE)
    name: str = column.name if found is None else found.decode()
    return name


def aliases_of(column: pa.Field) -> list[str]:
    found = (column.metadata or {}).get(ALIASES)
    return [] if found is None else list(json.loads(found))


def is_json_text(column: pa.Field) -> bool:
    return JSON_TEXT in (column.metadata or {})


def children(kind: pa.DataType) -> list[pa.Field]:
    """The fields below a nested type; none for other types."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_list(kind):
        return [kind.value_field]
    return []


def with_children(kind: pa.DataType, below: list[pa.Field]) -> pa.DataType:
    """`kind` with other fields below it."""
    if pa.types.is_struct(kind):
        return pa.struct(below)
    if pa.types.is_map(kind):
        return pa.map_(below[0], below[1])
    if pa.types.is_list(kind):
        return pa.list_(below[0])
    return kind


def names_of(columns: pa.Schema) -> dict[str, dict[str, Any]]:
    """All names that the table's own schema cannot keep, by path (`a/b`, escaped as in JSON
    pointers). Empty for most tables."""
    found: dict[str, dict[str, Any]] = {}

    def visit(path: str, column: pa.Field) -> None:
        entry: dict[str, Any] = {}
        if source_of(column) != column.name:
            entry["source"] = source_of(column)
        if aliases := aliases_of(column):
            entry["aliases"] = aliases
        if is_json_text(column):
            entry["json"] = True
        if entry and not path.endswith(f"/{ELEMENT}"):
            found[path] = entry
        elif "json" in entry:
            found[path] = {"json": True}
        for below in children(column.type):
            visit(f"{path}/{_escaped(below.name)}", below)

    for column in columns:
        visit(_escaped(column.name), column)
    return found


def with_names(columns: pa.Schema, names: Mapping[str, Mapping[str, Any]]) -> pa.Schema:
    """`columns` with what `names_of` gave; other metadata, such as ids of fields, stay."""

    def visit(path: str, column: pa.Field) -> pa.Field:
        below = [visit(f"{path}/{_escaped(each.name)}", each) for each in children(column.type)]
        kind = with_children(column.type, below)
        entry = names.get(path, {})
        named = field(
            column.name,
            kind,
            source=entry.get("source"),
            aliases=entry.get("aliases", ()),
            is_json=bool(entry.get("json")),
        )
        others = {
            key: text for key, text in (column.metadata or {}).items() if key not in _OF_NAMES
        }
        metadata = others | (named.metadata or {})
        return pa.field(column.name, kind, column.nullable, metadata or None)

    return pa.schema([visit(_escaped(column.name), column) for column in columns])


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
