"""How the columns of a table follow a schema that changes.

`evolve` says what to change; `evolved` gives the columns after it. Columns are added (nested ones
too), widened (int to long, float to double, decimals to more digits) and renamed by an Avro alias
whose old name is gone from the new schema. They are never removed, narrowed or required. A second
run with the same schema gives no change.

A path is a tuple of column names; the values of lists are `element`, those of maps `value`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ottla.schemas import names
from ottla.schemas.conform import SchemaConflict, candidates, fits
from ottla.schemas.ddl import type_ddl
from ottla.schemas.limits import finished, free_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Add:
    """A new column below `path` (empty: at the top)."""

    path: Path
    column: pa.Field


@dataclass(frozen=True, slots=True)
class Widen:
    """The column at `path` gets a wider type."""

    path: Path
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class Rename:
    """The column at `path` gets another name; records of older schemas still find it."""

    path: Path
    name: str


Change: TypeAlias = Add | Widen | Rename


@dataclass(frozen=True, slots=True)
class Conflict:
    """A field whose column has a type that cannot become the field's."""

    path: Path
    found: str
    wanted: str

    def __str__(self) -> str:
        name = ".".join(self.path)
        return f"expected {self.wanted} for the column {name}, got {self.found}"


def evolve(
    table: pa.Schema,
    schema: pa.Schema,
    *,
    new_column: bool = False,
    reserved: Collection[str] = (),
) -> list[Change] | Conflict:
    """What has to change in the columns of `table` so that values of `schema` fit.

    With `new_column` a field that fits no column gets one of its own, `<name>__<type>`. A field
    whose name is `reserved` gets a column `<name>__2`. Raises SchemaTooLarge if there would be too
    many columns.
    """
    walk = _Walk(new_column)
    try:
        walk.fields(list(table), list(schema), (), {each.lower() for each in reserved})
    except SchemaConflict as error:
        return Conflict(tuple(error.path.split("\0")), error.found, error.wanted)
    if walk.changes:
        finished(list(evolved(table, walk.changes)))
    return walk.changes


def apart(schema: pa.Schema, reserved: Collection[str]) -> pa.Schema:
    """The columns of a schema beside others whose names are `reserved`."""
    nothing = pa.schema([])
    changes = evolve(nothing, schema, reserved=reserved)
    assert not isinstance(changes, Conflict)  # nothing is there to be in conflict with
    return evolved(nothing, changes)


def evolved(table: pa.Schema, changes: Iterable[Change], *, keep_names: bool = False) -> pa.Schema:
    """The columns after `changes`. With `keep_names` a renamed column keeps its name, and takes
    fields of the new one, too: files that are there already have it under the old name."""
    root = pa.field("", pa.struct(list(table)))
    for change in changes:
        root = _changed(root, change.path, change, keep_names)
    return pa.schema(list(root.type))


def _changed(column: pa.Field, path: Path, change: Change, keep_names: bool) -> pa.Field:
    if path:
        below = [
            _changed(each, path[1:], change, keep_names) if each.name == path[0] else each
            for each in names.children(column.type)
        ]
        return column.with_type(names.with_children(column.type, below))
    if isinstance(change, Add):
        return column.with_type(pa.struct([*column.type, change.column]))
    if isinstance(change, Widen):
        return column.with_type(change.kind)
    if keep_names:
        aliases = json.dumps([*names.aliases_of(column), change.name]).encode()
        return column.with_metadata({**(column.metadata or {}), names.ALIASES: aliases})
    doc = (column.metadata or {}).get(names.DOC)
    earlier = [names.source_of(column), *names.aliases_of(column)]
    return names.field(
        change.name,
        column.type,
        aliases=dict.fromkeys(earlier),
        doc=None if doc is None else doc.decode(),
        is_json=names.is_json_text(column),
    )


