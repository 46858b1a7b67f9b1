"""Records to rows of a table: schemas that change, values and keys that do not fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla.clock import Clock
from ottla.schemas import programs
from ottla.schemas.conform import SchemaConflict
from ottla.schemas.model import Kind, Schema
from ottla.tables.converting import PATIENCE, Converter
from ottla.tables.errors import BadTableSetting
from ottla.tables.rows import CONVERSION, raw_columns
from ottla.tables.settings import converted_by, topic_settings
from ottla.wire.arrow import SCHEMA
from tests.unit.schemas.test_decode import Registry, avro, framed, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.tables.converting import Converted

NOON = 1_700_000_000_000
ONE = record(("amount", "int"))
TWO = record(("amount", "long"), ("shop", "string"))


class Schemas(Registry):
    """A registry with one subject."""

    newest: Schema | None = None
    newest_key: Schema | None = None

    def latest(self, subject: str) -> Schema | None:
        assert subject in ("orders-value", "orders-key")
        return self.newest if subject == "orders-value" else self.newest_key


class Time(Clock):
    """Stands still until it is told otherwise."""

    ms = NOON

    def wall_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


def schemas(trees: dict[int, Any], newest: int | None = None) -> Schemas:
    found = Schemas({number: avro(tree) for number, tree in trees.items()})
    found.newest = None if newest is None else avro(trees[newest])
    return found


def converter(known: Schemas | None, clock: Clock | None = None, **keys: str) -> Converter:
    given = {f"ottla.table.{key.replace('_', '.')}": value for key, value in keys.items()}
    settings = topic_settings("orders", {"ottla.table.enable": "true", **given})
    assert settings is not None
    return Converter(settings, known, clock or Time())


def records(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None, at: int = NOON
) -> pa.RecordBatch:
    count = len(values)
    made = {
        "key": pa.array(keys or [None] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["orders"] * count),
        "partition": pa.array([1] * count, pa.int32()),
        "offset": pa.array(range(10, 10 + count), pa.int64()),
        "timestamp": pa.array([at * 1000] * count, pa.int64()).cast(SCHEMA.field("timestamp").type),
        "timestampType": pa.array([0] * count, pa.int32()),
        "headers": pa.nulls(count, SCHEMA.field("headers").type),
    }
    return pa.RecordBatch.from_pydict(made)


def rows(made: Converter, parts: list[Converted], *names: str) -> list[tuple[Any, ...]]:
    table = pa.Table.from_batches([one.rows(made.columns) for one in parts])
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def letters(parts: list[Converted], *names: str) -> list[tuple[Any, ...]]:
    found = [one.letters for one in parts if one.letters is not None]
    table = pa.Table.from_batches(found)
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def test_case_55_rows_of_two_schemas_in_one_chunk() -> None:
    made = converter(schemas({1: ONE, 2: TWO}), value_format="registry")
    made.start(made.columns)
    assert "amount" not in made.columns.names
    parts = made.convert(records([framed(1, b"\x02"), framed(2, b"\x04\x02a"), None]))
    assert rows(made, parts, "amount", "shop", "_schema_id", "_tombstone", "_offset") == [
        (1, None, 1, False, 10),
        (2, "a", 2, False, 11),
        (None, None, None, True, 12),
    ]


def test_a_new_table_has_the_columns_of_the_subject() -> None:
    made = converter(schemas({1: ONE}, newest=1), value_format="registry")
    assert made.columns.names[:2] == ["amount", "_partition"]


def test_each_round_starts_from_the_columns_of_the_table() -> None:
    made = converter(schemas({1: ONE, 2: TWO}), value_format="registry")
    empty = made.columns
    made.start(empty)
    made.convert(records([framed(2, b"\x04\x02a")]))
    assert made.columns.names[:2] == ["amount", "shop"]
    made.start(empty)
    assert made.columns.equals(empty, check_metadata=True)


def test_latest_resolves_older_values_to_the_newest_schema() -> None:
    with_default = record(("amount", "long"))
    with_default["fields"].append({"name": "shop", "type": "string", "default": "none"})
    made = converter(schemas({1: ONE, 2: with_default}, newest=2), value_format="registry-latest")
    made.start(made.columns)
    parts = made.convert(records([framed(1, b"\x02"), framed(2, b"\x04\x02a")]))
    assert rows(made, parts, "amount", "shop") == [(1, "none"), (2, "a")]


def test_latest_waits_for_its_subject() -> None:
    with pytest.raises(BadTableSetting, match="the registry has no subject orders-value"):
        converter(schemas({}), value_format="registry-latest")


@pytest.mark.parametrize("conflict", ["dlq", "new-column", "pause"])
def test_case_56_a_conflict(conflict: str) -> None:
    known = schemas({1: ONE, 2: record(("amount", "string"))})
    made = converter(known, value_format="registry", on_conflict=conflict)
    made.start(made.columns)
    given = records([framed(1, b"\x02"), framed(2, b"\x02x"), framed(1, b"\x04")])
    if conflict == "pause":
        with pytest.raises(SchemaConflict, match="amount"):
            made.convert(given)
        return
    parts = made.convert(given)
    if conflict == "dlq":
        assert rows(made, parts, "_offset", "amount") == [(10, 1), (12, 2)]
        assert letters(parts, "_offset", "reason", "schema_id", "value") == [
            (11, "schema_conflict", 2, framed(2, b"\x02x"))
        ]
        return
    assert rows(made, parts, "amount", "amount__string") == [(1, None), (None, "x"), (2, None)]


def test_case_34_an_unknown_schema_is_waited_for() -> None:
    known, clock = schemas({1: ONE}), Time()
    made = converter(known, clock, value_format="registry")
    made.start(made.columns)
    given = records([framed(1, b"\x02"), framed(9, b"\x04"), framed(1, b"\x06")])
    [part] = made.convert(given)
    assert part.waits is not None
    assert "offset 11" in part.waits
    assert rows(made, [part], "_offset") == [(10,)]
    assert part.letters is None
    known._schemas[9] = avro(ONE)
    assert rows(made, made.convert(given), "amount") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("written", [NOON, NOON * 4])
def test_case_34_after_a_minute_it_is_a_dead_letter(written: int) -> None:
    clock = Time()
    made = converter(schemas({1: ONE}), clock, value_format="registry")
    made.start(made.columns)
    given = records([framed(9, b"\x04"), framed(1, b"\x06")], at=written)
    assert made.convert(given)[0].waits is not None
    clock.ms += int(PATIENCE * 1000)
    parts = made.convert(given)
    assert letters(parts, "_offset", "reason", "schema_id") == [(10, "unknown_schema", 9)]
    assert rows(made, parts, "_offset") == [(11,)]


def test_case_34_a_registry_that_is_down_is_no_reason() -> None:
    known = schemas({1: ONE})
    made = converter(known, value_format="registry")
    made.start(made.columns)
    known.is_down = True
    with pytest.raises(ConnectionError):
        made.convert(records([framed(1, b"\x02")]))


def test_case_57_reasons_of_framed_values() -> None:
    made = converter(schemas({1: ONE}), value_format="registry")
    made.start(made.columns)
    parts = made.convert(records([b"junk", framed(1, b""), framed(1, b"\x02\x02"), b""], at=0))
    assert [one for (one,) in letters(parts, "reason")] == [
        "not_framed", "malformed", "trailing_bytes", "not_framed",
    ]  # fmt: skip
    assert rows(made, parts, "_offset") == []


def test_chunks_that_are_too_large_are_taken_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record(("text", "string"))
    made = converter(schemas({1: schema}), value_format="registry")
    made.start(made.columns)
    texts = [f"{n:03d}" * 100 for n in range(16)]
    given = records([framed(1, b"\xd8\x04" + one.encode()) for one in texts] + [None])
    monkeypatch.setattr(programs, "MAX_OUTPUT", 2_000)
    parts = made.convert(given)
    assert len(parts) > 2
    assert rows(made, parts, "text", "_offset") == [
        *((text, 10 + at) for at, text in enumerate(texts)), (None, 26),
    ]  # fmt: skip


def test_protobuf_values_of_a_message() -> None:
    text = 'syntax = "proto3"; message Other { int32 n = 1; } message Order { string shop = 1; }'
    made = converter(None, value_format="protobuf", value_schema=text, value_message="Order")
    parts = made.convert(records([b"\x0a\x01a", b"\x0a"]))
    assert rows(made, parts, "shop") == [("a",)]
    assert letters(parts, "_offset", "reason") == [(11, "malformed")]


def test_schemas_of_three_kinds_in_one_topic() -> None:
    known = schemas({1: ONE})
    text = {"type": "object", "properties": {"shop": {"type": "string"}}}
    known._schemas[2] = Schema(Kind.JSON, json.dumps(text))
    known._schemas[3] = Schema(Kind.PROTOBUF, 'syntax = "proto3"; message M { bool paid = 1; }')
    made = converter(known, value_format="registry")
    made.start(made.columns)
    given = [framed(3, b"\x00\x08\x01"), framed(2, b'{"shop":"a"}'), framed(1, b"\x02")]
    parts = made.convert(records(given))
    assert rows(made, parts, "amount", "shop", "paid") == [
        (None, None, True), (None, "a", None), (1, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("value_format", ["raw", "json"])
def test_keys_may_be_text(value_format: str) -> None:
    made = converter(None, value_format=value_format, key_format="utf8", value_schema="a int")
    parts = made.convert(records([b'{"a":1}'] * 3, ["kéy".encode(), b"\xff", None]))
    assert rows(made, parts, "_key", "_offset") == [("kéy", 10), (None, 12)]
    assert letters(parts, "_key", "reason") == [(b"\xff", "bad_key")]
    assert made.columns.field("_key").type == pa.string()


def test_keys_may_name_their_schemas() -> None:
    known = schemas({1: record(("id", "int"), name="K"), 2: record(("id", "long"), name="K")})
    known.newest_key = known._schemas[1]
    made = converter(known, key_format="registry")
    made.start(made.columns)
    keys = [framed(1, b"\x02"), None, b"junk", framed(2, b"\x80\x80\x80\x80\x80\x01")]
    parts = made.convert(records([b"v"] * 4, keys))
    assert rows(made, parts, "_key", "value", "_offset") == [
        ({"id": 1}, b"v", 10), (None, b"v", 11), ({"id": 2**34}, b"v", 13),
    ]  # fmt: skip
    assert letters(parts, "_key", "reason") == [(b"junk", "bad_key")]
    assert made.columns.field("_key").type == pa.struct([("id", pa.int64())])
    made.start(made.columns)
    [waiting] = made.convert(records([b"v"], [framed(9, b"\x02")]))
    assert waiting.waits is not None


def test_keys_that_are_no_records() -> None:
    known = schemas({1: "string"})
    known.newest_key = known._schemas[1]
    made = converter(known, key_format="registry")
    made.start(made.columns)
    parts = made.convert(records([b"v"] * 2, [framed(1, b"\x02a"), None]))
    assert rows(made, parts, "_key") == [("a",), (None,)]


def test_keys_of_a_registry_need_their_subject() -> None:
    with pytest.raises(BadTableSetting, match="needs the subject orders-key"):
        converter(schemas({}), key_format="registry")
    assert "_key" not in converter(None, key_format="registry").columns.names


def test_case_36_fields_named_as_columns_of_every_table() -> None:
    ddl = "_offset int, value string"
    made = converter(None, value_format="json", value_schema=ddl, keep_value="true")
    given = b'{"_offset":7,"value":"x"}'
    parts = made.convert(records([given]))
    found = rows(made, parts, "_offset", "_offset__2", "value", "value__2")
    assert found == [(10, 7, given, "x")]


def test_headers_may_be_left_out_although_they_are_read() -> None:
    made = converter(schemas({1: ONE}), value_format="registry", headers="false")
    made.start(made.columns)
    given = records([framed(1, b"\x02")])
    with_headers = given.set_column(
        given.schema.get_field_index("headers"),
        "headers",
        pa.array([[{"key": "a", "value": b"b"}]], SCHEMA.field("headers").type),
    )
    assert rows(made, made.convert(with_headers), "_headers") == [(None,)]


def test_a_table_says_how_its_rows_are_made() -> None:
    made = converter(None, value_format="json", value_schema="a int", commit_interval_ms="5000")
    told = made.columns.metadata[CONVERSION].decode()
    assert json.loads(told) == {"value.format": "json", "value.schema": "a int"}
    settings = converted_by("orders", told)
    assert settings is not None
    assert Converter(settings).columns.equals(made.columns, check_metadata=True)
    raw = converted_by("orders", "{}")
    assert raw is not None
    assert Converter(raw).columns == raw_columns()
