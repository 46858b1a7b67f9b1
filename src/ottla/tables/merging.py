"""Several files of a table into one, in order of partition and offset."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ottla.tables.format import NewFile
from ottla.tables.parquet_files import write_parquet
from ottla.tables.rows import directory_of, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ottla.tables.format import DataFile, TableFormat, TableState

MIB: Final = 1024 * 1024
IN_MEMORY: Final = 32 * MIB
"""Parquet that is sorted in memory, as Arrow about four times as much; more is read in turns."""

logger = logging.getLogger(__name__)


def merge(
    tables: TableFormat,
    state: TableState,
    files: Sequence[DataFile],
    directory: Path,
    name: str,
) -> NewFile | None:
    """Write the rows of all files to one in the spool; None if they cannot be put in order."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    path = directory.with_suffix(".parquet")
    is_small = sum(one.size for one in files) <= IN_MEMORY
    rows = _sorted(tables, state, files) if is_small else _in_turns(tables, state, files)
    try:
        write_parquet(path, state.columns, rows)
    except _OutOfOrder:
        path.unlink()
        logger.warning("%s: files overlap and are left as they are", state.table)
        return None
    footer = pq.read_metadata(path)
    if footer.num_rows != sum(one.rows for one in files):
        path.unlink()
        logger.warning("%s: files have rows without an offset and are left", state.table)
        return None
    partition = state.partition or "none"
    folder = directory_of(files[0].bucket, partition)
    return NewFile(
        f"{state.location}/data/{folder}{name}-0.parquet",
        path,
        footer.num_rows,
        path.stat().st_size,
        files[0].bucket,
        footer,
    )


class _OutOfOrder(Exception):
    """Files have the same offsets of a partition."""


def _dataset(tables: TableFormat, state: TableState, file: DataFile) -> ds.Dataset:
    system, path = tables.open_file(state, file.url)
    return ds.dataset(path, filesystem=system, format="parquet", partitioning=None)


def _sorted(
    tables: TableFormat, state: TableState, files: Sequence[DataFile]
) -> Iterator[pa.RecordBatch]:
    batches = [
        fitted(batch, state.columns)
        for file in files
        for batch in _dataset(tables, state, file).to_batches()
    ]
    table = pa.Table.from_batches(batches, state.columns)
    yield from table.sort_by([("_partition", "ascending"), ("_offset", "ascending")]).to_batches()


def _in_turns(
    tables: TableFormat, state: TableState, files: Sequence[DataFile]
) -> Iterator[pa.RecordBatch]:
    """Partition by partition, file by file: a row group is in memory, and no more."""
    low = min(one.partitions[0] for one in files if one.partitions is not None)
    high = max(one.partitions[1] for one in files if one.partitions is not None)
    for number in range(low, high + 1):
        last = -1
        for file in sorted(files, key=lambda one: one.offsets or (0, 0)):
            wanted = ds.field("_partition") == number
            for batch in _dataset(tables, state, file).to_batches(filter=wanted):
                if not batch.num_rows:
                    continue
                bounds = pc.min_max(batch.column("_offset"))
                if bounds["min"].as_py() <= last:
                    raise _OutOfOrder
                last = bounds["max"].as_py()
                yield fitted(batch, state.columns)
