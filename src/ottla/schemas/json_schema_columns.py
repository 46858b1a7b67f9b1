"""JSON Schema's types as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from ottla.schemas import names
from ottla.schemas.bounds import MAX_DEPTH, MAX_LEAVES
from ottla.schemas.model import InvalidSchema, SchemaTooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCALARS: Final = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
_FORMATS: Final = {"date": pa.date32(), "date-time": pa.timestamp("us", tz="UTC")}
_COMBINED: Final = ("oneOf", "anyOf")


def json_fields(root: Any, references: Mapping[str, Any]) -> list[pa.Field]:
    """The columns of the objects that `root` describes; not yet `finished`."""
    walk = _Walk(root, references)
    node, where = walk.followed(root, root, ())
    if node.get("type", "object") != "object" or not node.get("properties"):
        raise InvalidSchema("expected an object with properties at the root of a JSON schema")
    return walk.properties(node, where, 1)


class _Walk:
    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        self._root = root
        self._references = references
        self._leaves = 0

    def properties(self, node: Any, where: _Where, depth: int) -> list[pa.Field]:
        return [self.column(name, each, where, depth) for name, each in node["properties"].items()]

    def column(self, name: str, schema: Any, where: _Where, depth: int) -> pa.Field:
        if depth > MAX_DEPTH:
            raise SchemaTooLarge(f"expected columns at most {MAX_DEPTH} deep, got deeper ones")
        if not isinstance(schema, dict):  # true and false are schemas, too
            return self._leaf(name, None, None)
        doc = schema.get("description")
        doc = doc if isinstance(doc, str) else None
        node, inner = self.followed(schema, where.document, where.above)
        if inner.is_circular:
            return self._leaf(name, None, doc)
        kind = _type_of(node)
        if kind == "object":
            return self._object(name, node, inner, depth, doc)
        if kind == "array":
            items = node.get("items")
            if not isinstance(items, dict):
                return self._leaf(name, None, doc)
            element = self.column(names.ELEMENT, items, inner, depth + 1)
            return names.field(name, names.list_of(element), doc=doc)
        if kind == "string":
            return self._leaf(name, _FORMATS.get(node.get("format", ""), pa.string()), doc)
        return self._leaf(name, _SCALARS.get(kind), doc)

    def _object(self, name: str, node: Any, where: _Where, depth: int, doc: str | None) -> pa.Field:
        if node.get("properties"):
            return names.field(name, pa.struct(self.properties(node, where, depth + 1)), doc=doc)
        others = node.get("additionalProperties")
        if isinstance(others, dict) and not node.get("patternProperties"):
            value = self.column("value", others, where, depth + 1)
            return names.field(name, names.map_of(pa.string(), value), doc=doc)
        return self._leaf(name, None, doc)

    def _leaf(self, name: str, kind: pa.DataType | None, doc: str | None) -> pa.Field:
        """A scalar column; None: JSON text."""
        self._leaves += 1
        if self._leaves > MAX_LEAVES:
            raise SchemaTooLarge(f"expected at most {MAX_LEAVES} leaf columns, got more")
        return names.field(name, kind or pa.string(), doc=doc, is_json=kind is None)

    def followed(self, schema: Any, document: Any, above: tuple[int, ...]) -> tuple[Any, _Where]:
        """The schema behind `$ref`s and behind `[null, T]`."""
        for _ in range(MAX_DEPTH * 4):
            target = schema.get("$ref")
            if isinstance(target, str):
                schema, document = self._target(target, document)
            elif (only := _without_null(schema)) is not None:
                schema = only
            else:
                return schema, _Where(document, (*above, id(schema)), id(schema) in above)
            if not isinstance(schema, dict):
                return {}, _Where(document, above, False)
        raise InvalidSchema("expected references that end, got a cycle")

    def _target(self, reference: str, document: Any) -> tuple[Any, Any]:
        name, _, pointer = reference.partition("#")
        if name:
            document = self._references.get(name)
            if document is None:
                raise InvalidSchema(f"expected a known reference, got {reference!r}")
        node = document
        for part in filter(None, unquote(pointer).split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and key.isdigit() and int(key) < len(node):
                node = node[int(key)]
            elif isinstance(node, dict) and key in node:
                node = node[key]
            else:
                raise InvalidSchema(f"expected a known reference, got {reference!r}")
        return node, document


class _Where:
    """The document around a schema, and the schemas above it."""

    __slots__ = ("above", "document", "is_circular")

    def __init__(self, document: Any, above: tuple[int, ...], is_circular: bool) -> None:
        self.document = document
        self.above = above
        self.is_circular = is_circular


def _without_null(schema: Any) -> Any:
    """T of `oneOf: [null, T]` and of `allOf: [T]`; None for other schemas."""
    for word in (*_COMBINED, "allOf"):
        options = schema.get(word)
        if isinstance(options, list):
            others = [each for each in options if each != {"type": "null"}]
            if len(others) == 1 and "type" not in schema and "properties" not in schema:
                return others[0]
    return None


def _type_of(node: Any) -> str:
    """The one type of values besides null; empty if there are several."""
    if any(word in node for word in (*_COMBINED, "allOf", "not", "if")):
        return ""
    kind = node.get("type")
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind is None and isinstance(node.get("enum"), list):
        values = [each for each in node["enum"] if each is not None]
        return "string" if values and all(isinstance(each, str) for each in values) else ""
    if kind is None and isinstance(node.get("properties"), dict):
        return "object"
    return kind if isinstance(kind, str) else ""
