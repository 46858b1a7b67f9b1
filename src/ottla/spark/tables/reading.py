"""Offsets from the files of a table, as Arrow batches. Runs in Spark's workers.

All files of a task are opened before its first row: if one is gone, the offsets come from the log,
and if the log no longer has them either, the task fails. Never fewer rows.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.errors import DataLoss
from ottla.spark.log.reading import read_ranges
from ottla.spark.options import LOG
from ottla.tables.archive import dataset_of
from ottla.tables.errors import FileGone
from ottla.tables.rows import raw_columns
from ottla.wire.arrow import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


def read_part(
    part: FilePart, options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with these columns of records in this order."""
    if not part.files:
        # The table claims the offsets and names no file with them: the log knows.
        yield from _of_log(part.ranges, options, columns)
        return
    try:
        files = dataset_of(part.files, raw_columns())
        for one in files.get_fragments():
            one.ensure_complete_metadata()
    except FileNotFoundError as error:
        LOG.warning("%s; its offsets come from the log", error)
        yield from _of_log(part.ranges, options, columns)
        return
    topic = part.ranges[0].topic
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    scanner = files.scanner(
        columns=[_OF_TABLE[name] for name in columns if name in _OF_TABLE] or ["_offset"],
        filter=reduce(or_, (_within(one) for one in part.ranges)),
        batch_size=options.read_rows,
    )
    for batch in scanner.to_batches():
        if batch.num_rows:
            arrays = [_column(batch, name, topic) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


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


def _column(batch: pa.RecordBatch, name: str, topic: str) -> pa.Array:
    kind = SCHEMA.field(name).type
    if name == "topic":
        return pa.repeat(pa.scalar(topic, kind), batch.num_rows)
    return batch.column(_OF_TABLE[name]).cast(kind)
