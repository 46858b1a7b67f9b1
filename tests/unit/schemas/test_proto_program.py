"""Protobuf programs against protobuf's own parser."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from ottla.schemas import proto_kernels
from ottla.schemas.columns import columns_of
from ottla.schemas.ddl import to_ddl
from ottla.schemas.decode import Decoded, decode
from ottla.schemas.model import InvalidSchema, Kind, Schema
from ottla.schemas.parsing import parse
from ottla.schemas.programs import NotExpressible
from ottla.schemas.proto_program import compile_proto
from ottla.schemas.proto_rows import ProtoRows
from ottla.schemas.proto_tree import message_of
from ottla.schemas.reasons import Reason
from ottla.schemas.spans import spans_of
from tests.support.sizes import examples

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";

enum Color { RED = 0; GREEN = 1; BLUE = -5; }

message Inner {
  int32 x = 1;
  string text = 2;
  repeated sint64 many = 3;
  Color color = 4;
}

message All {
  bool a = 1; int32 b = 2; sint32 c = 3; sfixed32 d = 4; int64 e = 5; sint64 f = 6;
  sfixed64 g = 7; uint32 h = 8; fixed32 i = 9; uint64 j = 10; fixed64 k = 11; float l = 12;
  double m = 13; string n = 14; bytes o = 15; Color p = 16;
  optional int32 q = 17; optional string r = 18; optional Color s = 19;
  google.protobuf.Timestamp at = 20;
  google.protobuf.Duration took = 21;
  google.protobuf.Int64Value wrapped = 22;
  google.protobuf.StringValue text = 23;
  Inner inner = 24;
  repeated int32 numbers = 25;
  repeated string texts = 26;
  repeated Inner inners = 27;
  repeated double unpacked = 28 [packed = false];
  repeated Color colors = 29;
  repeated bool flags = 30;
  map<string, int64> counts = 31;
  map<int32, Inner> parts = 32;
  oneof choice { int32 number = 33; string name = 34; Inner thing = 35; }
  repeated google.protobuf.Timestamp times = 36;
  map<string, Color> paint = 2000;
}
"""
SCHEMA = Schema(Kind.PROTOBUF, TEXT)


def class_of(schema: Schema, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(parse(schema, {}).tree).file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


ALL = class_of(SCHEMA, "shop.All")


def read(
    data: list[bytes | None], columns: pa.Schema | None = None, message: str = "All"
) -> Decoded:
    return decode(
        pa.array(data, pa.binary()),
        None,
        None,
        columns or columns_of(SCHEMA, None, message),
        format="protobuf",
        schema=SCHEMA,
        message=message,
    )


def test_case_25_each_row_of_the_type_table() -> None:
    assert to_ddl(columns_of(SCHEMA, None, "shop.All")) == (
        "a boolean, b int, c int, d int, e bigint, f bigint, g bigint, h bigint, i bigint, "
        "j decimal(20,0), k decimal(20,0), l float, m double, n string, o binary, p string, "
        "q int, r string, s string, at timestamp, took struct<seconds: bigint, nanos: int>, "
        "wrapped bigint, text string, "
        "inner struct<x: int, text: string, many: array<bigint>, color: string>, "
        "numbers array<int>, texts array<string>, "
        "inners array<struct<x: int, text: string, many: array<bigint>, color: string>>, "
        "unpacked array<double>, colors array<string>, flags array<boolean>, "
        "counts map<string, bigint>, "
        "parts map<int, struct<x: int, text: string, many: array<bigint>, color: string>>, "
        "number int, name string, "
        "thing struct<x: int, text: string, many: array<bigint>, color: string>, "
        "times array<timestamp>, paint map<string, string>"
    )
    assert columns_of(SCHEMA).names == ["x", "text", "many", "color"]
    assert columns_of(SCHEMA, None, [1]).names[0] == "a"
    with pytest.raises(InvalidSchema, match="got 'None'"):
        columns_of(SCHEMA, None, "None")


def test_case_25_least_and_greatest_and_absent() -> None:
    most = ALL(
        a=True, b=2**31 - 1, c=-(2**31), d=-1, e=-(2**63), f=2**63 - 1, g=-2, h=2**32 - 1,
        i=2**32 - 1, j=2**64 - 1, k=2**64 - 1, l=0.5, m=1e308, n="é", o=b"\xff", p=-5, q=0, r="",
        s=0, numbers=[-1], colors=[1, -5], flags=[True, False], name="x",
    )  # fmt: skip
    most.at.FromDatetime(datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999))
    most.wrapped.value = 0
    most.text.SetInParent()
    found = read([most.SerializeToString(), b"", None])
    assert not len(found.bad)
    found.columns.validate(full=True)
    full, empty, tombstone = found.columns.to_pylist()
    expected = {
        "a": True, "b": 2**31 - 1, "c": -(2**31), "d": -1, "e": -(2**63), "f": 2**63 - 1, "g": -2,
        "h": 2**32 - 1, "i": 2**32 - 1, "j": Decimal(2**64 - 1), "k": Decimal(2**64 - 1),
        "l": 0.5, "m": 1e308, "n": "é", "o": b"\xff", "p": "BLUE", "q": 0, "r": "", "s": "RED",
        "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC),
        "wrapped": 0, "text": "", "inner": None, "numbers": [-1], "texts": [],
        "colors": ["GREEN", "BLUE"], "flags": [True, False], "number": None, "name": "x",
    }  # fmt: skip
    assert {key: full[key] for key in expected} == expected
    absent = {
        "a": False, "b": 0, "j": Decimal(0), "m": 0.0, "n": "", "o": b"", "p": "RED", "q": None,
        "r": None, "s": None, "at": None, "wrapped": None, "inner": None, "numbers": [],
        "counts": [], "number": None,
    }  # fmt: skip
    assert {key: empty[key] for key in absent} == absent
    assert set(tombstone.values()) == {None}


