"""Columns for JSON values, by looking at some of them. Pure.

    found = Inference()
    for value in values:
        found.add(value)
    to_ddl(found.columns())

- Whole numbers are `bigint`, or `decimal(38,0)` beyond 64 bits; others are `double`.
- A field whose values have several types is `string`: texts as they are, other values as JSON.
- Texts are `string`, also those that look like times: nobody knows whether all do.
- An object with more than MAX_NAMES names in a field is a map: its names are data.
- Values that are no JSON object are counted, and say nothing about columns.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import pyarrow as pa

from ottla.schemas import names
from ottla.schemas.bounds import MAX_DEPTH, MAX_LEAVES
from ottla.tables.errors import TableError

MAX_NAMES: Final = 200
"""Names of an object below a field; records have fewer fields, maps soon have more."""
MAX_DIGITS: Final = 38
"""Of a decimal."""


class _Whole(str):
    """A whole number as it is written."""

    __slots__ = ()


class _Node:
    """What the values of one place were."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.fields: dict[str, _Node] = {}
        self.counts: dict[str, int] = {}
        self.element: _Node | None = None
        self.item: _Node | None = None
        """Of a map: objects here have too many names."""

    def add(self, value: Any, depth: int) -> None:
        if value is None:
            return
        if isinstance(value, dict):
            self.kinds.add("object" if depth < MAX_DEPTH else "deep")
            if depth < MAX_DEPTH:
                self._add_object(value, depth)
        elif isinstance(value, list):
            self.kinds.add("array" if depth < MAX_DEPTH else "deep")
            if depth < MAX_DEPTH:
                self.element = self.element or _Node()
                for one in value:
                    self.element.add(one, depth + 1)
        else:
            self.kinds.add(_scalar(value))

    def _add_object(self, value: dict[str, Any], depth: int) -> None:
        for name, one in value.items():
            if not name:
                continue  # no column can have it
            if self.item is not None:
                self.item.add(one, depth + 1)
                continue
            if name not in self.fields:
                self.fields[name] = _Node()
            self.fields[name].add(one, depth + 1)
            self.counts[name] = self.counts.get(name, 0) + (one is not None)
        if len(self.fields) > MAX_NAMES and depth > 0:
            self.item = _Node()
            for field in self.fields.values():
                self.item.join(field)
            self.fields = {}

    def join(self, other: _Node) -> None:
        """Have seen what another place has, too."""
        self.kinds |= other.kinds
        for name, field in other.fields.items():
            self.fields.setdefault(name, _Node()).join(field)
        if other.element is not None:
            self.element = self.element or _Node()
            self.element.join(other.element)
        if other.item is not None:
            self.item = self.item or _Node()
            self.item.join(other.item)

    def type(self) -> pa.DataType:
        if self.kinds == {"object"} and self.item is not None:
            for field in self.fields.values():
                self.item.join(field)
            return names.map_of(pa.string(), names.field("value", self.item.type()))
        if self.kinds == {"object"} and self.fields:
            return pa.struct([names.field(name, one.type()) for name, one in self.fields.items()])
        if self.kinds == {"array"} and self.element is not None:
            return names.list_of(names.field(names.ELEMENT, self.element.type()))
        if self.kinds == {"boolean"}:
            return pa.bool_()
        if self.kinds == {"whole"}:
            return pa.int64()
        if self.kinds and self.kinds <= {"whole", "large"}:
            return pa.decimal128(MAX_DIGITS, 0)
        if self.kinds and self.kinds <= {"whole", "large", "double"}:
            return pa.float64()
        return pa.string()


class Inference:
    """Columns that read all values that were added."""

    def __init__(self) -> None:
        self.objects = 0
        """Values that are a JSON object."""
        self.others = 0
        """Values that are not."""
        self._root = _Node()

    def add(self, value: bytes | None) -> None:
        """Look at one value; a tombstone says nothing."""
        if value is None:
            return
        try:
            found = json.loads(
                value, object_pairs_hook=_object, parse_int=_Whole, parse_constant=_refuse
            )
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.others += 1
            return
        self.objects += 1
        self._root.add(found, 0)
        if len(self._root.fields) > MAX_LEAVES:
            raise TableError(
                f"values have more than {MAX_LEAVES} different fields, more than a table can have "
                "columns; name those you want in ottla.table.value.schema"
            )

    def columns(self) -> pa.Schema:
        """One column for each field that a value had."""
        return pa.schema([names.field(name, one.type()) for name, one in self._root.fields.items()])

    def optional(self) -> dict[str, int]:
        """Fields that some values do not have, or have as null; and how many have them."""
        counts = self._root.counts
        return {name: count for name, count in counts.items() if count < self.objects}

    def mixed(self) -> list[str]:
        """Fields whose values have several types, so that they are text."""
        return [
            name
            for name, one in self._root.fields.items()
            if len(one.kinds) > 1 and pa.types.is_string(one.type())
        ]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice")
    return found


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _scalar(value: Any) -> str:
    if isinstance(value, _Whole):
        digits = value.lstrip("-")
        if len(digits) > MAX_DIGITS:
            return "huge"
        return "whole" if -(2**63) <= int(value) < 2**63 else "large"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "double" if abs(value) != float("inf") else "huge"
    return "text"
