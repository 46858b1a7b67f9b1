"""Rows from the files of a table, as Arrow batches. Runs in Spark's workers.

All files of a task are opened before its first row: if one is gone, the offsets come from the log,
and if the log no longer has them either, the task fails. Never fewer rows.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.errors import DataLoss, InvalidValue
from ottla.spark.log.reading import read_ranges
from ottla.spark.options import LOG
from ottla.spark.typed_reading import record_columns, typed_rows
from ottla.tables.archive import dataset_of
from ottla.tables.errors import FileGone
from ottla.tables.rows import raw_columns
from ottla.wire.arrow import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.dataset as ds

    from ottla.spark.log.planning import Range
    from ottla.spark.options import SourceOptions
    from ottla.spark.tables.planning import FilePart

_OF_TABLE: Final = {
    "key": "_key",
    "value": "value",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "timestampType": "_timestamp_type",
    "headers": "_headers",
}


def read_records(
    part: FilePart, options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task as records, with these columns in this order."""
    files = _opened(part, raw_columns(), options)
    if files is None:
        yield from _of_log(part.ranges, options, columns)
        return
    topic = part.ranges[0].topic
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    names = [_OF_TABLE[name] for name in columns if name in _OF_TABLE]
    for batch in _batches(files, part, names, options.read_rows):
        arrays = [_record_column(batch, name, topic) for name in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_rows(
    part: FilePart, options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task as the table has them, with these columns of the query."""
    typed = options.typed
    assert typed is not None
    files = _opened(part, part.columns, options)
    if files is None:
        records = _of_log(part.ranges, options, record_columns(columns, typed))
        yield from typed_rows(records, typed, columns, options.client)
        return
    schema = pa.schema([typed.columns.field(name) for name in columns])
    names = [name for name in columns if name in part.columns.names]
    for batch in _batches(files, part, names, options.read_rows):
        arrays = [_row_column(batch, field) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _opened(part: FilePart, columns: pa.Schema, options: SourceOptions) -> ds.Dataset | None:
    """The files, each of which is there now; None if the log has to replace one."""
    assert options.table is not None
    try:
        files = dataset_of(part.files, columns, dict(options.table.store))
        for one in files.get_fragments():
            one.ensure_complete_metadata()
    except FileNotFoundError as error:
        if not part.ranges:
            raise FileGone(
                f"a file of the table was deleted since the frame was made; make it again: {error}"
            ) from None
        LOG.warning("%s; its offsets come from the log", error)
        return None
    return files


def _batches(
    files: ds.Dataset, part: FilePart, names: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    scanner = files.scanner(
        columns=list(names) or ["_offset"],
        filter=reduce(or_, (_within(one) for one in part.ranges)) if part.ranges else None,
        batch_size=rows,
    )
    return (batch for batch in scanner.to_batches() if batch.num_rows)


def _of_log(
    ranges: Sequence[Range], options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from read_ranges(ranges, options, columns)
    except DataLoss as error:
        raise FileGone(
            f"a file of the table is gone, and the log cannot replace it: {error}"
        ) from None


def _within(one: Range) -> Any:
    offset = pc.field("_offset")
    return (pc.field("_partition") == one.partition) & (offset >= one.first) & (offset < one.end)


def _record_column(batch: pa.RecordBatch, name: str, topic: str) -> pa.Array:
    kind = SCHEMA.field(name).type
    if name == "topic":
        return pa.repeat(pa.scalar(topic, kind), batch.num_rows)
    return batch.column(_OF_TABLE[name]).cast(kind)


def _row_column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:  # the table has lost it, or never had it
        return pa.nulls(batch.num_rows, field.type)
    try:
        return batch.column(field.name).cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidValue(
            f"column {field.name} of the table has become wider since the query started "
            f"({error}); start the query again"
        ) from None
