"""Decode programs between guard pages: one byte too far kills the process.

`python -m tests.support.schema_guard_pages SEED COUNT` decodes damaged Avro, Protobuf and JSON
values that end where the process may not go, into columns that end there.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from ottla.schemas import json_columns, programs
from ottla.schemas.avro_columns import fields_of
from ottla.schemas.avro_program import compile_avro
from ottla.schemas.avro_tree import tree_of
from ottla.schemas.ddl import parse_ddl
from ottla.schemas.framing_kernels import split_column
from ottla.schemas.json_flat import flat_reader
from ottla.schemas.model import Kind, Schema
from ottla.schemas.parsing import parse
from ottla.schemas.proto_columns import proto_fields
from ottla.schemas.proto_program import compile_proto
from ottla.schemas.proto_tree import message_of
from ottla.schemas.spans import Spans
from ottla.wire.arrow import memory
from ottla.wire.kernels.validate import address_of
from tests.support.guard_pages import guarded, guarded_array, guarded_copy
from tests.support.random_avro import RandomAvro, encoded

PROTO = """
syntax = "proto3";
message R {
  int32 a = 1; string b = 2; R inner = 3; repeated sint64 c = 4; map<string, R2> d = 5;
  fixed32 e = 6; double f = 7; repeated string g = 8;
}
message R2 { bytes x = 1; repeated fixed64 y = 2; }
"""
FLAT = b' { "a" : 12, "s":"x \xc3\xa9 0123456789", "t":"", "d":-1.25, "e":false, "u":null } '
JSON = b'{"a":12,"s":"x\\u00e9 \xc3\xa9 0123456789","t":"2026-01-01T00:00:00.5+01:00","l":[1]}'


def zeros(count: int, dtype: Any) -> Any:
    found = guarded_array(count, dtype) if count else np.zeros(0, dtype)
    found[:] = 0
    return found


def spans(values: list[bytes]) -> Spans:
    copies = [guarded_copy(each) if each else guarded(1) for each in values]
    begins = [address_of(each) for each in copies]
    ends = [begin + len(value) for begin, value in zip(begins, values, strict=True)]
    return Spans(np.array(begins, np.int64), np.array(ends, np.int64), copies)


def damaged(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data[: rng.randint(0, len(data))] if rng.random() < 0.5 else data)
    for _ in range(rng.randrange(3)):
        if made:
            made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


def main(seed: str, count: int) -> None:
    programs.zeros = zeros
    memory.allocate = guarded_array
    rng = random.Random(seed)
    proto = parse(Schema(Kind.PROTOBUF, PROTO), {}).tree
    message = message_of(proto)
    wanted = [each for each in proto_fields(message) if each.name != "inner"]
    columns = json_columns.JsonColumns(parse_ddl("a int, s string, t timestamp, l array<int>"))
    flat = flat_reader(list(parse_ddl("a int, s string, t string, d double, e boolean")))
    assert flat is not None
    bad = 0
    for _ in range(count):
        maker = RandomAvro(rng)
        tree = maker.record()
        data = encoded(tree, [maker.value(tree)])[0]
        node = tree_of(tree)
        program = compile_avro(node, None, fields_of(node))
        records = spans([data, *(damaged(rng, data) for _ in range(20))])
        bad += int((program.run(records)[1] != 0).sum())
        split_column(records, None)
        wire = b"\x08\x01\x12\x02xy\x22\x03\x01\x02\x03\x2a\x06\x0a\x01k\x12\x01\x0a\x35abcd"
        values = [damaged(rng, wire + rng.randbytes(9)) for _ in range(20)]
        bad += int((compile_proto(message, wanted).run(spans(values))[1] != 0).sum())
        bad += int((columns.read(spans([damaged(rng, JSON) for _ in range(20)]))[1] != 0).sum())
        found = flat.read(spans([FLAT, *(damaged(rng, FLAT) for _ in range(20))]))
        assert found is not None
        assert 0 not in found[1]
        bad += len(found[1])
    print(f"{count} rounds, {bad} bad")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
