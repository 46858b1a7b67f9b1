"""The data files of a view as a pyarrow dataset; needs the arrow extra."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ottla.client.errors import BadArgument
from ottla.tables.stores import file_system, path_of
from ottla.tables.views import day_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ottla.tables.format import DataFile

DAY: Final = "_day"
MICROS: Final = pa.timestamp("us", "UTC")
PLACE_OF_KEY: Final = ("_partition", "_key", "_offset")
AT_ONCE: Final = 1_000_000
"""Rows among which the last of each key are looked for at once."""
NO_STORE: Final[Mapping[str, str]] = MappingProxyType({})


def day_roots(files: Sequence[DataFile]) -> set[str] | None:
    """The directories above the days of the files; None if one is in no directory of a day."""
    if any(day_of(one) is None for one in files):
        return None
    return {one.url.rpartition(f"/{DAY}=")[0] for one in files}


def with_day_field(columns: pa.Schema) -> pa.Schema:
    """The columns and `_day`."""
    return columns.append(pa.field(DAY, pa.date32()))


def with_day(rows: pa.Table) -> pa.Table:
    """The rows and the UTC day of their `_timestamp`."""
    return rows.append_column(
        pa.field(DAY, pa.date32()),
        pc.floor_temporal(rows.column("_timestamp"), unit="day").cast(pa.date32()),
    )


def dataset_of(
    files: Sequence[DataFile], schema: pa.Schema, store: Mapping[str, str] = NO_STORE
) -> ds.FileSystemDataset:
    """The files with these columns; a file that lacks one has nulls in it.

    With `_day` among the columns, a filter on it leaves files unopened. `store` are settings of the
    object store (`ottla.tables.stores`).
    """
    filesystem = file_system(files[0].url, store)
    kind = ds.ParquetFileFormat()
    has_day = DAY in schema.names
    fragments = []
    for one in files:
        told = ds.field(DAY) == pa.scalar(day_of(one), pa.date32()) if has_day else None
        fragments.append(kind.make_fragment(path_of(one.url), filesystem, told, file_size=one.size))
    return ds.FileSystemDataset(fragments, schema, kind, filesystem)


def latest_rows(rows: ds.Dataset) -> pa.Table:
    """The last row of each key of a partition; none of a key whose last record is a tombstone."""
    key = rows.schema.field("_key").type
    if pa.types.is_struct(key):
        raise BadArgument(
            "mode=latest: keys that are records cannot be compared here; use mode=latest in Spark"
        )
    last: pa.Table = rows.schema.empty_table().select(PLACE_OF_KEY)
    pending: list[pa.RecordBatch] = []
    scanner = rows.scanner(columns=list(PLACE_OF_KEY))
    for batch in scanner.to_batches():
        pending.append(batch)
        if sum(one.num_rows for one in pending) > max(AT_ONCE, 2 * last.num_rows):
            last, pending = _last_places([*last.to_batches(), *pending]), []
    if pending:
        last = _last_places([*last.to_batches(), *pending])
    places = _places(last)
    kept = [
        one.filter(pc.is_in(_places(one), value_set=places))
        for one in rows.scanner(filter=~pc.field("_tombstone")).to_batches()
    ]
    return pa.Table.from_batches(kept, rows.schema)


def _last_places(parts: list[pa.RecordBatch]) -> pa.Table:
    found = pa.Table.from_batches(parts).group_by(["_partition", "_key"])
    return found.aggregate([("_offset", "max")]).rename_columns(list(PLACE_OF_KEY))


def _places(rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """Partition and offset of each row as one number; offsets end below 2^44."""
    partitions = pc.shift_left(rows.column("_partition").cast(pa.int64()), 44)
    found = pc.add(partitions, rows.column("_offset"))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def first_offsets_at(
    files: Sequence[DataFile],
    columns: pa.Schema,
    time: datetime,
    below: Mapping[int, int],
    store: Mapping[str, str] = NO_STORE,
) -> dict[int, int]:
    """The lowest offset at or after a time in each partition, of rows below these offsets.

    A partition without such a row is left out.
    """
    candidates = [
        one
        for one in files
        if one.offsets is None or one.offsets[0] < max(below.values(), default=0)
    ]
    if not candidates:
        return {}
    late = pc.field("_timestamp") >= pa.scalar(time, MICROS)
    scanner = dataset_of(candidates, columns, store).scanner(
        columns=["_partition", "_offset"], filter=late
    )
    found: dict[int, int] = {}
    for batch in scanner.to_batches():
        least = pa.table(batch).group_by("_partition").aggregate([("_offset", "min")])
        for number, offset in zip(
            least.column("_partition").to_pylist(),
            least.column("_offset_min").to_pylist(),
            strict=True,
        ):
            if number is not None and offset is not None and offset < below.get(number, 0):
                found[number] = min(offset, found.get(number, offset))
    return found
