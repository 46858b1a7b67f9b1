"""Dead letters that fit by now: they move from their table to the topic's own.

- The rows are added first, in a commit that moves no position; then the letters leave their table.
  A crash in between leaves records in both. The next run finds them by their offsets and finishes
  the second half, before it does anything else.
- Letters that still do not fit stay, with one more attempt.
- Letters at or above the table's position are left to the worker, which keeps them out of its rows.
- A run that the worker overtook, in either table, starts over: what it had written is dropped.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ottla.tables.errors import CommitRefused, TablePaused, TableRunFailed
from ottla.tables.format import META_COLUMNS, PLACE_COLUMNS, Commit, NewFile
from ottla.tables.names import dead_letter_table
from ottla.tables.parquet_files import BUFFER_BYTES, MAX_BUCKETS, TableFiles
from ottla.tables.position import trouble
from ottla.tables.rows import LETTERS, buckets, divided, fitted
from ottla.tables.scanning import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from ottla.tables.converting import Converted, Converter
    from ottla.tables.format import DataFile, TableFormat, TableState
    from ottla.tables.settings import TopicSettings
    from ottla.tables.warehouse import Warehouse

ATTEMPTS: Final = 5
"""Times that a run starts over because the worker was quicker."""
AT_ONCE_BYTES: Final = 64 * 1024 * 1024
"""Of files with letters, in one pair of commits; a single larger file is one of its own."""
TIMESTAMP_TYPES: Final = {"CreateTime": 0, "LogAppendTime": 1}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters are tried again; None: all."""

    reason: str | None = None
    since_us: int | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """What a run did: letters that are rows now, and letters that still do not fit."""

    moved: int = 0
    left: int = 0


