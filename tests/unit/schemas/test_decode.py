"""Framed values: several schemas in one column, and what has none."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from ottla.schemas.columns import columns_of
from ottla.schemas.decode import Decoded, decode
from ottla.schemas.framing import VALUE_HEADER
from ottla.schemas.model import Kind, Reference, Schema
from ottla.schemas.reasons import Reason
from ottla.wire.arrow.decode import HEADER_TYPE
from tests.support.random_avro import encoded

GUID = bytes(range(16))


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    made = [{"name": each, "type": kind} for each, kind in fields]
    return {"type": "record", "name": name, "fields": made}


def avro(tree: Any, *references: Reference) -> Schema:
    return Schema(Kind.AVRO, json.dumps(tree), references)


class Registry:
    """A resolver that counts what it is asked."""

    def __init__(self, schemas: dict[int | bytes, Schema]) -> None:
        self._schemas = schemas
        self.asked: list[int | bytes] = []
        self.texts: dict[str, str] = {}
        self.is_down = False

    def by_id(self, number: int) -> Schema | None:
        return self._ask(number)

    def by_guid(self, guid: bytes) -> Schema | None:
        return self._ask(guid)

    def references(self, schema: Schema) -> dict[str, str]:
        assert schema.references
        return self.texts

    def _ask(self, key: int | bytes) -> Schema | None:
        self.asked.append(key)
        if self.is_down:
            raise ConnectionError("the registry does not answer")
        return self._schemas.get(key)


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big", signed=True) + data


def read(
    values: list[bytes | None], registry: Registry, columns: pa.Schema, **more: Any
) -> Decoded:
    options = {"format": "registry", "headers": None} | more
    headers = options.pop("headers")
    return decode(pa.array(values, pa.binary()), headers, registry, columns, **options)


FIVE: dict[int, Any] = {
    1: record(("a", "int")),
    2: record(("b", ["null", "string"]), ("a", "long")),
    3: record(("c", {"type": "array", "items": "int"}), ("a", "int")),
    4: record(("a", "int"), ("b", "string"), ("d", {"type": "map", "values": "double"})),
    5: record(("b", "string"), name="Other"),
}
COLUMNS = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.list_(pa.field("element", pa.int32()))),
        ("d", pa.map_(pa.string(), pa.float64())),
    ]
)


def test_case_32_five_schemas_mixed_come_back_in_order() -> None:
    rng = random.Random("five")
    values: list[bytes | None] = []
    rows: list[dict[str, Any]] = []
    reasons: dict[int, Reason] = {}
    nothing = dict.fromkeys(COLUMNS.names)
    for row in range(3_000):
        number = rng.randint(1, 7)
        made = {"a": row, "b": f"b{row}", "c": [row, 1], "d": {"k": row / 2}}
        if number == 6:
            values.append(None)
            rows.append(nothing)
            continue
        if number == 7:
            values.append(rng.choice((b"junk", framed(1, b""), framed(99, b"x"))))
            rows.append(nothing)
            kinds = {b"j": Reason.NOT_FRAMED, b"\0": Reason.UNKNOWN_SCHEMA}
            reasons[row] = kinds[values[-1][:1]]  # type: ignore[index]
            if values[-1] == framed(1, b""):
                reasons[row] = Reason.MALFORMED
            continue
        names = [each["name"] for each in FIVE[number]["fields"]]
        kept = {key: made[key] for key in names}
        values.append(framed(number, encoded(FIVE[number], [kept])[0]))
        if "d" in kept:
            kept["d"] = [("k", row / 2)]
        rows.append(nothing | kept)
    registry = Registry({number: avro(tree) for number, tree in FIVE.items()})
    found = read(values, registry, COLUMNS)
    assert found.columns.schema == COLUMNS
    assert found.columns.to_pylist() == rows
    bad = {
        row: Reason(code)
        for row, code in zip(found.bad.tolist(), found.reasons.tolist(), strict=True)
    }
    assert bad == reasons
    assert sorted(registry.asked) == [1, 2, 3, 4, 5, 99]
    ids = [int.from_bytes(each[1:5]) if each and each[0] == 0 else None for each in values]
    assert found.schema_ids.to_pylist() == ids


def test_avro_and_json_schemas_may_be_mixed() -> None:
    text = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    registry = Registry({1: avro(FIVE[1]), 2: Schema(Kind.JSON, json.dumps(text))})
    values = [framed(2, b'{"a":7,"b":"x"}'), framed(1, b"\x02"), framed(2, b"{"), framed(2, b"{}")]
    found = read([*values, None], registry, COLUMNS.remove(3).remove(2))
    assert found.columns.to_pylist() == [
        {"a": 7, "b": "x"},
        {"a": 1, "b": None},
        {"a": None, "b": None},
        {"a": None, "b": None},
        {"a": None, "b": None},
    ]
    assert found.bad.tolist() == [2]


def test_case_34_an_unknown_id_is_asked_for_once() -> None:
    registry = Registry({})
    found = read([framed(9, b"x")] * 100, registry, COLUMNS)
    assert registry.asked == [9]
    assert found.reasons.tolist() == [Reason.UNKNOWN_SCHEMA] * 100
    assert found.columns.num_rows == 100


@pytest.mark.parametrize("number", [0, -1, -(2**31)])
def test_case_34_ids_that_cannot_be_are_not_asked_for(number: int) -> None:
    registry = Registry({})
    found = read([framed(number, b"x")], registry, COLUMNS)
    assert not registry.asked
    assert found.reasons.tolist() == [Reason.UNKNOWN_SCHEMA]


def test_case_34_a_registry_that_does_not_answer_is_no_reason() -> None:
    registry = Registry({})
    registry.is_down = True
    with pytest.raises(ConnectionError):
        read([framed(9, b"x")], registry, COLUMNS)


def test_case_35_guids_in_headers_and_prefixes() -> None:
    registry = Registry({GUID: avro(FIVE[1]), 1: avro(FIVE[5])})
    rows: list[tuple[bytes | None, bytes | None]] = [
        (b"\x02", b"\1" + GUID),
        (b"\1" + GUID + b"\x04", None),
        (b"\x06", b"\1" + GUID[:9]),
        (b"\x06", b"\1" + bytes(16)),
        (framed(1, b"\x02x"), None),
        (framed(1, b"\x02x"), b"\1" + GUID),  # the header counts, so the prefix is part of the data
        (None, b"\1" + GUID),
    ]
    kind = pa.list_(pa.field("element", HEADER_TYPE))
    headers = pa.array(
        [None if each is None else [{"key": VALUE_HEADER, "value": each}] for _, each in rows], kind
    )
    found = read([value for value, _ in rows], registry, COLUMNS, headers=headers)
    assert found.columns.column("a").to_pylist() == [1, 2, None, None, None, None, None]
    assert found.columns.column("b").to_pylist() == [None] * 4 + ["x", None, None]
    assert found.bad.tolist() == [2, 3, 5]
    assert found.reasons.tolist() == [
        Reason.NOT_FRAMED,
        Reason.UNKNOWN_SCHEMA,
        Reason.TRAILING_BYTES,
    ]
    assert found.schema_ids.to_pylist() == [None] * 4 + [1, None, None]


def test_a_conflict_concerns_its_schema_only() -> None:
    registry = Registry({1: avro(FIVE[1]), 2: avro(record(("a", "string")))})
    found = read([framed(1, b"\x02"), framed(2, b"\x02x"), framed(1, b"\x04")], registry, COLUMNS)
    assert found.columns.column("a").to_pylist() == [1, None, 2]
    assert found.bad.tolist() == [1]
    assert found.reasons.tolist() == [Reason.SCHEMA_CONFLICT]
    both = COLUMNS.append(pa.field("a__string", pa.string(), metadata={b"ottla.source": b"a"}))
    found = read([framed(1, b"\x02"), framed(2, b"\x02x")], registry, both)
    assert not len(found.bad)
    assert found.columns.column("a").to_pylist() == [1, None]
    assert found.columns.column("a__string").to_pylist() == [None, "x"]


def test_references_are_resolved() -> None:
    item = record(("x", "int"), name="Item")
    schema = avro(record(("item", "Item")), Reference("Item", "items", 1))
    registry = Registry({1: schema})
    registry.texts = {"Item": json.dumps(item)}
    columns = columns_of(schema, registry.texts)
    found = read([framed(1, b"\x02")], registry, columns)
    assert found.columns.to_pylist() == [{"item": {"x": 1}}]


def test_no_rows_and_no_columns() -> None:
    registry = Registry({1: avro(FIVE[1]), 2: avro(FIVE[2])})
    assert read([], registry, COLUMNS).columns.num_rows == 0
    none = pa.schema([])
    found = read([framed(1, b"\x02"), framed(1, b""), framed(2, b"\0\2")], registry, none)
    assert found.columns.num_rows == 3
    assert found.bad.tolist() == [1]
