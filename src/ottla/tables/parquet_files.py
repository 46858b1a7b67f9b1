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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.tables.errors import InvalidRecord, SchemaNotYet
from ottla.tables.format import NewFile
from ottla.tables.rows import buckets, directory_of, divided, fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from ottla.tables.converting import Converter
    from ottla.tables.format import TableState
    from ottla.tables.settings import TopicSettings

MIB: Final = 1024 * 1024
BUFFER_BYTES: Final = 256 * MIB
"""Arrow rows that wait for their file; half of what the worker may use."""
ROW_GROUP_BYTES: Final = 64 * MIB
ROW_GROUP_ROWS: Final = 1_000_000
MAX_BUCKETS: Final = 64
SHRINKS_TO: Final = 3
"""Arrow bytes become about a third of them in Parquet with zstd (measured: 0.25 to 0.38)."""
ZSTD_LEVEL: Final = 1
"""Measured on 1 M records of 100 bytes: half the processor time of level 3, and no larger files."""
ENCODINGS: Final = dict.fromkeys(("_offset", "_timestamp"), "DELTA_BINARY_PACKED")
"""Of columns whose values grow by little: less to compress, and a fifteenth of the bytes."""


class TableFiles:
    """The files of one table. Not for several threads at once."""

    def __init__(
        self, directory: Path, state: TableState, columns: pa.Schema, commit: str, most_bytes: int
    ) -> None:
        self.columns = columns
        self.partition = state.partition or "none"
        self._directory = directory
        self._location = state.location
        self._commit = commit
        self._most_bytes = most_bytes
        self._buffers: dict[int | None, _Buffer] = {}
        self._nbytes = 0
        self._files: list[NewFile] = []
        directory.mkdir(parents=True)

    def add(self, number: int, bucket: int | None, rows: pa.RecordBatch) -> None:
        """Take rows of one partition, of one bucket."""
        buffer = self._buffers.setdefault(bucket, _Buffer())
        buffer.add(number, rows)
        self._nbytes += rows.nbytes
        if buffer.nbytes >= self._most_bytes:
            self._write(bucket)
        while self._nbytes > BUFFER_BYTES:
            self._write(max(self._buffers, key=lambda one: self._buffers[one].nbytes))

    def finish(self) -> tuple[NewFile, ...]:
        """Write what is left; all files."""
        for bucket in sorted(self._buffers, key=lambda one: -1 if one is None else one):
            self._write(bucket)
        return tuple(self._files)

    def _write(self, bucket: int | None) -> None:
        buffer = self._buffers.pop(bucket)
        self._nbytes -= buffer.nbytes
        name = f"{self._commit}-{len(self._files)}.parquet"
        path = self._directory / name
        write_parquet(path, self.columns, (self._fitted(one) for one in buffer.batches()))
        folder = directory_of(bucket, self.partition)
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

    @property
    def has_files(self) -> bool:
        """Whether a file is written, so that its columns are fixed."""
        return bool(self._files)

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that came before the columns had grown have the others null."""
        return batch if batch.schema.equals(self.columns) else fitted(batch, self.columns)


class RoundFiles:
    """The files of a round: rows, and records that are none.

    Call `add` for batches of records, then `finish` once. Offsets of `decided` are dead letters
    already and are left out. `letter_table` is called, in the thread of `add`, when the first dead
    letter has come; `widen` if schemas of values have more columns than the table: it gives the
    table's columns with them.
    """

    def __init__(
        self,
        directory: Path,
        state: TableState,
        columns: pa.Schema,
        commit: str,
        converter: Converter,
        settings: TopicSettings,
        decided: Mapping[int, Collection[int]],
        letter_table: Callable[[], TableState],
        widen: Callable[[pa.Schema], pa.Schema],
    ) -> None:
        self.dropped = 0
        self._widen = widen
        self._known = converter.columns
        self._added = 0
        self._directory = directory
        self._commit = commit
        self._converter = converter
        self._settings = settings
        self._decided = decided
        self._letter_table = letter_table
        self._letters: TableFiles | None = None
        self._touched: set[int] = set()
        most = min(BUFFER_BYTES, SHRINKS_TO * settings.target_file_bytes)
        self._rows = TableFiles(directory / "rows", state, columns, commit, most)

    def add(self, records: pa.RecordBatch) -> int:
        """Take records of one partition; fewer than given if the round has touched enough."""
        values = buckets(records.column("timestamp"), self._rows.partition)
        if values is not None:
            records = records.slice(0, self._fitting(values))
        count: int = records.num_rows
        if not count:
            return 0
        number: int = records.column("partition")[0].as_py()
        offsets = records.column("offset")
        decided = self._decided.get(number)
        if decided:
            is_open = pc.invert(
                pc.is_in(records.column("offset"), pa.array(sorted(decided), pa.int64()))
            )
            records = records.filter(is_open)
        if not records.num_rows:
            return count
        parts = self._converter.convert(records)
        if not self._has_room():
            return 0
        for part in parts:
            self._add_rows(number, part.rows(self._rows.columns))
            if part.letters is not None:
                self._add_letters(number, part.letters)
        taken = sum(part.records.num_rows for part in parts)
        self._added += taken
        waits = parts[-1].waits
        if waits is None:
            return count
        if not self._added:
            raise SchemaNotYet(f"{waits}; partition {number} waits for it")
        next_offset = records.column("offset")[taken]
        return int(pc.index(offsets, next_offset).as_py())

    def _has_room(self) -> bool:
        """Give the rows the columns of new schemas; False if a file is written without them."""
        wanted = self._converter.columns
        if wanted.equals(self._known, check_metadata=True):
            return True
        if self._rows.has_files:
            return False
        self._rows.columns = self._widen(wanted)
        self._known = wanted
        return True

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows, those of new schemas included."""
        return self._rows.columns

    def finish(self) -> tuple[tuple[NewFile, ...], tuple[NewFile, ...]]:
        """Write what is left; the files of rows, and those of dead letters."""
        letters = () if self._letters is None else self._letters.finish()
        return self._rows.finish(), letters

    def discard(self) -> None:
        """Delete the files of the round from the spool, and give its memory back."""
        shutil.rmtree(self._directory, ignore_errors=True)
        pa.default_memory_pool().release_unused()

    def _add_rows(self, number: int, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        values = buckets(rows.column("_timestamp"), self._rows.partition)
        if values is None:
            self._rows.add(number, None, rows)
            return
        for bucket, part in divided(rows, values):
            self._rows.add(number, bucket, part)

    def _add_letters(self, number: int, letters: pa.RecordBatch) -> None:
        if self._settings.invalid == "drop":
            self.dropped += letters.num_rows
            return
        if self._settings.invalid == "pause":
            raise InvalidRecord(
                f"offset {letters.column('_offset')[0]} of partition {number} is "
                f"{letters.column('reason')[0]}; set ottla.table.invalid to dlq or drop to go on"
            )
        if self._letters is None:
            state = self._letter_table()
            self._letters = TableFiles(
                self._directory / "letters", state, state.columns, self._commit, BUFFER_BYTES
            )
        columns = self._letters.columns
        self._letters.add(
            number,
            None,
            pa.RecordBatch.from_arrays(
                [letters.column(one.name).cast(one.type) for one in columns], schema=columns
            ),
        )

    def _fitting(self, values: NDArray[np.int64]) -> int:
        """How many of the rows come before the first that would be in a bucket too many."""
        if len(values) and values.min() == values.max() and int(values[0]) in self._touched:
            return len(values)
        found, first = np.unique(values, return_index=True)
        for bucket, at in sorted(zip(found.tolist(), first.tolist(), strict=True), key=_second):
            if bucket not in self._touched:
                if len(self._touched) == MAX_BUCKETS:
                    return int(at)
                self._touched.add(bucket)
        return len(values)


class _Buffer:
    """Rows of one bucket that wait for their file."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._partitions: dict[int, list[pa.RecordBatch]] = {}

    def add(self, number: int, rows: pa.RecordBatch) -> None:
        self._partitions.setdefault(number, []).append(rows)
        self.nbytes += rows.nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, once: each batch is given up, so that memory is free for the file's pages."""
        for number in sorted(self._partitions):
            waiting = self._partitions.pop(number)[::-1]
            while waiting:
                yield waiting.pop()


def write_parquet(path: Path, columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Write a file in row groups of bounded size."""
    plain = columns.remove_metadata()
    with pq.ParquetWriter(
        path,
        plain,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=_with_dictionary(columns),
        column_encoding={one: ENCODINGS[one] for one in columns.names if one in ENCODINGS},
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
                writer.write_table(pa.Table.from_batches(group, plain), row_group_size=rows)
                group, nbytes, rows = [], 0, 0
        if group:
            writer.write_table(pa.Table.from_batches(group, plain), row_group_size=rows)


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
