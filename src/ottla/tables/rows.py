"""Rows of a table: the columns that every table has, and how rows are divided into files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

CONVERSION: Final = b"ottla.conversion"
"""Of a table's columns, and with this name of its properties: how its rows are made."""
HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)
META: Final = (
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("_timestamp_type", pa.int32()),
    pa.field("_key", pa.binary()),
    pa.field("_headers", HEADERS),
    pa.field("_schema_id", pa.int32()),
    pa.field("_tombstone", pa.bool_()),
)
LETTERS: Final = pa.schema(
    [
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("_key", pa.binary()),
        pa.field("_headers", HEADERS),
        pa.field("value", pa.binary()),
        pa.field("schema_id", pa.int32()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("_attempt", pa.int32()),
    ]
)
"""The columns of the table of records that did not fit."""
RAW: Final = (pa.field("value", pa.binary()),)
"""The value columns of a table whose values are kept as they are."""

_SOURCES: Final[dict[str, Callable[[pa.RecordBatch], pa.Array]]] = {
    "value": lambda batch: batch.column("value"),
    "_partition": lambda batch: batch.column("partition"),
    "_offset": lambda batch: batch.column("offset"),
    "_timestamp": lambda batch: batch.column("timestamp"),
    "_timestamp_type": lambda batch: batch.column("timestampType"),
    "_key": lambda batch: batch.column("key"),
    "_tombstone": lambda batch: batch.column("value").is_null(),
}

_MICROSECONDS: Final = {"day(_timestamp)": 86_400_000_000, "hour(_timestamp)": 3_600_000_000}
_TEXTS: Final = {
    "day(_timestamp)": ("_day", "D"),
    "hour(_timestamp)": ("_hour", "h"),
    "month(_timestamp)": ("_month", "M"),
}


def raw_columns() -> pa.Schema:
    """The columns of a table whose values are kept as they are."""
    return pa.schema([*RAW, *META])


def meta_columns(key_format: str = "binary") -> list[pa.Field]:
    """The columns after those of the value; text keys are text."""
    is_text = key_format == "utf8"
    return [one.with_type(pa.string()) if is_text and one.name == "_key" else one for one in META]


def raw_rows(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows of a table with these columns; what records have nothing for is null."""
    return pa.RecordBatch.from_arrays(
        [row_column(batch, field) for field in columns], schema=columns
    )


def row_column(
    batch: pa.RecordBatch, field: pa.Field, typed: Mapping[str, pa.Array] | None = None
) -> pa.Array:
    """One column of the rows of records: what is known of it, else what the record has."""
    found = None
    if typed is not None and field.name in typed:
        found = typed[field.name]
    elif field.name == "_headers" and "headers" in batch.schema.names:
        found = batch.column("headers")
    elif field.name in _SOURCES:
        found = _SOURCES[field.name](batch)
        if not found.type.equals(field.type):
            found = None
    if found is None:
        return pa.nulls(batch.num_rows, field.type)
    # The cast widens, and gives inner fields the table's ids.
    return found.cast(field.type)


def fitted(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """With the table's columns of today: added ones are null, others as wide as they are now."""
    return pa.RecordBatch.from_arrays(
        [
            batch.column(one.name).cast(one.type)
            if one.name in batch.schema.names
            else pa.nulls(batch.num_rows, one.type)
            for one in columns
        ],
        schema=columns,
    )


def buckets(timestamps: pa.Array, partition: str) -> NDArray[np.int64] | None:
    """The Iceberg partition of each row, None if the table has none."""
    if partition == "none":
        return None
    micros: NDArray[Any] = timestamps.cast(pa.int64()).to_numpy(zero_copy_only=False)
    unit = _MICROSECONDS.get(partition)
    if unit is not None:
        days: NDArray[np.int64] = np.floor_divide(micros, unit)
        return days
    return micros.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def directory_of(bucket: int | None, partition: str) -> str:
    """The directory of a partition's files, with a slash after it; empty if there is none."""
    if bucket is None:
        return ""
    name, unit = _TEXTS[partition]
    text = str(np.array(bucket).astype(f"datetime64[{unit}]"))
    return f"{name}={text.replace('T', '-')}/"


def divided(rows: pa.RecordBatch, values: NDArray[np.int64]) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each bucket, in their order."""
    if values.min() == values.max():  # most chunks; sorting them costs more
        return [(int(values[0]), rows)]
    return [
        (int(one), rows.filter(pc.equal(pa.array(values), pa.scalar(int(one)))))
        for one in np.unique(values)
    ]
