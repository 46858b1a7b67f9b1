"""How columns follow a schema."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ottla.schemas import names
from ottla.schemas.columns import columns_of
from ottla.schemas.ddl import parse_ddl, to_ddl
from ottla.schemas.decode import decode
from ottla.schemas.evolution import Add, Conflict, Rename, Widen, evolve, evolved
from ottla.schemas.model import Kind, Schema, SchemaTooLarge


def after(table: str | pa.Schema, schema: str | pa.Schema, **options: Any) -> pa.Schema:
    """The columns after `schema`; a second run gives no change."""
    old = parse_ddl(table) if isinstance(table, str) else table
    new = parse_ddl(schema) if isinstance(schema, str) else schema
    changes = evolve(old, new, **options)
    assert isinstance(changes, list), changes
    made = evolved(old, changes)
    assert evolve(made, new, **options) == []
    return made


@pytest.mark.parametrize(
    ("table", "schema", "expected"),
    [
        ("a int", "a int", "a int"),
        ("a int", "b string, a int", "a int, b string"),
        ("a int, b int", "a int", "a int, b int"),
        ("a int", "a bigint", "a bigint"),
        ("a bigint", "a int", "a bigint"),
        ("a double", "a int", "a double"),
        ("a float", "a double", "a double"),
        ("a decimal(10,2)", "a decimal(12,2)", "a decimal(12,2)"),
        ("a decimal(12,2)", "a decimal(10,2)", "a decimal(12,2)"),
        ("s struct<x: int>", "s struct<y: string, x: bigint>", "s struct<x: bigint, y: string>"),
        ("l array<int>", "l array<bigint>", "l array<bigint>"),
        (
            "l array<struct<x: int>>",
            "l array<struct<x: int, y: array<int>>>",
            "l array<struct<x: int, y: array<int>>>",
        ),
        ("m map<string, int>", "m map<string, bigint>", "m map<string, bigint>"),
        ("Id int", "id int", "Id int, id__2 int"),
    ],
)
def test_case_37_add_nested_add_and_widen(table: str, schema: str, expected: str) -> None:
    assert to_ddl(after(table, schema)) == expected


@pytest.mark.parametrize(
    ("table", "schema", "path"),
    [
        ("a string", "a bigint", "a"),
        ("a bigint", "a string", "a"),
        ("a int", "a double", "a"),
        ("a bigint", "a double", "a"),
        ("a decimal(10,2)", "a decimal(12,3)", "a"),
        ("a int", "a struct<x: int>", "a"),
        ("a array<int>", "a int", "a"),
        ("a array<int>", "a array<string>", "a.element"),
        ("s struct<x: struct<y: int>>", "s struct<x: struct<y: date>>", "s.x.y"),
        ("m map<string, int>", "m map<string, string>", "m.value"),
        ("a timestamp", "a timestamp_ntz", "a"),
    ],
)
def test_case_37_a_conflict_names_its_column(table: str, schema: str, path: str) -> None:
    found = evolve(parse_ddl(table), parse_ddl(schema))
    assert isinstance(found, Conflict)
    assert ".".join(found.path) == path
    assert str(found).startswith("expected ")


def test_case_37_the_changes_are_told() -> None:
    table = parse_ddl("a int, s struct<x: int>")
    new = parse_ddl("a bigint, s struct<x: int, y: date>, z string COMMENT 'new'")
    assert evolve(table, new) == [
        Widen(("a",), pa.int64()),
        Add(("s",), pa.field("y", pa.date32())),
        Add((), pa.field("z", pa.string())),
    ]
    assert evolved(table, evolve(table, new)).field("z").metadata == {b"doc": b"new"}  # type: ignore[arg-type]


def test_case_37_a_conflict_may_get_a_column_of_its_own() -> None:
    made = after("a bigint", "a string", new_column=True)
    assert to_ddl(made) == "a bigint, a__string string"
    assert names.source_of(made.field("a__string")) == "a"
    made = after(made, "a struct<x: int>", new_column=True)
    assert made.names == ["a", "a__string", "a__struct"]
    assert to_ddl(after("a string", "a bigint", new_column=True)) == "a string, a__long bigint"


def avro(*fields: Any) -> Schema:
    return Schema(Kind.AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}))


def test_case_37_an_alias_renames_a_column_whose_old_name_is_gone() -> None:
    old, new = (
        avro({"name": "a", "type": "int"}),
        avro({"name": "b", "type": "long", "aliases": ["a"]}),
    )
    table = columns_of(old)
    changes = evolve(table, columns_of(new))
    assert changes == [Widen(("a",), pa.int64()), Rename(("a",), "b")]
    made = after(table, columns_of(new))
    assert to_ddl(made) == "b bigint"
    assert names.aliases_of(made.field("b")) == ["a"]
    assert evolve(made, columns_of(old)) == []
    for schema in (old, new):
        values = pa.array([b"\x0e"], pa.binary())
        found = decode(values, None, None, made, format="avro", schema=schema)
        assert found.columns.to_pylist() == [{"b": 7}]


def test_case_37_an_alias_whose_old_name_is_still_there_adds_a_column() -> None:
    both = avro({"name": "a", "type": "int"}, {"name": "b", "type": "int", "aliases": ["a"]})
    made = after("a int", columns_of(both))
    assert made.names == ["a", "b"]


def test_columns_stay_within_the_limits() -> None:
    many = ", ".join(f"c{index} int" for index in range(1_999))
    with pytest.raises(SchemaTooLarge, match="2000 leaf columns"):
        evolve(parse_ddl(many), parse_ddl("x int, y int"))
