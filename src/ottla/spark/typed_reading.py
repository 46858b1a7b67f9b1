"""Records as typed rows, in Spark's workers.

A row must not depend on the columns that are asked for. So values are decoded whole where an
invalid one is left out or shown as null; where it fails the query, only the wanted columns are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ottla.schemas.decode import decode
from ottla.schemas.model import Kind, Schema
from ottla.schemas.reasons import Reason
from ottla.spark.errors import InvalidValue
from ottla.spark.typed_options import ERROR
from ottla.tables.converting import raw_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.schemas.decode import Decoded
    from ottla.spark.typed_options import TypedOptions


def record_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns of records that typed rows need."""
    needed = {"_key": "key", "_timestamp": "timestamp", "_timestamp_type": "timestampType"}
    more = [of_record for name, of_record in needed.items() if name in columns]
    headers = ["headers"] if "_headers" in columns else []
    return ("value", "topic", "partition", "offset", *more, *headers)


def typed_rows(
    batches: Iterable[pa.RecordBatch], typed: TypedOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of records, with these columns in this order."""
    everything = typed.columns
    schema = pa.schema([everything.field(name) for name in columns])
    value = typed.value_columns
    if typed.invalid == "fail":
        value = pa.schema([one for one in value if one.name in columns])
    schema_of = Schema(Kind.AVRO, typed.schema) if typed.format == "avro" else None
    of_record = pa.schema([one for one in schema if one.name not in typed.value_columns.names])
    for batch in batches:
        found = decode(
            batch.column("value"), None, None, value, format=typed.format, schema=schema_of
        )
        if len(found.bad) and typed.invalid == "fail":
            raise _invalid(batch, found)
        arrays: dict[str, Any] = dict(
            zip(of_record.names, raw_rows(batch, of_record).columns, strict=True)
        )
        arrays |= dict(zip(value.names, found.columns.columns, strict=True))
        if ERROR in columns:
            arrays[ERROR] = _errors(batch.num_rows, found)
        rows = pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)
        if len(found.bad) and typed.invalid == "drop":
            kept = np.ones(batch.num_rows, bool)
            kept[found.bad] = False
            rows = rows.filter(pa.array(kept))
        yield rows


def _errors(rows: int, found: Decoded) -> pa.Array:
    texts = np.full(rows, None, object)
    texts[found.bad] = [Reason(int(code)).label for code in found.reasons]
    return pa.array(texts, pa.string())


def _invalid(batch: pa.RecordBatch, found: Decoded) -> InvalidValue:
    row = int(found.bad[0])
    topic, partition, offset = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    return InvalidValue(
        f"the value of {topic}-{partition} at offset {offset} does not fit valueSchema: "
        f"{Reason(int(found.reasons[0])).label}; invalid=drop leaves such records out, "
        "invalid=null shows them without columns"
    )
