"""Avro programs against fastavro, on sound records and on damaged ones."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ottla.schemas import program_kernels, programs
from ottla.schemas.avro_columns import fields_of
from ottla.schemas.avro_program import compile_avro
from ottla.schemas.avro_tree import tree_of
from ottla.schemas.columns import columns_of
from ottla.schemas.ddl import type_ddl
from ottla.schemas.decode import Decoded, decode
from ottla.schemas.model import ChunkTooLarge, Kind, Schema, SchemaTooLarge
from ottla.schemas.reasons import Reason
from tests.support.random_avro import RandomAvro, encoded, rows_of
from tests.support.sizes import SOAK, examples

UTC = datetime.UTC
THOUSANDS = 10_000 if SOAK else 3_000


def schema_of(tree: Any) -> Schema:
    return Schema(Kind.AVRO, json.dumps(tree))


def read(tree: Any, data: list[bytes | None], columns: pa.Schema | None = None) -> Decoded:
    schema = schema_of(tree)
    values = pa.array(data, pa.binary())
    return decode(values, None, None, columns or columns_of(schema), format="avro", schema=schema)


def one(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


DECIMAL = logical("bytes", "decimal", precision=38, scale=2)
FIXED = {"type": "fixed", "name": "F", "size": 3}
UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
DURATION = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
MOST = Decimal("999999999999999999999999999999999999.99")
LEAST = Decimal("-999999999999999999999999999999999999.99")
TYPES: list[tuple[Any, str, list[tuple[Any, Any]]]] = [
    ("boolean", "boolean", [(True, True), (False, False)]),
    ("int", "int", [(2**31 - 1,) * 2, (-(2**31),) * 2]),
    ("long", "bigint", [(2**63 - 1,) * 2, (-(2**63),) * 2]),
    ("float", "float", [(3.4028234663852886e38,) * 2, (-0.5,) * 2]),
    ("double", "double", [(1.7976931348623157e308,) * 2, (5e-324,) * 2]),
    ("string", "string", [("", ""), ("é🐟" * 40,) * 2]),
    ("bytes", "binary", [(b"", b""), (bytes(range(256)),) * 2]),
    (FIXED, "binary", [(b"abc",) * 2]),
    (DURATION, "binary", [(b"abcdefghijkl",) * 2]),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", [("A", "A"), ("B", "B")]),
    (DECIMAL, "decimal(38,2)", [(MOST, MOST), (LEAST, LEAST), (Decimal("0.00"),) * 2]),
    (logical("bytes", "decimal", precision=39), "binary", [(b"\1", b"\1")]),
    (logical("int", "date"), "date", [(datetime.date(1, 1, 1),) * 2]),
    (logical("int", "time-millis"), "bigint", [(datetime.time(0, 0, 1), 1_000)]),
    (logical("long", "time-micros"), "bigint", [(datetime.time(0, 0, 1), 1_000_000)]),
    (logical("long", "timestamp-millis"), "timestamp",
     [(datetime.datetime(2250, 1, 1, tzinfo=UTC),) * 2]),
    (logical("long", "timestamp-micros"), "timestamp",
     [(datetime.datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),) * 2]),
    (logical("long", "timestamp-nanos"), "bigint", [(2**63 - 1,) * 2]),
    (logical("long", "local-timestamp-millis"), "timestamp_ntz",
     [(datetime.datetime(2026, 1, 1),) * 2]),
    (logical("long", "local-timestamp-micros"), "timestamp_ntz",
     [(datetime.datetime(2026, 1, 1, 0, 0, 0, 7),) * 2]),
    (logical("string", "uuid"), "string", [("12345678-1234-5678-1234-567812345678",) * 2]),
    (logical("string", "of-somebody"), "string", [("x", "x")]),
    ({"type": "array", "items": "int"}, "array<int>", [([], []), ([1, 2], [1, 2])]),
    ({"type": "map", "values": "int"}, "map<string, int>", [({}, []), ({"a": 1}, [("a", 1)])]),
    (one("int") | {"name": "Inner"}, "struct<v: int>", [({"v": 1},) * 2]),
    (["int", "string"], "struct<int: int, string: string>",
     [(1, {"int": 1, "string": None}), ("x", {"int": None, "string": "x"})]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "ddl", "values"), TYPES, ids=lambda each: str(each)[:30])
def test_case_25_each_row_of_the_type_table(kind: Any, ddl: str, values: list[Any]) -> None:
    nullable = ["null", *kind] if isinstance(kind, list) else ["null", kind]
    for tree, cases in ((one(kind), values), (one(nullable), [*values, (None, None)])):
        columns = columns_of(schema_of(tree))
        assert type_ddl(columns.field("v").type) == ddl
        found = read(tree, list(encoded(tree, [{"v": given} for given, _ in cases])))
        assert not len(found.bad)
        assert found.columns.column("v").to_pylist() == [expected for _, expected in cases]
        found.columns.validate(full=True)


def test_case_25_a_uuid_of_16_bytes_is_text() -> None:
    found = read(one(UUID), [bytes(range(16))])
    assert found.columns.to_pylist() == [{"v": "00010203-0405-0607-0809-0a0b0c0d0e0f"}]


def test_case_25_units_are_in_the_doc() -> None:
    columns = columns_of(schema_of(one(logical("long", "timestamp-nanos"))))
    assert columns.field("v").metadata == {b"doc": b"nanoseconds since 1970-01-01 UTC"}


def same(found: Decoded, rows: list[Any]) -> None:
    assert not len(found.bad)
    found.columns.validate(full=True)
    expected = pa.array(rows, pa.struct(list(found.columns.schema)))
    assert found.columns.to_pylist() == expected.to_pylist()


def random_records(seed: str, count: int) -> None:
    for index in range(count):
        rng = random.Random(f"{seed} {index}")
        maker = RandomAvro(rng)
        tree = maker.record()
        data = encoded(tree, [maker.value(tree) for _ in range(rng.randint(1, 12))])
        same(read(tree, list(data)), rows_of(data, tree))


def test_case_26_random_records_are_what_fastavro_reads() -> None:
    random_records("sound", examples(400))


@pytest.mark.long("thousands of schemas")
def test_case_26_thousands_of_random_schemas() -> None:
    random_records("many", THOUSANDS)


def evolved_records(seed: str, count: int) -> None:
    for index in range(count):
        rng = random.Random(f"{seed} {index}")
        maker = RandomAvro(rng, logical=False)
        tree = maker.record()
        reader = maker.evolved(tree)
        data = encoded(tree, [maker.value(tree) for _ in range(rng.randint(1, 12))])
        schema = schema_of(reader)
        framed = [b"\0\0\0\0\1" + each for each in data]
        found = decode(
            pa.array(framed, pa.binary()),
            None,
            Known({1: schema_of(tree)}),
            columns_of(schema),
            format="registry-latest",
            schema=schema,
        )
        same(found, rows_of(data, tree, reader))


class Known:
    """A resolver of a few schemas."""

    def __init__(self, schemas: dict[int, Schema]) -> None:
        self._schemas = schemas

    def by_id(self, number: int) -> Schema | None:
        return self._schemas.get(number)

    def by_guid(self, _guid: bytes) -> Schema | None:
        return None

    def references(self, _schema: Schema) -> dict[str, str]:
        return {}


def test_case_27_records_of_an_older_schema_are_what_fastavro_resolves() -> None:
    evolved_records("evolved", examples(400))


@pytest.mark.long("thousands of pairs of schemas")
def test_case_27_thousands_of_pairs() -> None:
    evolved_records("pairs", THOUSANDS)


def test_case_27_a_branch_that_is_gone_makes_only_its_records_bad() -> None:
    writer, reader = one(["int", "string", "null"]), schema_of(one(["null", "string"]))
    data = encoded(writer, [{"v": 1}, {"v": "x"}, {"v": None}])
    found = decode(
        pa.array([b"\0\0\0\0\1" + each for each in data], pa.binary()),
        None,
        Known({1: schema_of(writer)}),
        columns_of(reader),
        format="registry-latest",
        schema=reader,
    )
    assert found.bad.tolist() == [0]
    assert found.reasons.tolist() == [Reason.MALFORMED]
    assert found.columns.to_pylist() == [{"v": None}, {"v": "x"}, {"v": None}]


def test_case_27_a_branch_of_the_same_type_is_preferred() -> None:
    writer, reader = one(["bytes", "int", "string"]), schema_of(one(["string", "double", "bytes"]))
    data = encoded(writer, [{"v": b"\xff"}, {"v": 1}, {"v": "x"}])
    found = decode(
        pa.array([b"\0\0\0\0\1" + each for each in data], pa.binary()),
        None,
        Known({1: schema_of(writer)}),
        columns_of(reader),
        format="registry-latest",
        schema=reader,
    )
    nothing = {"string": None, "double": None, "bytes": None}
    assert found.columns.column("v").to_pylist() == [
        nothing | {"bytes": b"\xff"},
        nothing | {"double": 1.0},
        nothing | {"string": "x"},
    ]


def test_case_29_every_truncation_and_changed_byte() -> None:
    """Bad, or other values; never a failure, and the neighbours are right."""
    rng = random.Random("damage")
    outcomes = set()
    for _ in range(examples(100)):
        maker = RandomAvro(rng)
        tree = maker.record()
        value = maker.value(tree)
        data = encoded(tree, [value])[0]
        cut = [data[:size] for size in range(len(data))]
        changed = []
        for _ in range(min(1_000, 8 * len(data))):
            damaged = bytearray(data)
            if damaged:
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            changed.append(bytes(damaged))
        longer = [data + b"\0"]
        found = read(tree, [data, *cut, *changed, *longer, data])
        found.columns.validate(full=True)
        bad = set(found.bad.tolist())
        rows = found.columns.num_rows
        assert 0 not in bad
        assert rows - 1 not in bad
        # No part of a record is a record of the same schema: the walk needs all its bytes.
        assert bad >= set(range(1, 1 + len(cut)))
        assert rows - 2 in bad
        expected = pa.array(rows_of([data], tree), pa.struct(list(found.columns.schema)))
        first, last = found.columns.slice(0, 1), found.columns.slice(rows - 1)
        assert first.to_pylist() == last.to_pylist() == expected.to_pylist()
        outcomes |= set(found.reasons.tolist())
    assert {Reason.MALFORMED, Reason.TRAILING_BYTES} <= outcomes


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("int", b"", Reason.MALFORMED),
        ("int", b"\x80\x80\x80\x80\x10", Reason.OUT_OF_RANGE),
        ("long", b"\x80" * 10, Reason.MALFORMED),
        ("long", b"\xff" * 9 + b"\x02", Reason.MALFORMED),
        ("string", b"\x01", Reason.MALFORMED),
        ("string", b"\x02\xff", Reason.MALFORMED),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", Reason.MALFORMED),
        ("boolean", b"\x02", Reason.MALFORMED),
        (["null", "int"], b"\x04", Reason.MALFORMED),
        (["null", "int"], b"\x01", Reason.MALFORMED),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", Reason.MALFORMED),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f", Reason.MALFORMED),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f", Reason.TOO_LARGE),
        ({"type": "array", "items": "int"}, b"\x01\x7f\x02\x00", Reason.MALFORMED),
        ({"type": "array", "items": "int"}, b"\x01\x01\x02\x00", Reason.MALFORMED),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x00\x00", Reason.MALFORMED),
        (logical("long", "timestamp-millis"), b"\xfe" + b"\xff" * 8 + b"\x01", Reason.OUT_OF_RANGE),
        (logical("bytes", "decimal", precision=2), b"\x02\x64", Reason.OUT_OF_RANGE),
        (logical("bytes", "decimal", precision=2), b"\x02\x9c", Reason.OUT_OF_RANGE),
        (DECIMAL, b"\x22\x01" + bytes(16), Reason.OUT_OF_RANGE),
        (DECIMAL, b"\x20\x80" + bytes(15), Reason.OUT_OF_RANGE),
        ("int", b"\x02\x02", Reason.TRAILING_BYTES),
    ],
)  # fmt: skip
def test_each_fault_has_its_reason(kind: Any, data: bytes, reason: Reason) -> None:
    found = read(one(kind), [data, None])
    assert found.bad.tolist() == [0]
    assert found.reasons.tolist() == [reason]
    assert found.columns.to_pylist() == [{"v": None}, {"v": None}]


def test_decimals_may_have_needless_bytes() -> None:
    kind = logical("bytes", "decimal", precision=4, scale=2)
    data = [b"\x26" + bytes(18) + b"\x7b", b"\x26" + b"\xff" * 18 + b"\x85", b"\x00"]
    found = read(one(kind), list(data))
    assert found.columns.column("v").to_pylist() == [Decimal("1.23"), Decimal("-1.23"), Decimal(0)]


def test_blocks_with_sizes_are_read_and_skipped() -> None:
    tree = one({"type": "array", "items": "int"})
    tree["fields"].append({"name": "w", "type": "int"})
    data = [b"\x03\x04\x02\x04\x02\x06\x00\x0e"]  # a block of -2 in 2 bytes, one of 1, the end
    assert read(tree, list(data)).columns.to_pylist() == [{"v": [1, 2, 3], "w": 7}]
    assert read(tree, list(data), pa.schema([("w", pa.int32())])).columns.to_pylist() == [{"w": 7}]


def test_case_33_only_wanted_columns_have_slots() -> None:
    kinds = ("long", "string", {"type": "array", "items": "string"}, ["null", "double"])
    tree = {
        "type": "record",
        "name": "Wide",
        "fields": [{"name": f"c{index}", "type": kinds[index % 4]} for index in range(50)],
    }
    wanted = columns_of(schema_of(tree)).field("c25")
    program = compile_avro(tree_of(tree), None, [wanted])
    assert len(program.slots) == 1
    codes = program.ops[:, 0].tolist()
    assert codes.count(program_kernels.TEXT) == 1
    assert not {program_kernels.LONG, program_kernels.COPY} & set(codes)
    rng = random.Random("wide")
    maker = RandomAvro(rng)
    data = encoded(tree, [maker.value(tree) for _ in range(50)])
    found = read(tree, list(data), pa.schema([wanted]))
    assert found.columns.schema.names == ["c25"]
    rows = [{"c25": each["c25"]} for each in rows_of(data, tree)]
    assert found.columns.to_pylist() == rows


def test_nested_columns_are_pruned_too() -> None:
    inner = {"type": "record", "name": "I", "fields": [
        {"name": "x", "type": "string"}, {"name": "y", "type": "int"}]}  # fmt: skip
    tree = one({"type": "array", "items": inner})
    data = encoded(tree, [{"v": [{"x": "a", "y": 1}, {"x": "b", "y": 2}]}, {"v": []}])
    kind = pa.list_(pa.field("element", pa.struct([("y", pa.int64())])))
    found = read(tree, list(data), pa.schema([("v", kind), ("absent", pa.string())]))
    assert found.columns.to_pylist() == [
        {"v": [{"y": 1}, {"y": 2}], "absent": None},
        {"v": [], "absent": None},
    ]


def test_case_36_recursive_types_become_json_text() -> None:
    tree = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "v", "type": "int"},
            {"name": "blob", "type": "bytes"},
            {"name": "next", "type": ["null", "Node"]},
            {"name": "at", "type": logical("long", "timestamp-millis")},
        ],
    }
    assert [str(each.type) for each in fields_of(tree_of(tree))][2] == "string"
    at = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    last = {"v": 2, "blob": b"\xff", "next": None, "at": at}
    data = encoded(tree, [{"v": 1, "blob": b"", "next": last, "at": at}, last])
    found = read(tree, [*data, data[0][:-1], data[1] + b"\0", None])
    millis = int(at.timestamp() * 1000)
    text = f'{{"v":2,"blob":"ÿ","next":null,"at":{millis}}}'
    assert found.columns.to_pylist()[:2] == [
        {"v": 1, "blob": b"", "next": text, "at": at},
        {"v": 2, "blob": b"\xff", "next": None, "at": at},
    ]
    assert found.bad.tolist() == [2, 3]
    assert found.reasons.tolist() == [Reason.MALFORMED, Reason.TRAILING_BYTES]


def test_case_36_too_many_leaves_and_too_many_steps() -> None:
    wide = {"type": "record", "name": "W", "fields": [
        {"name": f"c{index}", "type": "int"} for index in range(2_001)]}  # fmt: skip
    with pytest.raises(SchemaTooLarge, match="2000 leaf columns"):
        columns_of(schema_of(wide))
    inner: Any = "int"
    for level in range(20):
        inner = {"type": "record", "name": f"L{level}", "fields": [
            {"name": "a", "type": inner},
            {"name": "b", "type": f"L{level - 1}" if level else "int"}]}  # fmt: skip
    with pytest.raises(SchemaTooLarge):
        columns_of(schema_of(inner))
    writer, reader = tree_of(one(inner)), tree_of(one("int"))
    with pytest.raises(SchemaTooLarge, match="decode steps"):
        compile_avro(writer, reader, [])


def test_a_schema_that_is_no_record_is_one_column() -> None:
    assert read("long", [b"\x02", b""]).columns.to_pylist() == [{"value": 1}, {"value": None}]


def test_columns_of_another_type_are_a_conflict() -> None:
    found = read(one("string"), [b"\x02a", None], pa.schema([("v", pa.int64())]))
    assert found.bad.tolist() == [0]
    assert found.reasons.tolist() == [Reason.SCHEMA_CONFLICT]
    assert found.columns.to_pylist() == [{"v": None}, {"v": None}]


def test_rows_that_are_far_larger_than_their_records_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = {
        "type": "record",
        "name": "Wide",
        "fields": [{"name": f"c{index}", "type": ["null", "long"]} for index in range(500)],
    }
    tree = one({"type": "array", "items": ["null", wide]})
    small, large = b"\x02\x00\x00", b"\xd0\x0f" + bytes(1_000) + b"\x00"  # 1 and 1,000 times null
    monkeypatch.setattr(programs, "MAX_OUTPUT", 1_000_000)
    assert not len(read(tree, [small] * 100).bad)
    with pytest.raises(ChunkTooLarge, match="for 2 records; decode fewer at a time"):
        read(tree, [small, large])
    found = read(tree, [large])
    assert found.reasons.tolist() == [Reason.TOO_LARGE]
    assert found.columns.to_pylist() == [{"v": None}]
