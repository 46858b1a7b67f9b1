"""Arrow rows as values of Avro and JSON: what `decode` and fastavro read again."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ottla.schemas.columns import columns_of
from ottla.schemas.decode import decode
from ottla.schemas.encode import CannotEncode, derived, encode
from ottla.schemas.framing import split
from ottla.schemas.model import Kind, Schema
from tests.support.random_avro import RandomAvro, encoded
from tests.support.sizes import examples


def avro(*fields: tuple[str, Any] | dict[str, Any]) -> Schema:
    listed = [one if isinstance(one, dict) else {"name": one[0], "type": one[1]} for one in fields]
    return Schema(Kind.AVRO, json.dumps({"type": "record", "name": "R", "fields": listed}))


def read(values: pa.Array, schema: Schema) -> pa.RecordBatch:
    found = decode(values, None, None, columns_of(schema), format="avro", schema=schema)
    assert not len(found.bad)
    return found.columns


def test_random_rows_are_read_again_by_decode() -> None:
    written = 0
    for index in range(examples(100)):
        rng = random.Random(f"encode {index}")
        maker = RandomAvro(rng)
        tree = maker.record()
        schema = Schema(Kind.AVRO, json.dumps(tree))
        data = encoded(tree, [maker.value(tree) for _ in range(rng.randint(1, 12))])
        rows = read(pa.array(data, pa.binary()), schema)
        try:
            values = encode(rows, schema)
        except CannotEncode as error:
            said = str(error)
            if "union" in said or "wants a record" in said:
                continue
            raise
        written += 1
        values.validate(full=True)
        assert read(values, schema).equals(rows)
        if rows.num_rows > 2:
            part = rows.slice(1, rows.num_rows - 2)
            assert read(encode(part, schema), schema).equals(part)
    assert written > examples(100) // 5


def test_fastavro_reads_the_values() -> None:
    schema = avro(
        ("shop", "string"),
        ("amount", ["null", "double"]),
        ("lines", {"type": "array", "items": {
            "type": "record", "name": "L", "fields": [{"name": "n", "type": "int"}]}}),
        ("tags", {"type": "map", "values": ["null", "long"]}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("on", {"type": "int", "logicalType": "date"}),
        ("color", {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}),
        ("open", "boolean"),
    )  # fmt: skip
    rows: list[dict[str, Any]] = [
        {
            "shop": f"shop é {number}",
            "amount": None if number % 2 else number / 3,
            "lines": [{"n": one} for one in range(number)],
            "tags": {f"k{one}": one or None for one in range(number)},
            "price": Decimal(f"{number - 2}.25"),
            "at": datetime(2026, 1, 1 + number, tzinfo=UTC),
            "on": date(2026, 1, 1 + number),
            "color": ("RED", "BLUE")[number % 2],
            "open": number % 2 == 0,
        }
        for number in range(5)
    ]
    arrow = pa.RecordBatch.from_pylist(
        [{**one, "tags": list(one["tags"].items())} for one in rows],
        columns_of(schema),
    )
    values = encode(arrow, schema, id=7)
    tree = fastavro.parse_schema(json.loads(schema.text))
    found = []
    for value in values.to_pylist():
        frame = split(value)
        assert frame.id == 7
        found.append(fastavro.schemaless_reader(io.BytesIO(value[frame.start :]), tree, None))
    assert found == rows


def test_missing_columns_have_their_default() -> None:
    schema = avro(
        {"name": "a", "type": "int", "default": 3},
        {"name": "b", "type": ["string", "null"], "default": "x"},
        {"name": "c", "type": ["null", "int"], "default": None},
        ("d", ["int", "null"]),
        {"name": "e", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "f", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "default": "B"},
        ("g", "long"),
    )
    rows = pa.RecordBatch.from_pydict({"g": [1, 2]})
    first, second = read(encode(rows, schema), schema).to_pylist()
    assert first == {"a": 3, "b": "x", "c": None, "d": None, "e": [], "f": "B", "g": 1}
    assert second["g"] == 2


@pytest.mark.parametrize(
    ("schema", "rows", "said"),
    [
        (avro(("a", "int")), {"a": [1, None]}, "a of row 1 is null"),
        (avro(("a", "int")), {"a": [2**31]}, "a is int64, and does not fit int"),
        (avro(("a", "int")), {"a": ["x"]}, "does not fit int"),
        (avro(("a", "int")), {"a": [1], "b": [2]}, "no field b"),
        (avro(("a", "int"), ("b", "int")), {"a": [1]}, "no column b"),
        (avro(("a", ["int", "string"])), {"a": [1]}, "union of several types"),
        (avro(("a", {"type": "array", "items": "int"})), {"a": [1]}, "wants an array"),
        (
            avro(("a", {"type": "array", "items": "int"})),
            {"a": [[1], [None]]},
            "a.element of row 1",
        ),
        (avro(("a", {"type": "enum", "name": "E", "symbols": ["A"]})), {"a": ["Z"]}, "none of A"),
        (avro(("a", {"type": "fixed", "name": "F", "size": 2})), {"a": [b"xyz"]}, "expected 2"),
        (Schema(Kind.PROTOBUF, "message M {}"), {"a": [1]}, "PROTOBUF is not written"),
        (Schema(Kind.JSON, "{}"), {"a": [b"x"]}, "JSON has no bytes"),
    ],
)
def test_rows_that_do_not_fit_are_named(schema: Schema, rows: dict[str, Any], said: str) -> None:
    with pytest.raises(CannotEncode, match=said):
        encode(pa.RecordBatch.from_pydict(rows), schema)


def test_json_objects_leave_nulls_out() -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"a": 1, "b": {"c": None, "d": [1.5]}}, {"a": None, "b": None}]
    )
    values = encode(rows, Schema(Kind.JSON, "{}"), id=2).to_pylist()
    assert values == [b'\0\0\0\0\2{"a":1,"b":{"d":[1.5]}}', b"\0\0\0\0\2{}"]


def test_a_schema_is_derived_from_columns() -> None:
    rows = pa.RecordBatch.from_pylist(
        [
            {
                "shop": "a",
                "amount": 1.5,
                "at": datetime(2026, 1, 1, tzinfo=UTC),
                "on": date(2026, 1, 2),
                "price": Decimal("1.25"),
                "inner": {"n": 1, "more": [{"m": "x"}, {"m": None}]},
            },
            {"shop": None},
        ]
    )
    schema = derived(rows.schema, "totals")
    assert read(encode(rows, schema), schema).to_pylist() == rows.to_pylist()
    with pytest.raises(CannotEncode, match="no type for"):
        derived(pa.schema([("a", pa.duration("s"))]), "x")
