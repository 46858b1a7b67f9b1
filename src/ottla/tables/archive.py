"""The data files of a view as a pyarrow dataset; needs the arrow extra."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ottla.tables.stores import file_system, path_of
from ottla.tables.views import day_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ottla.tables.format import DataFile

DAY: Final = "_day"
MICROS: Final = pa.timestamp("us", "UTC")
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