class _Walk:
    def __init__(self, new_column: bool) -> None:
        self.changes: list[Change] = []
        self._new_column = new_column

    def fields(
        self,
        columns: list[pa.Field],
        fields: Sequence[pa.Field],
        path: Path,
        reserved: Collection[str] = (),
    ) -> None:
        """Compare the fields of a struct with the columns of one."""
        sources = {names.source_of(each) for each in fields}
        taken = {each.name.lower() for each in columns} | {*reserved}
        used: set[int] = set()
        for one in fields:
            places = [
                place
                for place in candidates(one, columns)
                if place not in used and _may_take(one, columns[place], sources)
            ]
            place = self._first_fit(one, columns, places, path)
            if place is None:
                self._add(one, columns, places, taken, path)
                continue
            used.add(place)
            column = columns[place]
            self._compare(column, one, path)
            source, given = names.source_of(column), names.source_of(one)
            is_known = source == given or given in names.aliases_of(column)
            if not is_known and source in names.aliases_of(one):
                name = free_name(one.name, taken - {column.name.lower()})
                taken.add(name.lower())
                self.changes.append(Rename((*path, column.name), name))

    def _first_fit(
        self, one: pa.Field, columns: list[pa.Field], places: list[int], path: Path
    ) -> int | None:
        for place in places:
            trial = _Walk(self._new_column)
            try:
                trial._compare(columns[place], one, path)
            except SchemaConflict:
                continue
            return place
        return None

    def _add(
        self,
        one: pa.Field,
        columns: list[pa.Field],
        places: list[int],
        taken: set[str],
        path: Path,
    ) -> None:
        name = one.name
        if places:
            if not self._new_column:
                self._compare(columns[places[0]], one, path)  # raises
            name = f"{one.name}__{_label(one.type)}"
        name = free_name(name, taken)
        taken.add(name.lower())
        doc = (one.metadata or {}).get(names.DOC)
        column = names.field(
            name,
            one.type,
            source=names.source_of(one),
            aliases=names.aliases_of(one),
            doc=None if doc is None else doc.decode(),
            is_json=names.is_json_text(one),
        )
        self.changes.append(Add(path, column))

    def _compare(self, column: pa.Field, one: pa.Field, path: Path) -> None:
        """Changes for a field that belongs to `column`. Raises SchemaConflict."""
        path = (*path, column.name)
        kind, target = one.type, column.type
        below, above = names.children(kind), names.children(target)
        is_alike = _shape(kind) == _shape(target)
        if not is_alike or names.is_json_text(one) != names.is_json_text(column):
            raise SchemaConflict("\0".join(path), _shown(kind), _shown(target))
        if pa.types.is_struct(target):
            self.fields(above, below, path)
        elif above:
            for mine, theirs in zip(above, below, strict=True):
                self._compare(mine, theirs, path)
        elif fits(kind, target):
            return
        elif _can_widen(target, kind):
            self.changes.append(Widen(path, kind))
        else:
            raise SchemaConflict("\0".join(path), _shown(kind), _shown(target))


def _may_take(one: pa.Field, column: pa.Field, sources: set[str]) -> bool:
    """A column whose name another field of the schema has is that field's."""
    source = names.source_of(column)
    return source == names.source_of(one) or source not in sources


def _can_widen(target: pa.DataType, kind: pa.DataType) -> bool:
    """Whether Iceberg can change the column's type to `kind`."""
    if pa.types.is_int32(target):
        return bool(pa.types.is_int64(kind))
    return fits(target, kind)


def _shape(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_map(kind):
        return "map"
    return "array" if pa.types.is_list(kind) else ""


def _label(kind: pa.DataType) -> str:
    """A type in the name of a column."""
    if pa.types.is_decimal(kind):
        return f"decimal_{kind.precision}_{kind.scale}"
    return _shape(kind) or {"bigint": "long"}.get(type_ddl(kind), type_ddl(kind))


def _shown(kind: pa.DataType) -> str:
    return type_ddl(kind)