def random_message(rng: random.Random) -> Any:  # noqa: C901  # a line for each field
    made = ALL()
    integers = {"b": 31, "c": 31, "d": 31, "e": 63, "f": 63, "g": 63}
    for name, bits in integers.items():
        if rng.random() < 0.5:
            setattr(
                made, name, rng.choice((0, 1, -1, 2**bits - 1, -(2**bits), rng.randint(0, 300)))
            )
    for name, bits in {"h": 32, "i": 32, "j": 64, "k": 64}.items():
        if rng.random() < 0.5:
            setattr(made, name, rng.getrandbits(rng.randint(1, bits)))
    if rng.random() < 0.5:
        made.a, made.l, made.m = rng.random() < 0.5, rng.random(), rng.random()
    if rng.random() < 0.5:
        made.n, made.o = "é" * rng.randrange(5), rng.randbytes(rng.randrange(9))
    if rng.random() < 0.5:
        made.p, made.q, made.r, made.s = rng.choice((0, 1, -5)), rng.randrange(3), "r", 1
    if rng.random() < 0.5:
        made.at.seconds, made.at.nanos = rng.randint(-(10**9), 10**9), rng.randrange(10**9)
        made.took.seconds = rng.randrange(9)
    if rng.random() < 0.5:
        made.wrapped.value = rng.randrange(3)
        made.text.value = "t" * rng.randrange(3)
    if rng.random() < 0.5:
        random_inner(rng, made.inner)
    made.numbers.extend(rng.randint(-9, 9) for _ in range(rng.randrange(4)))
    made.texts.extend("x" * rng.randrange(12) for _ in range(rng.randrange(4)))
    made.unpacked.extend(rng.random() for _ in range(rng.randrange(3)))
    made.colors.extend(rng.choice((0, 1, -5)) for _ in range(rng.randrange(3)))
    made.flags.extend(rng.random() < 0.5 for _ in range(rng.randrange(3)))
    for _ in range(rng.randrange(3)):
        random_inner(rng, made.inners.add())
        made.times.add().seconds = rng.randrange(5)
    for _ in range(rng.randrange(3)):
        made.counts[rng.choice("abc")] = rng.randrange(3)
        made.paint[rng.choice("abc")] = rng.randrange(2)
        random_inner(rng, made.parts[rng.randrange(5)])
    choice = rng.randrange(4)
    if choice == 1:
        made.number = rng.randrange(3)
    elif choice == 2:
        made.name = "n"
    elif choice == 3:
        random_inner(rng, made.thing)
    return made


