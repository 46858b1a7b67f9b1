"""Columns that follow the schemas of values."""

from __future__ import annotations

import json
from typing import Any, Literal

import pyarrow as pa
import pytest

from ottla.schemas import names
from ottla.schemas.conform import SchemaConflict
from ottla.schemas.evolution import evolve, evolved
from ottla.schemas.model import SchemaTooLarge
from ottla.schemas.reasons import Reason
from ottla.schemas.values import Values
from tests.unit.schemas.test_decode import Registry, avro, framed, record

ONE = record(("amount", "int"))
TWO = record(("amount", "long"), ("shop", ["null", "string"]))
TEXT = record(("amount", "string"))


def values(*given: bytes | None) -> pa.Array:
    return pa.array(given, pa.binary())


def following(schemas: dict[int, Any], **options: Any) -> Values:
    resolver = Registry({number: avro(tree) for number, tree in schemas.items()})
    return Values("registry", pa.schema([]), resolver=resolver, **options)


def test_case_55_a_second_schema_adds_and_widens_in_the_middle() -> None:
    read = following({1: ONE, 2: TWO})
    found = read.decode(values(framed(1, b"\x02"), framed(2, b"\x04\x02\x02a"), None), None)
    assert found.columns.to_pylist() == [
        {"amount": 1, "shop": None},
        {"amount": 2, "shop": "a"},
        {"amount": None, "shop": None},
    ]
    assert read.columns.field("amount").type == pa.int64()
    assert found.schema_ids.to_pylist() == [1, 2, None]
    before = read.columns
    read.decode(values(framed(2, b"\x04\x00"), framed(1, b"\x02")), None)
    assert read.columns is before


def test_case_56_a_conflict_concerns_the_values_of_its_schema() -> None:
    read = following({1: ONE, 2: TEXT})
    given = values(framed(1, b"\x02"), framed(2, b"\x02x"), framed(1, b"\x04"))
    found = read.decode(given, None)
    assert found.columns.to_pydict() == {"amount": [1, None, 2]}
    assert (found.bad.tolist(), found.reasons.tolist()) == ([1], [Reason.SCHEMA_CONFLICT])


def _wide(start: int, stop: int) -> Any:
    return record(*((f"f{one}", ["null", "int"]) for one in range(start, stop)))


def _deep(levels: int) -> Any:
    tree = record(("n", "int"))
    for level in range(levels):
        tree = {**record(("n", tree)), "name": f"Level{level}"}
    return tree


@pytest.mark.parametrize("on_conflict", ["bad", "new-column"])
@pytest.mark.parametrize(
    ("large", "body"), [(_wide(0, 2100), b"\0" * 2100), (_deep(20), b"\0")], ids=["wide", "deep"]
)
def test_case_56_a_schema_with_too_many_columns_concerns_its_own_values(
    large: Any, body: bytes, on_conflict: Literal["bad", "new-column"]
) -> None:
    """Fault: one value of such a schema stopped the whole table, whoever had written it."""
    given = values(framed(1, b"\x02"), framed(2, body), framed(1, b"\x04"))
    found = following({1: ONE, 2: large}, on_conflict=on_conflict).decode(given, None)
    assert found.columns.to_pydict() == {"amount": [1, None, 2]}
    assert (found.bad.tolist(), found.reasons.tolist()) == ([1], [Reason.SCHEMA_CONFLICT])
    with pytest.raises(SchemaTooLarge):
        following({1: ONE, 2: large}, on_conflict="raise").decode(given, None)


def test_case_56_schemas_with_too_many_columns_together() -> None:
    halves = {1: _wide(0, 1100), 2: _wide(1100, 2200)}
    given = values(framed(1, b"\0" * 1100), framed(2, b"\0" * 1100), framed(1, b"\0" * 1100))
    with pytest.raises(SchemaTooLarge):
        following(halves).decode(given, None)


def test_case_56_with_new_columns_a_conflict_has_one_of_its_own() -> None:
    read = following({1: ONE, 2: TEXT}, on_conflict="new-column")
    given = values(framed(1, b"\x02"), framed(2, b"\x02x"), framed(1, b"\x04"))
    found = read.decode(given, None)
    assert found.columns.to_pydict() == {
        "amount": [1, None, 2],
        "amount__string": [None, "x", None],
    }
    assert not len(found.bad)


def test_a_conflict_may_raise() -> None:
    read = following({1: ONE, 2: TEXT}, on_conflict="raise")
    with pytest.raises(SchemaConflict, match="expected int for the column amount, got string"):
        read.decode(values(framed(1, b"\x02"), framed(2, b"\x02x")), None)


def test_case_36_a_reserved_name_gets_another_column() -> None:
    read = following({1: record(("_offset", "int"))}, reserved=("_offset",))
    found = read.decode(values(framed(1, b"\x02")), None)
    assert found.columns.to_pydict() == {"_offset__2": [1]}
    again = Values("registry", read.columns, resolver=read._resolver, reserved=("_offset",))
    assert again.decode(values(framed(1, b"\x02")), None).columns.schema == read.columns


def test_case_33_only_wanted_columns_are_decoded() -> None:
    read = following({2: TWO})
    found = read.decode(values(framed(2, b"\x04\x02\x02a")), None, ["shop"])
    assert found.columns.to_pydict() == {"shop": ["a"]}
    assert read.columns.names == ["amount", "shop"]


def test_case_37_a_renamed_field_keeps_its_column() -> None:
    renamed = {"name": "total", "type": "int", "aliases": ["amount"]}
    tree = {"type": "record", "name": "R", "fields": [renamed]}
    read = following({1: ONE, 2: tree, 3: record(("total", "int"))})
    given = values(framed(1, b"\x02"), framed(2, b"\x04"), framed(3, b"\x06"))
    assert read.decode(given, None).columns.to_pydict() == {"amount": [1, 2, 3]}
    kept = names.with_names(pa.schema([("amount", pa.int32())]), names.names_of(read.columns))
    assert names.aliases_of(kept.field("amount")) == ["total"]
    natural = pa.schema([names.field("total", pa.int32(), aliases=["amount"])])
    assert evolve(kept, natural) == []


def test_names_keep_the_ids_of_fields() -> None:
    numbered = pa.field("a", pa.int32(), metadata={b"PARQUET:field_id": b"7", b"doc": b"text"})
    found = names.with_names(pa.schema([numbered]), {"a": {"source": "A"}})
    assert found.field("a").metadata == {
        b"PARQUET:field_id": b"7", b"doc": b"text", names.SOURCE: b"A",
    }  # fmt: skip
    assert json.loads(json.dumps(names.names_of(found))) == {"a": {"source": "A"}}
    changes = evolve(found, pa.schema([("b", pa.string())]))
    assert isinstance(changes, list)
    assert evolved(found, changes).field("a").metadata == found.field("a").metadata
