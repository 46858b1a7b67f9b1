"""Records to rows of a table: value columns, then where each record was, and its key and headers.

The row of a record depends on its bytes, its headers, its schema and the table's columns alone, so
converting it again gives the same row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.tables.errors import BadTableSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ottla.schemas.model import Schema
    from ottla.tables.settings import TopicSettings

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


def raw_rows(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows of a table with these columns; what records have nothing for is null."""
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in columns], schema=columns)


def _column(
    batch: pa.RecordBatch, field: pa.Field, typed: Mapping[str, pa.Array] | None = None
) -> pa.Array:
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


@dataclass(frozen=True, slots=True)
class Converted:
    """Rows of a table, and records that are none, as dead letters."""

    rows: pa.RecordBatch
    letters: pa.RecordBatch | None


class Converter:
    """Converts records of one topic. `columns` are what its table should have."""

    def __init__(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._values: pa.Schema | None = None
        self._schema: Schema | None = None
        if settings.value_format == "raw":
            self.columns = raw_columns()
            return
        from ottla.schemas.columns import columns_of
        from ottla.schemas.model import Kind, Schema

        if settings.value_format == "avro":
            self._schema = Schema(Kind.AVRO, settings.value_schema)
        self._values = columns_of(self._schema or settings.value_schema)
        reserved = {one.name for one in META} | ({"value"} if settings.keep_value else set())
        taken = sorted(reserved & {*self._values.names})
        if taken:
            raise BadTableSetting(
                f"ottla.table.value.schema of topic {settings.topic!r}: the table has a column "
                f"{taken[0]} of its own; give this one another name"
            )
        kept = RAW if settings.keep_value else ()
        self.columns = pa.schema([*self._values, *kept, *META])

    def convert(self, records: pa.RecordBatch, columns: pa.Schema) -> Converted:
        """Rows with these columns; a table has at least those of the converter."""
        if self._values is None:
            return Converted(raw_rows(records, columns), None)
        from ottla.schemas.decode import decode
        from ottla.schemas.reasons import Reason

        decoded = decode(
            records.column("value"),
            None,
            None,
            self._values,
            format=self._settings.value_format,
            schema=self._schema,
        )
        typed = dict(zip(self._values.names, decoded.columns.columns, strict=True))
        if not self._settings.keep_value and "value" not in typed:
            typed["value"] = pa.nulls(records.num_rows, pa.binary())
        rows = pa.RecordBatch.from_arrays(
            [_column(records, field, typed) for field in columns], schema=columns
        )
        if not len(decoded.bad):
            return Converted(rows, None)
        is_good = np.ones(records.num_rows, np.bool_)
        is_good[decoded.bad] = False
        reasons = [Reason(int(one)).label for one in decoded.reasons]
        bad = records.take(pa.array(decoded.bad))
        return Converted(rows.filter(pa.array(is_good)), self._letters(bad, reasons))

    def _letters(self, records: pa.RecordBatch, reasons: list[str]) -> pa.RecordBatch:
        detail = f"the value is not {self._settings.value_format} of the topic's schema"
        known: dict[str, pa.Array] = {
            "reason": pa.array(reasons, pa.string()),
            "detail": pa.array([detail] * len(reasons), pa.string()),
            "_attempt": pa.array([1] * len(reasons), pa.int32()),
        }
        return pa.RecordBatch.from_arrays(
            [_column(records, field, known) for field in LETTERS], schema=LETTERS
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
    found = np.unique(values)
    if len(found) == 1:
        return [(int(found[0]), rows)]
    return [
        (int(one), rows.filter(pc.equal(pa.array(values), pa.scalar(int(one))))) for one in found
    ]