def random_inner(rng: random.Random, inner: Any) -> None:
    inner.x = rng.randrange(3)
    inner.text = "i" * rng.randrange(3)
    inner.many.extend(rng.randint(-5, 5) for _ in range(rng.randrange(3)))
    inner.color = rng.choice((0, 1, -5, 7))


UNKNOWN = (b"", b"\xf8\x7f\x01", b"\xfa\x7f\x02xy", b"\xfd\x7f1234", b"\xf9\x7f12345678")


def random_bytes(rng: random.Random) -> bytes:
    """One message; two merged into one; unknown fields; numbers in the other packing."""
    data = bytes(random_message(rng).SerializeToString())
    data += rng.choice(UNKNOWN)
    if rng.random() < 0.3:
        data += random_message(rng).SerializeToString()
    if rng.random() < 0.3:
        data += rng.choice((b"\xc8\x01\x07", b"\xe2\x01\x08" + bytes(8), b"\x10\x05", b"\x16"))
    return data


def plain(batch: pa.RecordBatch) -> list[str]:
    """Rows as texts, since NaN is not equal to itself. Maps have no order, and of equal keys the
    last one counts; a time may be beyond those of Python."""
    maps = ("counts", "parts", "paint")
    times = {"at": pa.int64(), "times": pa.list_(pa.field("element", pa.int64()))}
    schema = pa.schema([each.with_type(times.get(each.name, each.type)) for each in batch.schema])
    return [
        str(
            {
                key: sorted(dict(each).items()) if key in maps and each is not None else each
                for key, each in row.items()
            }
        )
        for row in batch.cast(schema).to_pylist()
    ]


def both_ways(data: list[bytes]) -> None:
    """The program gives what protobuf's parser gives."""
    files = parse(SCHEMA, {}).tree
    columns = columns_of(SCHEMA, None, "All")
    arrays, reasons = ProtoRows(files, message_of(files, "All"), list(columns)).run(
        spans_of(pa.array(data, pa.binary()))
    )
    batch = pa.RecordBatch.from_arrays(arrays, schema=columns)
    found = read(list(data))
    found.columns.validate(full=True)
    verdicts = np.zeros(len(data), np.uint8)
    verdicts[found.bad] = found.reasons
    assert verdicts.tolist() == reasons.tolist()
    assert plain(found.columns) == plain(batch)


def test_case_28_random_messages_are_what_protobuf_parses() -> None:
    rng = random.Random("messages")
    both_ways([random_bytes(rng) for _ in range(examples(2_000))])


def test_case_28_most_messages_are_not_rare() -> None:
    rng = random.Random("usual")
    files = parse(SCHEMA, {}).tree
    program = compile_proto(message_of(files, "All"), list(columns_of(SCHEMA, None, "All")))
    data = []
    for _ in range(200):
        made = random_message(rng)
        for inner in (made.inner, made.thing, *made.inners, *made.parts.values()):
            if inner.color == 7:  # an unknown enum number is rare
                inner.color = 1
        data.append(made.SerializeToString())
    _arrays, reasons = program.run(spans_of(pa.array(data, pa.binary())))
    assert not reasons.any()
    merged = [bytes(ALL(n="a").SerializeToString() + ALL(n="b").SerializeToString())]
    _arrays, reasons = program.run(spans_of(pa.array(merged, pa.binary())))
    assert reasons.tolist() == [proto_kernels.RARE]


def test_case_29_every_truncation_and_changed_byte() -> None:
    """As protobuf's parser: bad, or other values."""
    rng = random.Random("damage")
    for _ in range(examples(20)):
        data = bytes(random_message(rng).SerializeToString())
        damaged = [data[:size] for size in range(len(data))]
        for _ in range(min(1_000, 4 * len(data))):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            damaged.append(bytes(changed))
        both_ways([data, *damaged, data])


