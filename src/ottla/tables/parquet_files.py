"""The data files of one round: rows by Iceberg partition, in a spool with bounded buffers.

- Rows of a file are sorted by `_partition` and `_offset`. Batches come in the order of offsets, so
  it is enough to keep those of each partition apart until the file is written.
- At most `BUFFER_BYTES` wait in memory: the largest bucket becomes a file first.
- A round touches at most `MAX_BUCKETS` Iceberg partitions: each is a file, and a commit with
  thousands of them would be slow for everybody who plans a query.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ottla.tables.converting import buckets, directory_of, divided, raw_rows
from ottla.tables.format import NewFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.tables.format import TableState

MIB: Final = 1024 * 1024
BUFFER_BYTES: Final = 256 * MIB
"""Arrow rows that wait for their file; half of what the worker may use."""
ROW_GROUP_BYTES: Final = 64 * MIB
ROW_GROUP_ROWS: Final = 1_000_000
MAX_BUCKETS: Final = 64
SHRINKS_TO: Final = 3
"""Arrow bytes become about a third of them in Parquet with zstd (measured: 0.25 to 0.38)."""
ZSTD_LEVEL: Final = 3


class RoundFiles:
    """Call `add` for batches of records, then `finish` once. Not for several threads at once."""

    def __init__(
        self,
        directory: Path,
        state: TableState,
        commit: str,
        target_file_bytes: int,
    ) -> None:
        self._directory = directory
        self._columns = state.columns
        self._location = state.location
        self._commit = commit
        self._partition = state.partition or "none"
        self._most_bytes = min(BUFFER_BYTES, SHRINKS_TO * target_file_bytes)
        self._buffers: dict[int | None, _Buffer] = {}
        self._touched: set[int] = set()
        self._nbytes = 0
        self._files: list[NewFile] = []
        directory.mkdir(parents=True)

    def add(self, records: pa.RecordBatch) -> int:
        """Take records of one partition; fewer than given if the round has touched enough."""
        values = buckets(records.column("timestamp"), self._partition)
        if values is not None:
            fitting = self._fitting(values)
            records, values = records.slice(0, fitting), values[:fitting]
        if not records.num_rows:
            return 0
        number: int = records.column("partition")[0].as_py()
        rows = raw_rows(records, self._columns)
        parts = [(None, rows)] if values is None else divided(rows, values)
        for bucket, part in parts:
            buffer = self._buffers.setdefault(bucket, _Buffer())
            buffer.add(number, part)
            self._nbytes += part.nbytes
            if buffer.nbytes >= self._most_bytes:
                self._write(bucket)
        while self._nbytes > BUFFER_BYTES:
            self._write(max(self._buffers, key=lambda one: self._buffers[one].nbytes))
        count: int = records.num_rows
        return count

    def finish(self) -> tuple[NewFile, ...]:
        """Write what is left; all files of the round."""
        for bucket in sorted(self._buffers, key=lambda one: -1 if one is None else one):
            self._write(bucket)
        return tuple(self._files)

    def discard(self) -> None:
        """Delete the files of the round from the spool."""
        self._buffers.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _fitting(self, values: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
        """How many of the rows come before the first that would be in a bucket too many."""
        found, first = np.unique(values, return_index=True)
        for bucket, at in sorted(zip(found.tolist(), first.tolist(), strict=True), key=_second):
            if bucket not in self._touched:
                if len(self._touched) == MAX_BUCKETS:
                    return int(at)
                self._touched.add(bucket)
        return len(values)

    def _write(self, bucket: int | None) -> None:
        buffer = self._buffers.pop(bucket)
        self._nbytes -= buffer.nbytes
        name = f"{self._commit}-{len(self._files)}.parquet"
        path = self._directory / name
        write_parquet(path, self._columns, buffer.batches())
        folder = directory_of(bucket, self._partition)
        footer = pq.read_metadata(path)
        self._files.append(
            NewFile(
                f"{self._location}/data/{folder}{name}",
                path,
                footer.num_rows,
                path.stat().st_size,
                bucket,
                footer,
            )
        )


class _Buffer:
    """Rows of one bucket that wait for their file."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._partitions: dict[int, list[pa.RecordBatch]] = {}

    def add(self, number: int, rows: pa.RecordBatch) -> None:
        self._partitions.setdefault(number, []).append(rows)
        self.nbytes += rows.nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        for number in sorted(self._partitions):
            yield from self._partitions[number]


def write_parquet(path: Path, columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Write a file in row groups of bounded size."""
    with pq.ParquetWriter(
        path,
        columns,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=_with_dictionary(columns),
        write_page_index=True,
        store_schema=False,
    ) as writer:
        group: list[pa.RecordBatch] = []
        nbytes = rows = 0
        for batch in batches:
            group.append(batch)
            nbytes += batch.nbytes
            rows += batch.num_rows
            if nbytes >= ROW_GROUP_BYTES or rows >= ROW_GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(group, columns), row_group_size=rows)
                group, nbytes, rows = [], 0, 0
        if group:
            writer.write_table(pa.Table.from_batches(group, columns), row_group_size=rows)


def _with_dictionary(columns: pa.Schema) -> list[str]:
    """Columns whose values repeat; a dictionary that grows beyond a page is given up by Arrow."""
    named = [
        one.name
        for one in columns
        if pa.types.is_string(one.type) or one.name in ("_partition", "_schema_id")
    ]
    return [*named, "_headers.list.element.key"]


def _second(pair: tuple[int, int]) -> int:
    return pair[1]
