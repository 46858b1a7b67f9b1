"""Values that name a schema: read by it, within limits, or shown plainly with the reason."""

from __future__ import annotations

import io
import json
import struct
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from ottla.client.reader.types import Record
from ottla.console.decode.avro_ import Avro
from ottla.console.decode.mask import Rules
from ottla.console.decode.reading import Decoder
from ottla.console.decode.schemas_ import MOST_UNKNOWN, PAUSE, Schemas
from ottla.console.decode.tree import Unreadable, compact
from ottla.console.settings import BadSetting, load
from ottla.console.views.messages import line
from ottla.schemas.model import Kind, Reference, Schema
from ottla.schemas.parsing import parse
from ottla.schemas.registry_client import RegistryUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal",
                                    "precision": 20, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ref", "type": {"type": "fixed", "name": "Ref", "size": 16,
                                 "logicalType": "uuid"}},
        {"name": "items", "type": {"type": "array", "items": "string"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "raw", "type": "bytes"},
        {"name": "next", "type": ["null", "Order"]},
    ],
}  # fmt: skip
VALUE: dict[str, Any] = {
    "id": 9007199254740993,
    "amount": Decimal("-12345678901234.50"),
    "at": datetime(2026, 11, 14, 10, 0, tzinfo=UTC),
    "day": date(2026, 11, 14),
    "ref": uuid.UUID(int=5).bytes,
    "items": ["a", "b"],
    "tags": {"x": 0.5, "y": None},
    "state": "PAID",
    "raw": b"\xff\x00",
}
SHOWN = (
    '{"id":9007199254740993,"amount":-12345678901234.50,"at":"2026-11-14T10:00:00Z",'
    '"day":"2026-11-14","ref":"00000000-0000-0000-0000-000000000005","items":["a","b"],'
    '"tags":{"x":0.5,"y":null},"state":"PAID","raw":"0xff00","next":null}'
)
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { int32 a = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  State state = 2;
  repeated string items = 3;
  map<string, double> tags = 4;
  optional string note = 5;
  google.protobuf.Timestamp at = 6;
  bytes raw = 7;
  Other other = 8;
}
"""


class Registry:
    """Schemas by id, counting what is asked for."""

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self.schemas = schemas
        self.asked: list[int] = []
        self.silent = False

    def by_id(self, number: int) -> Schema | None:
        self.asked.append(number)
        if self.silent:
            raise RegistryUnreachable("no schema registry answers at http://x")
        return self.schemas.get(number)

    def by_guid(self, guid: bytes) -> Schema | None:
        return self.schemas.get(guid[-1])

    def references(self, schema: Schema) -> Mapping[str, str]:
        assert schema.references
        return {"state.avsc": '{"type":"enum","name":"State","symbols":["NEW","PAID"]}'}


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def avro(value: Any, schema: Any = ORDER) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + struct.pack(">i", number) + payload


def record(value: bytes, *headers: tuple[str, bytes]) -> Record:
    return Record("t", 0, 7, 1_000, 0, b"k", value, headers)


def decoder(registry: Registry, clock: Time | None = None, **options: Any) -> Decoder:
    rules = options.pop("rules", Rules())
    return Decoder(rules, 4096, schemas=Schemas(registry, clock or Time()), **options)


def with_order() -> Registry:
    return Registry({17: Schema(Kind.AVRO, json.dumps(ORDER))})


def test_avro_is_read_by_the_schema_that_it_names() -> None:
    value = {**VALUE, "next": {**VALUE, "next": None}}
    [whole, inner] = [SHOWN.replace('"next":null', f'"next":{SHOWN}'), SHOWN]
    shown = decoder(with_order()).read(record(framed(17, avro(value)))).value
    assert (shown.form, shown.schema, shown.text) == ("avro", "AVRO schema 17", whole)
    message = decoder(with_order()).read(record(framed(17, avro({**VALUE, "next": None}))))
    assert message.value.text == inner
    assert '"id":9007199254740993' in line(message)


def test_a_guid_in_a_header_names_the_schema() -> None:
    registry = Registry({3: Schema(Kind.JSON, '{"type":"object"}')})
    header = ("__value_schema_id", b"\1" + bytes(15) + b"\3")
    shown = decoder(registry).read(record(b'{"a": 1}', header)).value
    assert (shown.form, shown.text) == ("json", '{"a":1}')
    assert shown.schema.startswith("JSON schema 0000")


def test_protobuf_is_read_by_message_indexes() -> None:
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    schema = Schema(Kind.PROTOBUF, PROTO)
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(parse(schema, {}).tree).file:
        pool.AddSerializedFile(file.SerializeToString())
    order: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(
        id=9007199254740993, state=1, items=["a"], tags={"x": 0.5}, raw=b"\xff"
    )
    order.at.FromDatetime(datetime(2026, 11, 14, 10, 0))
    read = decoder(Registry({5: schema}))
    indexes = b"\x02\x02"  # one index: 1
    shown = read.read(record(framed(5, indexes + order.SerializeToString()))).value
    assert (shown.form, shown.schema) == ("protobuf", "PROTOBUF schema 5")
    assert shown.text == (
        '{"id":9007199254740993,"state":"PAID","items":["a"],"tags":{"x":0.5},'
        '"at":"2026-11-14T10:00:00Z","raw":"0xff"}'
    )
    other = read.read(record(framed(5, b"\0\x08\x07"))).value
    assert other.text == '{"a":7}'
    torn = read.read(record(framed(5, b"\0\x08"))).value
    assert torn.form == "hex"
    assert "not of this schema" in str(torn.reason)
    absent = read.read(record(framed(5, b"\x02\x12\x08\x07"))).value
    assert "message indexes within the schema" in str(absent.reason)


def test_references_are_resolved() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"s","type":"State"}]}'
    reference = (Reference("state.avsc", "state", 1),)
    registry = Registry({1: Schema(Kind.AVRO, text, reference)})
    assert decoder(registry).read(record(framed(1, b"\x02"))).value.text == '{"s":"PAID"}'


NULLS = {"type": "array", "items": "null"}
DEEP: dict[str, Any] = {
    "type": "record",
    "name": "D",
    "fields": [{"name": "d", "type": ["null", "D"]}],
}


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        (NULLS, b"\xfe" * 8 + b"\x7f", "more than 100,000 nodes"),
        (DEEP, b"\x02" * 10_000, "nested more than 100 deep"),
        ("string", b"\x10abc", "ends too early"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("string", b"\x01", "ends too early"),
        ("long", b"\xff" * 20, "ends too early"),
        ("null", b"x", "1 bytes are left over"),
        (["null", "long"], b"\x06", "no branch 3"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no symbol 1"),
        ("bytes", b"\x02" + b"x" * (1 << 20), "more than 1,048,576 bytes"),
    ],
)
def test_case_22_hostile_avro_is_bounded(schema: Any, payload: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        Avro(parse(Schema(Kind.AVRO, json.dumps(schema)), {}).tree).read(payload)


def test_times_beyond_the_calendar_stay_numbers() -> None:
    schema = {"type": "long", "logicalType": "timestamp-micros"}
    assert compact(Avro(schema).read(b"\xfe" + b"\xff" * 8 + b"\x01")) == str(2**63 - 1)


def test_an_unknown_schema_and_a_silent_registry_are_said_and_not_asked_again() -> None:
    registry, clock = with_order(), Time()
    read = decoder(registry, clock)
    for _ in range(3):
        shown = read.read(record(framed(99, b"x"))).value
        assert (shown.form, shown.reason) == ("hex", "the registry has no schema 99")
    assert registry.asked == [99]
    for number in range(100, 200):
        read.read(record(framed(number, b"x")))
    assert len(registry.asked) == MOST_UNKNOWN
    clock.now += PAUSE + 1
    registry.silent = True
    for _ in range(3):
        shown = read.read(record(framed(17, avro({**VALUE, "next": None})))).value
        assert "no schema registry answers" in str(shown.reason)
    assert len(registry.asked) == MOST_UNKNOWN + 1
    clock.now += PAUSE + 1
    registry.silent = False
    assert read.read(record(framed(17, avro({**VALUE, "next": None})))).value.form == "avro"


def test_case_43_masks_reach_into_encoded_values() -> None:
    rules = Rules(fields=((("value", "items"), "***"), (("value", "next", "id"), "***")))
    value = framed(17, avro({**VALUE, "next": {**VALUE, "next": None}}))
    for form in ("auto", "text", "hex", "registry"):
        shown = decoder(with_order(), rules=rules, form=form).read(record(value)).value
        assert shown.form == "avro"
        assert shown.text.count('"items":"***"') == 1
        assert '"next":{"id":"***"' in shown.text
    for form in ("json", "msgpack"):
        shown = decoder(with_order(), rules=rules, form=form).read(record(value)).value
        assert (shown.form, shown.has_tree) == ("masked", False)
    unknown = decoder(Registry({}), rules=rules).read(record(value)).value
    assert (unknown.form, unknown.text) == ("masked", f"{len(value)} bytes")


def test_without_a_registry_bytes_are_shown() -> None:
    shown = Decoder(Rules(), 4096).read(record(framed(17, b"x"))).value
    assert (shown.form, shown.reason) == ("hex", None)
    asked = Decoder(Rules(), 4096, "registry").read(record(framed(17, b"x"))).value
    assert "no schema registry is known" in str(asked.reason)


def test_a_topic_may_have_its_schema_in_a_file(tmp_path: Path) -> None:
    file, proto = tmp_path / "order.avsc", tmp_path / "order.proto"
    file.write_text(json.dumps(ORDER))
    proto.write_text(PROTO)
    config = tmp_path / "console.toml"
    config.write_text(
        f'[[cluster]]\n[[cluster.decode]]\ntopics = "t"\nkey = "protobuf:{proto}#Other"\n'
        f'value = "avro:{file}"\n'
    )
    [one] = load(config, {}, {}, []).clusters[0].decoders
    rules = Rules(key_form=one.key, value_form=one.value)
    shown = Decoder(rules, 4096).read(
        Record("t", 0, 1, 1, 0, b"\x08\x05", avro({**VALUE, "next": None}), ())
    )
    assert (shown.key.text, shown.key.schema) == ('{"a":5}', "order.proto")
    assert shown.value.text == SHOWN
    config.write_text('[[cluster]]\n[[cluster.decode]]\ntopics = "t"\nvalue = "avro:gone.avsc"\n')
    with pytest.raises(BadSetting, match=r"no file 'gone\.avsc'"):
        load(config, {}, {}, [])
