"""Decode programs between guard pages: one byte too far kills the process.

`python -m tests.support.schema_guard_pages SEED COUNT` decodes damaged Avro and JSON values whose
end is the end of the memory, into columns that end there, too.
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
from ottla.schemas.spans import Spans
from ottla.wire.arrow import memory
from ottla.wire.kernels.validate import address_of
from tests.support.guard_pages import guarded, guarded_array, guarded_copy
from tests.support.random_avro import RandomAvro, encoded

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
    columns = json_columns.JsonColumns(parse_ddl("a int, s string, t timestamp, l array<int>"))
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
        bad += int((columns.read(spans([damaged(rng, JSON) for _ in range(20)]))[1] != 0).sum())
    print(f"{count} rounds, {bad} bad")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