class Reprocessing:
    """Of one topic. `timestamp_type` is the topic's, which letters do not say."""

    def __init__(
        self,
        tables: TableFormat,
        warehouse: Warehouse,
        settings: TopicSettings,
        converter: Converter,
        spool: Path,
        timestamp_type: str = "CreateTime",
    ) -> None:
        self._tables = tables
        self._warehouse = warehouse
        self._settings = settings
        self._converter = converter
        self._spool = spool
        self._timestamp_type = TIMESTAMP_TYPES[timestamp_type]

    async def run(self, wanted: Wanted) -> Moved:
        """Try all wanted letters once."""
        done = Moved()
        seen: set[str] = set()
        attempts = 0
        while True:
            try:
                step = await self._step(wanted, seen)
            except CommitRefused:
                attempts += 1
                if attempts == ATTEMPTS:
                    raise TableRunFailed(
                        f"{self._settings.topic}: the table moved on {ATTEMPTS} times meanwhile; "
                        "try again"
                    ) from None
                continue
            if step is None:
                return done
            done = Moved(done.moved + step.moved, done.left + step.left)

    async def _step(self, wanted: Wanted, seen: set[str]) -> Moved | None:
        """One pair of commits; None if there is nothing left to try. `seen` are files that were."""
        state = await asyncio.to_thread(self._load, self._settings.table, META_COLUMNS)
        name = dead_letter_table(self._settings.table)
        letters = await asyncio.to_thread(self._load, name, PLACE_COLUMNS)
        if state is None or letters is None:
            return None
        files = _some(one for one in self._tables.files(letters) if one.url not in seen)
        if not files:
            return None
        commit = uuid4().hex
        work = await asyncio.to_thread(self._convert, state, letters, files, wanted, commit)
        if work.rows:
            await self._upload(work.rows)
            await self._or_delete(work.rows, self._tables.commit, state, work.commit)
        if work.is_changed:
            await self._upload(work.rest)
            # If this is refused the rows stay, and are found again by their offsets.
            await self._or_delete(
                work.rest, self._tables.replace, letters, files, work.rest, "reprocess"
            )
        seen |= {one.url for one in files} | {one.url for one in work.rest}
        return Moved(work.moved, work.left)

    async def _or_delete(
        self, files: Iterable[NewFile], commit: Callable[..., object], *args: object
    ) -> None:
        """Commit; files of a commit that is refused are deleted, as the next attempt has others."""
        try:
            await asyncio.to_thread(commit, *args)
        except CommitRefused:
            for one in files:
                await self._warehouse.delete(one.url)
            raise

    def _load(self, table: str, needed: Sequence[str]) -> TableState | None:
        state = self._tables.load(table)
        why = None if state is None else trouble(state, state.topic_id, needed)
        if why is not None:
            raise TablePaused(f"{self._settings.topic}: {why.name}: {why.sentence}")
        return state

    async def _upload(self, files: Iterable[NewFile]) -> None:
        for one in files:
            await self._warehouse.upload(one.spool, one.url)

    def _convert(
        self,
        state: TableState,
        letters: TableState,
        files: Sequence[DataFile],
        wanted: Wanted,
        commit: str,
    ) -> _Work:
        found = self._read(letters, files)
        there = self._already_rows(state, found)
        is_there = pa.array([pair in there for pair in _places(found)], pa.bool_())
        # The worker has not passed the others: it would take them again from the log.
        is_passed = pa.array(
            [offset < state.next.get(number, 0) for number, offset in _places(found)], pa.bool_()
        )
        is_tried = pc.and_(_matching(found, wanted), pc.and_not(is_passed, is_there))
        tried = found.filter(is_tried)
        parts = self._converted(state, tried)
        columns = self._tables.widened(state, self._converter.columns)
        rows = TableFiles(self._spool / f"{commit}-rows", state, columns, commit, BUFFER_BYTES)
        fitting: set[tuple[int, int]] = set()
        touched: set[int] = set()
        attempted: set[tuple[int, int]] = set()
        for part in parts:
            fitting |= self._add(rows, part.rows(columns), touched)
            if part.letters is not None:
                attempted |= {*_places(part.letters)}
        made = rows.finish()
        gone = fitting | there
        rest = found.filter(pa.array([pair not in gone for pair in _places(found)], pa.bool_()))
        left: tuple[NewFile, ...] = ()
        is_changed = bool(gone) or bool(attempted)
        if rest.num_rows and is_changed:
            left = self._write(letters, _tried_again(rest, attempted), commit)
        moves = Commit(commit, state.next, state.next, state.first, state.holes, made)
        if not columns.equals(state.columns, check_metadata=True):
            moves = replace(moves, columns=columns)
        noted = replace(moves, summary={"ottla.reprocess": commit})
        return _Work(noted, made, left, is_changed, len(gone), len(attempted))

    def _converted(self, state: TableState, tried: pa.Table) -> list[Converted]:
        """Partition by partition, as records come. Those whose schema may still come are left."""
        self._converter.start(state.columns)
        found: list[Converted] = []
        for number in pc.unique(tried.column("_partition")).to_pylist():
            own = tried.filter(pc.equal(tried.column("_partition"), number))
            [batch] = own.combine_chunks().to_batches()
            found += self._converter.convert(self._records(batch))
        return found

    def _read(self, letters: TableState, files: Sequence[DataFile]) -> pa.Table:
        parts = []
        for file in files:
            system, path = self._tables.open_file(letters, file.url)
            read = ds.dataset(path, filesystem=system, format="parquet", partitioning=None)
            parts.append(read.to_table(columns=LETTERS.names).cast(LETTERS))
        return pa.concat_tables(parts).sort_by(
            [("_partition", "ascending"), ("_offset", "ascending")]
        )

    def _already_rows(self, state: TableState, letters: pa.Table) -> set[tuple[int, int]]:
        """Letters that a run before this one made rows of, and could not take away."""
        by_partition: dict[int, list[int]] = {}
        for number, offset in _places(letters):
            by_partition.setdefault(number, []).append(offset)
        files = self._tables.files(state)
        found = set()
        for number, offsets in by_partition.items():
            ours = set(offsets)
            bounds = min(offsets), max(offsets) + 1
            for batch in scan(self._tables, state, files, ["_offset"], number, *bounds):
                found |= {(number, at) for at in batch.column("_offset").to_pylist() if at in ours}
        return found

    def _records(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Letters as the records they were."""
        return pa.RecordBatch.from_pydict(
            {
                "key": letters.column("_key"),
                "value": letters.column("value"),
                "partition": letters.column("_partition"),
                "offset": letters.column("_offset"),
                "timestamp": letters.column("_timestamp"),
                "timestampType": pa.array([self._timestamp_type] * letters.num_rows, pa.int32()),
                "headers": letters.column("_headers"),
            }
        )

    @staticmethod
    def _add(files: TableFiles, rows: pa.RecordBatch, touched: set[int]) -> set[tuple[int, int]]:
        """Take rows by their partitions; those of too many days are for the next run."""
        taken: set[tuple[int, int]] = set()
        for number in pc.unique(rows.column("_partition")).to_pylist():
            own = rows.filter(pc.equal(rows.column("_partition"), number))
            values = buckets(own.column("_timestamp"), files.partition)
            parts = [(None, own)] if values is None else divided(own, values)
            for bucket, part in parts:
                if bucket is not None and bucket not in touched:
                    if len(touched) == MAX_BUCKETS:
                        continue
                    touched.add(bucket)
                files.add(number, bucket, part)
                taken |= {(number, at) for at in part.column("_offset").to_pylist()}
        return taken

    def _write(self, letters: TableState, rest: pa.Table, commit: str) -> tuple[NewFile, ...]:
        directory = self._spool / f"{commit}-letters"
        files = TableFiles(directory, letters, letters.columns, uuid4().hex, rest.nbytes + 1)
        for batch in rest.to_batches():
            # One file, in the order of its rows.
            files.add(0, None, fitted(batch, letters.columns))
        return files.finish()


@dataclass(frozen=True, slots=True)
class _Work:
    """What one step writes: rows, and letters that stay."""

    commit: Commit
    rows: tuple[NewFile, ...]
    rest: tuple[NewFile, ...]
    is_changed: bool
    moved: int
    left: int


def _some(files: Iterable[DataFile]) -> list[DataFile]:
    """As many as are read at once, at least one."""
    chosen: list[DataFile] = []
    for file in sorted(files, key=lambda one: (one.offsets or (0, 0), one.url)):
        if chosen and sum(one.size for one in chosen) + file.size > AT_ONCE_BYTES:
            break
        chosen.append(file)
    return chosen


def _places(letters: pa.Table | pa.RecordBatch) -> list[tuple[int, int]]:
    return list(
        zip(
            letters.column("_partition").to_pylist(),
            letters.column("_offset").to_pylist(),
            strict=True,
        )
    )


def _matching(letters: pa.Table, wanted: Wanted) -> pa.Array:
    found = pa.array(np.ones(letters.num_rows, np.bool_))
    if wanted.reason is not None:
        found = pc.and_(found, pc.equal(letters.column("reason"), wanted.reason))
    if wanted.since_us is not None:
        times = letters.column("_timestamp").cast(pa.int64())
        found = pc.and_(found, pc.greater_equal(times, wanted.since_us))
    return found


def _tried_again(rest: pa.Table, attempted: set[tuple[int, int]]) -> pa.Table:
    at = rest.schema.get_field_index("_attempt")
    counts = [
        (count or 0) + (pair in attempted)
        for count, pair in zip(rest.column(at).to_pylist(), _places(rest), strict=True)
    ]
    return rest.set_column(at, LETTERS.field("_attempt"), pa.array(counts, pa.int32()))
