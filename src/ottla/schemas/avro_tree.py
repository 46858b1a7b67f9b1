"""Avro's types as objects, from the tree that `avro.parse` gives (full names, references inlined).

A recursive type is a record that is met again below itself: the nodes form a graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ottla.schemas.model import InvalidSchema

MAX_DECIMAL_DIGITS: Final = 38
ABSENT: Final = object()
"""A field without default."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """null, boolean, int, long, float, double, bytes or string; `logical` if Ottla knows it."""

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Fixed:
    name: str
    aliases: tuple[str, ...]
    size: int
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Enum:
    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class Array:
    items: Node


@dataclass(frozen=True, slots=True)
class Map:
    values: Node


@dataclass(frozen=True, slots=True)
class Union:
    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    node: Node
    aliases: tuple[str, ...] = ()
    default: Any = ABSENT
    doc: str | None = None


@dataclass(slots=True, eq=False)
class Record:
    """Compared by identity, since it may contain itself."""

    name: str
    aliases: tuple[str, ...]
    fields: list[Field] = field(default_factory=list)


Node: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | Record

NULL: Final = Primitive("null")

_LOGICAL: Final = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
    "uuid": "string",
}


def tree_of(schema: Any) -> Node:
    """The types of a normalised Avro schema."""
    return _Builder().node(schema)


def is_nullable(node: Node) -> tuple[bool, Node]:
    """Whether `node` is a union of null and one other type, and that type."""
    if isinstance(node, Union):
        others = [each for each in node.branches if each != NULL]
        if len(others) == 1:
            return len(others) < len(node.branches), others[0]
    return False, node


class _Builder:
    def __init__(self) -> None:
        self._named: dict[str, Node] = {}

    def node(self, schema: Any) -> Node:
        if isinstance(schema, list):
            return Union(tuple(self.node(each) for each in schema))
        if isinstance(schema, str):
            return self._named.get(schema) or Primitive(schema)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.node(kind)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "enum":
            return self._keep(
                schema,
                Enum(
                    schema["name"],
                    _aliases(schema),
                    tuple(schema["symbols"]),
                    schema.get("default"),
                ),
            )
        if kind == "fixed":
            return self._fixed(schema)
        if kind == "array":
            return Array(self.node(schema["items"]))
        if kind == "map":
            return Map(self.node(schema["values"]))
        if kind in self._named:
            return self._named[kind]
        return _primitive(kind, schema)

    def _keep(self, schema: Any, node: Node) -> Node:
        self._named[schema["name"]] = node
        return node

    def _record(self, schema: Any) -> Node:
        record = Record(schema["name"], _aliases(schema))
        self._keep(schema, record)
        for each in schema["fields"]:
            record.fields.append(
                Field(
                    each["name"],
                    self.node(each["type"]),
                    tuple(each.get("aliases", ())),
                    each.get("default", ABSENT),
                    each.get("doc"),
                )
            )
        return record

    def _fixed(self, schema: Any) -> Node:
        name, size = schema["name"], schema["size"]
        logical = schema.get("logicalType", "")
        if logical == "decimal" and (digits := _digits(schema)):
            node = Fixed(name, _aliases(schema), size, logical, *digits)
        elif (logical == "uuid" and size == 16) or (logical == "duration" and size == 12):
            node = Fixed(name, _aliases(schema), size, logical)
        else:
            node = Fixed(name, _aliases(schema), size)
        return self._keep(schema, node)


def _primitive(kind: str, schema: Any) -> Primitive:
    logical = schema.get("logicalType", "")
    if kind == "bytes" and logical == "decimal" and (digits := _digits(schema)):
        return Primitive(kind, logical, *digits)
    if _LOGICAL.get(logical) == kind:
        return Primitive(kind, logical)
    return Primitive(kind)


def _digits(schema: Any) -> tuple[int, int] | None:
    """Precision and scale of a decimal; None if it is not one, which Avro then ignores."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return (precision, scale) if 0 <= scale <= precision and precision > 0 else None


def _aliases(schema: Any) -> tuple[str, ...]:
    found = schema.get("aliases") or ()
    if not isinstance(found, list | tuple):
        raise InvalidSchema(f"expected aliases as a list, got {found!r}")
    return tuple(found)
