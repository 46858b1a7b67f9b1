"""Records to rows of a table: value columns, then where each record was, and its key and headers.

The row of a record depends on its bytes, its headers, its schema and the table's columns alone, so
converting it again gives the same row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

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


def raw_rows(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows of a table with these columns; what records have nothing for is null."""
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in columns], schema=columns)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name == "_headers" and "headers" in batch.schema.names:
        # The cast gives the inner fields the table's ids.
        return batch.column("headers").cast(field.type)
    source = _SOURCES.get(field.name)
    found = None if source is None else source(batch)
    if found is None or not found.type.equals(field.type):
        return pa.nulls(batch.num_rows, field.type)
    return found


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
    found = np.unique(values)
    if len(found) == 1:
        return [(int(found[0]), rows)]
    return [
        (int(one), rows.filter(pc.equal(pa.array(values), pa.scalar(int(one))))) for one in found
    ]
