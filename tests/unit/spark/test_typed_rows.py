"""Typed rows of records: columns, pruning, and the three ways with invalid values."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import fastavro
import pyarrow as pa
import pytest

from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import BadOption, InvalidValue
from ottla.spark.typed_options import TypedOptions, parse_typed
from ottla.spark.typed_reading import record_columns, typed_rows
from ottla.wire.arrow import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

DDL = "shop string, amount bigint"
CLIENT = ClientSettings("127.0.0.1:1")
VALUES = [
    b'{"shop": "a", "amount": 1, "more": 2}',
    b'{"amount": 2}',
    None,
    b'{"shop": "c", "amount": "much"}',
    b"no JSON",
    b'{"shop": "d", "amount": 4}',
]
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "shop", "type": "string"}, {"name": "amount", "type": "long"}],
}


def records(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None
) -> pa.RecordBatch:
    count = len(values)
    made = {
        "key": pa.array(keys or [b"k"] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["orders"] * count),
        "partition": pa.array([1] * count, pa.int32()),
        "offset": pa.array(range(10, 10 + count), pa.int64()),
        "timestamp": pa.array([0] * count, SCHEMA.field("timestamp").type),
        "timestampType": pa.array([0] * count, pa.int32()),
        "headers": pa.nulls(count, SCHEMA.field("headers").type),
    }
    return pa.RecordBatch.from_pydict(made)


def parsed(options: dict[str, str]) -> TypedOptions | None:
    return parse_typed({name.lower(): value for name, value in options.items()}, CLIENT, None)


def read(
    options: dict[str, str],
    columns: Sequence[str] | None = None,
    values: Sequence[bytes | None] = VALUES,
    keys: Sequence[bytes | None] | None = None,
) -> pa.Table:
    typed = parsed(options)
    assert typed is not None
    names = typed.columns.names if columns is None else columns
    batch = records(values, keys).select(record_columns(names, typed))
    found = pa.Table.from_batches(list(typed_rows([batch], typed, names, CLIENT)))
    assert found.schema.names == list(names)
    return found


def json_options(**more: str) -> dict[str, str]:
    return {"valueFormat": "json", "valueSchema": DDL, **more}


def test_case_87_drop_leaves_invalid_values_out() -> None:
    found = read(json_options(invalid="drop"))
    assert found.column("_offset").to_pylist() == [10, 11, 12, 15]
    assert found.column("shop").to_pylist() == ["a", None, None, "d"]
    assert found.column("amount").to_pylist() == [1, 2, None, 4]
    assert found.column("_tombstone").to_pylist() == [False, False, True, False]
    assert set(found.column("_partition").to_pylist()) == {1}


def test_case_87_null_shows_the_reason() -> None:
    found = read(json_options(invalid="null"), ["_offset", "shop", "_error"])
    assert found.to_pydict() == {
        "_offset": [10, 11, 12, 13, 14, 15],
        "shop": ["a", None, None, None, None, "d"],
        "_error": [None, None, None, "malformed", "malformed", None],
    }


def test_case_87_fail_names_the_record_and_the_way_out() -> None:
    with pytest.raises(InvalidValue, match=r"orders-1 at offset 13 does not fit.*invalid=drop"):
        read(json_options())
    good = read(json_options(), ["shop", "_offset"], [VALUES[0], VALUES[3]])
    assert good.to_pydict() == {"shop": ["a", "c"], "_offset": [10, 11]}


@pytest.mark.parametrize("columns", [["_offset"], ["shop"], ["_key", "amount"]])
def test_which_rows_there_are_does_not_depend_on_the_columns(columns: list[str]) -> None:
    assert read(json_options(invalid="drop"), columns).num_rows == 4
    assert read(json_options(invalid="null"), columns).num_rows == 6


def test_case_87_avro_values() -> None:
    written = []
    for number in range(3):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, {"shop": f"s{number}", "amount": number})
        written.append(out.getvalue())
    options = {"valueFormat": "avro", "valueSchema": json.dumps(AVRO), "invalid": "drop"}
    found = read(options, ["amount", "shop"], [*written, b"\xff"])
    assert found.to_pydict() == {"amount": [0, 1, 2], "shop": ["s0", "s1", "s2"]}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"valueSchema": DDL}, "give valueFormat, too"),
        ({"valueFormat": "json"}, "valueSchema is missing"),
        ({"valueFormat": "xml", "valueSchema": DDL}, "valueFormat is json or avro .*, not 'xml'"),
        ({"valueFormat": "protobuf"}, "valueSchema is missing"),
        ({"valueFormat": "registry"}, "valueSubject is missing"),
        ({"valueFormat": "registry", "valueSchema": DDL}, "come from the registry"),
        ({"valueFormat": "registry", "schemaRegistry.password": "x"}, "give schemaRegistry.user"),
        (
            {"valueFormat": "registry", "valueSubject": "s", "schemaRegistryUrl": "ftp://x"},
            "schemaRegistryUrl: ",
        ),
        ({"valueFormat": "json", "valueSchema": "shop"}, "valueSchema: "),
        ({"valueFormat": "avro", "valueSchema": "{}"}, "valueSchema: "),
        (json_options(invalid="maybe"), "invalid is fail, null, drop, not 'maybe'"),
        (json_options(shareGroup="g"), "together with shareGroup"),
        (json_options(keyFormat="text"), "keyFormat is binary, utf8, registry, not 'text'"),
        (json_options(keyFormat="registry"), "keyFormat=registry is for one topic"),
        (json_options(schemaEvolution="always"), "schemaEvolution is ignore or restart"),
        (json_options(schemaEvolution="restart"), "restart is for registry and registry-latest"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        parsed(options)


def test_without_value_format_values_stay_bytes() -> None:
    assert parsed({"subscribe": "orders"}) is None
    assert parsed({"valueformat": "JSON", "valueschema": DDL}) == TypedOptions("json", DDL, "fail")


def test_case_36_a_field_named_as_a_column_of_every_record_gets_another_name() -> None:
    options = {"valueFormat": "json", "valueSchema": "_offset int, a int"}
    found = read(options, ["_offset", "_offset__2"], [b'{"_offset": 7}'])
    assert found.to_pydict() == {"_offset": [10], "_offset__2": [7]}


def test_case_87_protobuf_values() -> None:
    text = 'syntax = "proto3"; message Other { int32 n = 1; } message Order { string shop = 1; }'
    options = {"valueFormat": "protobuf", "valueSchema": text, "valueMessage": "Order"}
    found = read({**options, "invalid": "drop"}, ["shop", "_offset"], [b"\x0a\x01a", b"\x0a"])
    assert found.to_pydict() == {"shop": ["a"], "_offset": [10]}


GOOD = [VALUES[0]] * 4
KEYS = [b"a", None, b"\xff", "\u00e9".encode()]


def test_keys_as_text() -> None:
    options = json_options(keyFormat="utf8", invalid="null")
    found = read(options, ["_key", "_error"], GOOD, KEYS)
    assert found.schema.field("_key").type == pa.string()
    assert found.to_pydict() == {
        "_key": ["a", None, None, "\u00e9"],
        "_error": [None, None, "bad_key", None],
    }


@pytest.mark.parametrize("columns", [["_offset"], ["_key", "_offset"], ["shop", "_offset"]])
def test_a_record_with_a_bad_key_is_left_out_whatever_is_read(columns: list[str]) -> None:
    found = read(json_options(keyFormat="utf8", invalid="drop"), columns, GOOD, KEYS)
    assert found.column("_offset").to_pylist() == [10, 11, 13]


def test_a_bad_key_fails_the_query_if_it_is_read() -> None:
    with pytest.raises(InvalidValue, match="the key of orders-1 at offset 12 does not fit"):
        read(json_options(keyFormat="utf8"), ["_key"], GOOD, KEYS)
    assert read(json_options(keyFormat="utf8"), ["shop"], GOOD, KEYS).num_rows == 4
