"""Avro to Arrow columns: our programs against fastavro and dictionaries. CPU time, one thread.

python -m benchmarks._tables_decode [--quick]
"""

from __future__ import annotations

import gc
import io
import json
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from benchmarks._harness import ROUNDS, Row, Timing, faster, report
from ottla.schemas.columns import columns_of
from ottla.schemas.decode import decode
from ottla.schemas.model import Kind, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 10_000 if "--quick" in sys.argv else 32_768
"""A chunk of the table worker."""
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "shop", "type": "string"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "count", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "status", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def main() -> None:
    packages = ("fastavro", "pyarrow", "numba")
    report("tables: Avro to columns", decode_rows(), packages)


def decode_rows() -> list[Row]:
    return [_row("Avro of 200 bytes to Arrow", 110, 8), _row("Avro of 1 KiB to Arrow", 950, None)]


def _row(what: str, note: int, target: float | None) -> Row:
    values = pa.array(_records(note), pa.binary())
    schema = Schema(Kind.AVRO, json.dumps(ORDER))
    columns = columns_of(schema)
    parsed = parse_schema(ORDER)

    def ours() -> pa.RecordBatch:
        return decode(values, None, None, columns, format="avro", schema=schema).columns

    def theirs() -> pa.RecordBatch:
        rows = [schemaless_reader(io.BytesIO(each), parsed, None) for each in values.to_pylist()]
        return pa.RecordBatch.from_pylist(rows, columns)

    assert ours().equals(theirs()), what
    own, peer = _cpu_turns(ours, theirs)
    return faster(what, own, peer, target, _per_record)


def _records(note: int) -> list[bytes]:
    rng = random.Random(note)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(5_000)]
    parsed = parse_schema(ORDER)
    found = []
    for number in range(RECORDS):
        value: dict[str, Any] = {
            "id": number,
            "shop": rng.choice(words),
            "user": f"{rng.choice(words)}-{number}",
            "amount": rng.random() * 100,
            "count": rng.randrange(100),
            "note": None if number % 8 == 0 else " ".join(rng.choices(words, k=note // 8)),
            "at": 1_700_000_000_000 + number,
            "status": rng.choice(("NEW", "PAID")),
            "tags": rng.choices(words, k=number % 3),
        }
        stream = io.BytesIO()
        schemaless_writer(stream, parsed, value)
        found.append(stream.getvalue())
    return found


def _cpu_turns(*candidates: Callable[[], object]) -> list[Timing]:
    seconds: list[list[float]] = [[] for _ in candidates]
    for candidate in candidates:
        candidate()
    for _ in range(ROUNDS):
        for index, candidate in enumerate(candidates):
            gc.collect()
            start = time.process_time()
            candidate()
            seconds[index].append(time.process_time() - start)
    return [Timing(tuple(values)) for values in seconds]


def _per_record(timing: Timing) -> str:
    return f"{timing.median / RECORDS * 1e6:.2f} us a record, CPU"


if __name__ == "__main__":
    main()