def test_what_no_program_expresses_is_parsed_by_protobuf() -> None:
    text = """
    syntax = "proto2";
    import "google/protobuf/struct.proto";
    message Node {
      required int32 v = 1;
      optional Node next = 2;
      optional group G = 3 { optional string s = 4; }
      optional google.protobuf.Struct any = 5;
    }
    """
    schema = Schema(Kind.PROTOBUF, text)
    columns = columns_of(schema)
    assert to_ddl(columns) == "v int, next string, g struct<s: string>, any string"
    files = parse(schema, {}).tree
    with pytest.raises(NotExpressible):
        compile_proto(message_of(files), list(columns))
    node = class_of(schema, "Node")
    made = node(v=1, next=node(v=2))
    made.g.s = "x"
    made.any.update({"k": [1, None]})
    values = pa.array([made.SerializeToString(), b"", None], pa.binary())
    found = decode(values, None, None, columns, format="protobuf", schema=schema)
    assert found.bad.tolist() == [1]
    assert found.columns.to_pylist()[0] == {
        "v": 1,
        "next": '{"v":2}',
        "g": {"s": "x"},
        "any": '{"k":[1.0,null]}',
    }


class Known:
    def by_id(self, number: int) -> Schema | None:
        return SCHEMA if number == 1 else None

    def by_guid(self, guid: bytes) -> Schema | None:
        return SCHEMA if guid == bytes(16) else None

    def references(self, _schema: Schema) -> dict[str, str]:
        return {}


def test_framed_messages_are_found_by_their_indexes() -> None:
    from ottla.schemas.framing import VALUE_HEADER
    from ottla.wire.arrow.decode import HEADER_TYPE

    inner = b"\x08\x07\x12\x01t"
    everything = bytes(ALL(b=5, text=None).SerializeToString())
    prefix = b"\0\0\0\0\1"
    rows: list[tuple[bytes | None, bytes | None]] = [
        (prefix + b"\0" + inner, None),
        (prefix + b"\2\0" + inner, None),
        (prefix + b"\2\2" + everything, None),
        (prefix + b"\2\x08" + inner, None),
        (prefix, None),
        (inner, b"\1" + bytes(16) + b"\0"),
        (inner, b"\1" + bytes(16)),
        (everything, b"\1" + bytes(16) + b"\2\2"),
        (inner, b"\1" + bytes(16) + b"\0x"),
        (None, None),
    ]
    headers = pa.array(
        [None if each is None else [{"key": VALUE_HEADER, "value": each}] for _, each in rows],
        pa.list_(pa.field("element", HEADER_TYPE)),
    )
    columns = pa.schema([("x", pa.int32()), ("text", pa.string()), ("b", pa.int64())])
    values = pa.array([each for each, _ in rows], pa.binary())
    found = decode(values, headers, Known(), columns, format="registry")
    assert found.columns.column("x").to_pylist() == [7, 7, None, None, None, 7] + [None] * 4
    assert found.columns.column("text").to_pylist() == ["t", "t"] + [None] * 3 + ["t"] + [None] * 4
    assert found.columns.column("b").to_pylist() == [
        None,
        None,
        5,
        None,
        None,
        None,
        None,
        5,
        None,
        None,
    ]
    assert found.bad.tolist() == [3, 4, 6, 8]
    assert found.reasons.tolist() == [
        Reason.UNKNOWN_SCHEMA,
        Reason.NOT_FRAMED,
        Reason.NOT_FRAMED,
        Reason.NOT_FRAMED,
    ]


def test_wanted_columns_alone_are_read() -> None:
    files = parse(SCHEMA, {}).tree
    columns = columns_of(SCHEMA, None, "All")
    program = compile_proto(message_of(files, "All"), [columns.field("b")])
    assert len(program.slots) == 1
    found = read([bytes(ALL(b=7, n="x").SerializeToString())], pa.schema([("b", pa.int32())]))
    assert found.columns.to_pylist() == [{"b": 7}]
