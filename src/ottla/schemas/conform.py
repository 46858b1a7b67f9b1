"""Fits the columns of one schema to those of a table.

`match` compares the two: which columns of the schema are wanted (nested ones too, so that programs
skip the rest), and how each column of the table comes of them. It raises SchemaConflict if a value
has no place: its column has another type. `Recipe.apply` does it to arrays.

A column of a table takes a field by its name in the record, by an alias of the column, or by an
alias of the field. Narrower numbers fit wider columns: int to long and double, float to double,
decimals to more digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.schemas import names
from ottla.schemas.model import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class SchemaConflict(SchemaError):
    """A field of a schema has a type that its column cannot take."""

    def __init__(self, path: str, found: str, wanted: str) -> None:
        super().__init__(path, found, wanted)
        self.path = path
        self.found = found
        self.wanted = wanted

    def __str__(self) -> str:
        return f"expected {self.wanted} for the column {self.path}, got {self.found}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a column comes of the arrays of a schema: from that at `index`, or null if negative."""

    column: pa.Field
    index: int
    below: tuple[Recipe, ...]
    is_same: bool

    def apply(self, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        kind = self.column.type
        if self.index < 0:
            return pa.nulls(rows, kind)
        array = arrays[self.index]
        if self.is_same:
            return array
        if pa.types.is_struct(kind):
            parts = [array.field(index) for index in range(array.type.num_fields)]
            made = [each.apply(parts, len(array)) for each in self.below]
            return pa.StructArray.from_arrays(made, fields=list(kind), mask=array.is_null())
        if pa.types.is_map(kind):
            made = [each.apply([array.keys, array.items], len(array.keys)) for each in self.below]
            inner = pa.struct([kind.key_field, kind.item_field])
            made = [pa.Array.from_buffers(inner, len(made[0]), [None], children=made)]
        elif pa.types.is_list(kind):
            made = [self.below[0].apply([array.values], len(array.values))]
        else:
            return array.cast(kind)
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=made)


@dataclass(frozen=True, slots=True)
class Match:
    wanted: tuple[pa.Field, ...]
    """Columns of the schema, as far as the table has them."""
    recipes: tuple[Recipe, ...]
    """One for each column of the table, over arrays of `wanted`."""

    def apply(self, arrays: Sequence[pa.Array], rows: int, columns: pa.Schema) -> pa.RecordBatch:
        made = [each.apply(arrays, rows) for each in self.recipes]
        return pa.RecordBatch.from_arrays(made, schema=columns)


def match(natural: Iterable[pa.Field], columns: Iterable[pa.Field], path: str = "") -> Match:
    """Fit the columns of a schema (`natural`) to `columns`. Raises SchemaConflict."""
    columns = list(columns)
    wanted: list[pa.Field] = []
    chosen: dict[int, Recipe] = {}
    for one in natural:
        places = [each for each in candidates(one, columns) if each not in chosen]
        if not places:
            continue
        problem: SchemaConflict | None = None
        for place in places:
            try:
                field, recipe = _fit(one, columns[place], len(wanted), path)
            except SchemaConflict as error:
                problem = problem or error
                continue
            wanted.append(field)
            chosen[place] = recipe
            break
        else:
            if problem is not None:
                raise problem
    recipes = tuple(
        chosen.get(place) or Recipe(column, -1, (), is_same=False)
        for place, column in enumerate(columns)
    )
    return Match(tuple(wanted), recipes)


def candidates(one: pa.Field, columns: Sequence[pa.Field]) -> list[int]:
    """The columns that may take the field, the most likely first."""
    source = names.source_of(one)
    aliases = names.aliases_of(one)
    exact = [i for i, each in enumerate(columns) if names.source_of(each) == source]
    renamed = [i for i, each in enumerate(columns) if source in names.aliases_of(each)]
    earlier = [i for i, each in enumerate(columns) if names.source_of(each) in aliases]
    return list(dict.fromkeys([*exact, *renamed, *earlier]))


def _fit(one: pa.Field, column: pa.Field, index: int, path: str) -> tuple[pa.Field, Recipe]:
    """What is wanted of the field `one`, and how it becomes `column`."""
    path = f"{path}.{column.name}" if path else column.name
    kind, target = one.type, column.type
    if _shape(kind) != _shape(target) or names.is_json_text(one) != names.is_json_text(column):
        raise SchemaConflict(path, str(kind), str(target))
    if pa.types.is_struct(target):
        inner = match(kind, target, path)
        taken, below = list(inner.wanted), inner.recipes
    elif _shape(target):
        parts = [
            _fit(mine, theirs, place, path)
            for place, (mine, theirs) in enumerate(
                zip(names.children(kind), names.children(target), strict=True)
            )
        ]
        taken, below = [each[0] for each in parts], tuple(each[1] for each in parts)
    else:
        if not fits(kind, target):
            raise SchemaConflict(path, str(kind), str(target))
        return one, Recipe(column, index, (), is_same=kind == target)
    wanted = one.with_type(names.with_children(kind, taken))
    is_same = wanted.type == target and all(
        each.is_same and each.index == place for place, each in enumerate(below)
    )
    return wanted, Recipe(column, index, below, is_same)


def _shape(kind: pa.DataType) -> str:
    """The kind of nesting; empty for scalars."""
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_map(kind):
        return "map"
    return "list" if pa.types.is_list(kind) else ""


def fits(kind: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of `kind` is one of `target`; both are scalars."""
    if kind == target:
        return True
    if pa.types.is_int32(kind):
        return bool(pa.types.is_int64(target) or pa.types.is_float64(target))
    if pa.types.is_float32(kind):
        return bool(pa.types.is_float64(target))
    if pa.types.is_decimal(kind) and pa.types.is_decimal(target):
        return bool(kind.scale == target.scale and kind.precision <= target.precision)
    return False
