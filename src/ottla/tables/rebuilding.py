"""Rows of a table made again from the log, file by file, with the schema of today.

- A file is rebuilt from the very offsets that it has. So dead letters, rows that were erased and
  rows that the table's retention removed do not come back.
- A file that cannot be read is rebuilt from what is nowhere else: offsets within its bounds that no
  other file, no dead letter and no erasure has. It is replaced only if they are as many as the file
  had rows.
- A file is left as it is if the log does not have all its records any more.
- A record that does not fit the schema of today keeps the row it has.
- Columns that the schema adds are committed first, without rows; then a file takes the place of the
  old one. A run that the worker overtook starts over with that file.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ottla.client.reader.reader import Reader
from ottla.tables.erasing import ERASURES, load_erasures
from ottla.tables.errors import (
    BadTableSetting,
    CommitRefused,
    SchemaNotYet,
    TablePaused,
    TableRunFailed,
)
from ottla.tables.format import Commit
from ottla.tables.names import dead_letter_table, topic_id_bytes
from ottla.tables.parquet_files import BUFFER_BYTES, TableFiles
from ottla.tables.position import trouble
from ottla.tables.rows import buckets, divided, fitted
from ottla.tables.scanning import scan
from ottla.tables.taking import CHUNK_BYTES, CHUNK_ROWS, NEEDED, needs_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ottla.client.security import Security
    from ottla.tables.converting import Converter
    from ottla.tables.format import DataFile, NewFile, Offsets, TableFormat, TableState
    from ottla.tables.settings import TopicSettings
    from ottla.tables.warehouse import Warehouse

    Places = Mapping[int, NDArray[np.int64]]

ATTEMPTS: Final = 5
"""Times that a file is begun again because the worker was quicker."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a run did. `kept` rows did not fit; `left` are files that stay, and why."""

    files: int = 0
    rows: int = 0
    kept: int = 0
    left: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which records of the log the rows of a file are, by partition.

    `offsets` are those to take, or, of a file that cannot be read, those not to take.
    """

    ranges: Mapping[int, tuple[int, int]]
    offsets: Places
    is_damaged: bool


class _Left(Exception):
    """The file stays as it is."""


class Rebuilding:
    """Of one topic."""

    def __init__(
        self,
        tables: TableFormat,
        warehouse: Warehouse,
        settings: TopicSettings,
        converter: Converter,
        spool: Path,
        bootstrap: str,
        security: Security,
    ) -> None:
        self._tables = tables
        self._warehouse = warehouse
        self._settings = settings
        self._converter = converter
        self._spool = spool
        self._bootstrap = bootstrap
        self._security = security

    async def run(self, starts: Offsets, names: Sequence[str] | None = None) -> Rebuilt:
        """Rebuild all files, or those with these names. `starts` are the log's."""
        state = await asyncio.to_thread(self._load)
        files = [] if state is None else await asyncio.to_thread(self._tables.files, state)
        done = Rebuilt()
        for url in _chosen([one.url for one in files], names):
            try:
                one = await self._file(url, starts)
            except _Left as why:
                one = Rebuilt(left=((url, str(why)),))
            done = Rebuilt(
                done.files + one.files,
                done.rows + one.rows,
                done.kept + one.kept,
                done.left + one.left,
            )
        return done

    def _load(self) -> TableState | None:
        state = self._tables.load(self._settings.table)
        why = None if state is None else trouble(state, state.topic_id)
        if why is not None:
            raise TablePaused(f"{self._settings.topic}: {why.name}: {why.sentence}")
        return state

    async def _file(self, url: str, starts: Offsets) -> Rebuilt:
        for _ in range(ATTEMPTS):
            state = await asyncio.to_thread(self._load)
            files = [] if state is None else await asyncio.to_thread(self._tables.files, state)
            file = next((one for one in files if one.url == url), None)
            if state is None or file is None:
                raise _Left("it was merged with others meanwhile; run the command again")
            try:
                return await self._once(state, files, file, starts)
            except CommitRefused:
                continue
        raise TableRunFailed(
            f"{self._settings.topic}: the table moved on {ATTEMPTS} times meanwhile; try again"
        )

    async def _once(
        self, state: TableState, files: Sequence[DataFile], file: DataFile, starts: Offsets
    ) -> Rebuilt:
        plan = await asyncio.to_thread(self._planned, state, files, file, starts)
        work = await self._written(state, file, plan)
        rows = sum(one.rows for one in work.files)
        if rows != file.rows:
            raise _Left(f"the log has {rows} of its {file.rows} records")
        if not work.columns.equals(state.columns, check_metadata=True):
            wider = Commit(
                uuid4().hex, state.next, state.next, state.first, state.holes, (), work.columns
            )
            state = await asyncio.to_thread(self._tables.commit, state, wider)
        for one in work.files:
            await self._warehouse.upload(one.spool, one.url)
        try:
            await asyncio.to_thread(self._tables.replace, state, [file], work.files, "rebuild")
        except CommitRefused:
            for one in work.files:
                await self._warehouse.delete(one.url)
            raise
        return Rebuilt(1, rows, work.kept)

    # -- which records --------------------------------------------------------------------------

    def _planned(
        self, state: TableState, files: Sequence[DataFile], file: DataFile, starts: Offsets
    ) -> _Plan:
        if file.offsets is None or file.partitions is None:
            raise _Left("it has rows without an offset, which are not the topic's")
        try:
            found = self._dataset(state, file).to_table(columns=["_partition", "_offset"])
        except (OSError, pa.ArrowInvalid):
            return self._missing(state, files, file, starts)
        if found.column("_offset").null_count:
            raise _Left("it has rows without an offset, which are not the topic's")
        offsets = {}
        for number in pc.unique(found.column("_partition")).to_pylist():
            own = found.filter(pc.equal(found.column("_partition"), number)).column("_offset")
            offsets[number] = np.sort(own.to_numpy())
            low = int(offsets[number][0])
            if low < starts.get(number, 0):
                raise _Left(f"the log of partition {number} begins after its offset {low}")
        ranges = {number: (int(one[0]), int(one[-1]) + 1) for number, one in offsets.items()}
        return _Plan(ranges, offsets, is_damaged=False)

    def _missing(
        self, state: TableState, files: Sequence[DataFile], file: DataFile, starts: Offsets
    ) -> _Plan:
        """What the file must have had, by all that is elsewhere."""
        assert file.partitions is not None
        assert file.offsets is not None
        low, high = file.offsets
        others = [one for one in files if one.url != file.url]
        letters = self._tables.load(dead_letter_table(self._settings.table))
        of_letters = [] if letters is None else self._tables.files(letters)
        taken: dict[int, list[int]] = {}
        for one in (state, letters):
            told = "[]" if one is None else self._tables.property(one, ERASURES) or "[]"
            for erasure in load_erasures(told):
                for number, ranges in erasure.offsets.items():
                    for begin, end in ranges:
                        taken.setdefault(number, []).extend(
                            range(max(begin, low), min(end, high + 1))
                        )
        ranges_of = {}
        for number in range(file.partitions[0], file.partitions[1] + 1):
            begin = max(low, starts.get(number, 0), state.first.get(number, 0))
            end = min(high + 1, state.next.get(number, 0))
            if begin >= end:
                continue
            ranges_of[number] = begin, end
            mine = taken.setdefault(number, [])
            for place, known in ((state, others), (letters, of_letters)):
                if place is not None:
                    for batch in scan(self._tables, place, known, ["_offset"], number, begin, end):
                        mine.extend(batch.column("_offset").to_pylist())
        offsets = {one: np.unique(np.array(mine, np.int64)) for one, mine in taken.items()}
        return _Plan(ranges_of, offsets, is_damaged=True)

    def _of_file(
        self, plan: _Plan, file: DataFile, partition: str, number: int, records: pa.RecordBatch
    ) -> pa.RecordBatch:
        offsets = records.column("offset").to_numpy()
        is_known = _is_in(offsets, plan.offsets.get(number))
        if not plan.is_damaged:
            return records.filter(pa.array(is_known))
        mask = ~is_known
        values = buckets(records.column("timestamp"), partition)
        if values is not None and file.bucket is not None:
            mask &= values == file.bucket
        return records.filter(pa.array(mask))

    # -- and their rows -------------------------------------------------------------------------

    async def _written(self, state: TableState, file: DataFile, plan: _Plan) -> _Work:
        await asyncio.to_thread(self._converter.start, state.columns)
        while True:
            known = self._converter.columns
            columns = await asyncio.to_thread(self._tables.widened, state, known)
            directory = self._spool / uuid4().hex
            files = TableFiles(directory, state, columns, uuid4().hex, BUFFER_BYTES)
            work = _Work(columns, files)
            for number, (start, end) in sorted(plan.ranges.items()):
                reader = Reader(
                    self._bootstrap,
                    self._settings.topic,
                    start={number: start},
                    stop={number: end},
                    columns=(*NEEDED, "headers") if needs_headers(self._settings) else NEEDED,
                    isolation_level="read_committed",
                    topic_id=topic_id_bytes(state.topic_id),
                    max_batch_rows=CHUNK_ROWS,
                    max_batch_bytes=CHUNK_BYTES,
                    security=self._security,
                    client_id="ottla-table",
                )
                async with reader:
                    async for batch in reader:
                        await asyncio.to_thread(self._add, state, file, plan, work, number, batch)
            if self._converter.columns.equals(known, check_metadata=True):
                work.files = await asyncio.to_thread(files.finish)
                return work
            # Schemas of later records have more columns: all rows are written with them.
            await asyncio.to_thread(shutil.rmtree, directory)

    def _add(
        self,
        state: TableState,
        file: DataFile,
        plan: _Plan,
        work: _Work,
        number: int,
        batch: pa.RecordBatch,
    ) -> None:
        known = self._converter.columns
        records = self._of_file(plan, file, state.partition or "none", number, batch)
        if not records.num_rows:
            return
        for part in self._converter.convert(records):
            if part.waits is not None:
                raise SchemaNotYet(f"{self._settings.topic}: {part.waits}; try again later")
            if not self._converter.columns.equals(known, check_metadata=True):
                return
            rows = part.rows(work.columns)
            if part.letters is not None:
                if plan.is_damaged:
                    raise _Left(
                        f"{part.letters.num_rows} of its records do not fit the schema, and their "
                        "rows cannot be read"
                    )
                work.kept += part.letters.num_rows
                rows = self._with_old(state, file, number, rows, part.letters)
            _put(work.writer, number, rows)

    def _with_old(
        self,
        state: TableState,
        file: DataFile,
        number: int,
        rows: pa.RecordBatch,
        letters: pa.RecordBatch,
    ) -> pa.RecordBatch:
        """The rows, and as they were those of records that do not fit any more."""
        wanted = (ds.field("_partition") == number) & ds.field("_offset").isin(
            letters.column("_offset")
        )
        old = self._dataset(state, file).to_table(filter=wanted)
        batches = [rows, *(fitted(one, rows.schema) for one in old.to_batches())]
        both = pa.Table.from_batches(batches, rows.schema).sort_by("_offset").combine_chunks()
        [found] = both.to_batches()
        return found

    def _dataset(self, state: TableState, file: DataFile) -> ds.Dataset:
        system, path = self._tables.open_file(state, file.url)
        return ds.dataset(path, filesystem=system, format="parquet", partitioning=None)


class _Work:
    """The files that take the place of one."""

    def __init__(self, columns: pa.Schema, writer: TableFiles) -> None:
        self.columns = columns
        self.writer = writer
        self.files: tuple[NewFile, ...] = ()
        self.kept = 0


def _put(files: TableFiles, number: int, rows: pa.RecordBatch) -> None:
    if not rows.num_rows:
        return
    values = buckets(rows.column("_timestamp"), files.partition)
    for bucket, part in [(None, rows)] if values is None else divided(rows, values):
        files.add(number, bucket, part)


def _is_in(offsets: NDArray[Any], known: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """Which of the offsets are among the known ones, which are sorted."""
    if known is None or not len(known):
        return np.zeros(len(offsets), np.bool_)
    at = np.minimum(np.searchsorted(known, offsets), len(known) - 1)
    found: NDArray[np.bool_] = known[at] == offsets
    return found


def _chosen(urls: Iterable[str], names: Sequence[str] | None) -> list[str]:
    """The files with these names, or whole URLs; all if there are none."""
    known = sorted(urls)
    if names is None:
        return known
    found = []
    for name in names:
        same = [url for url in known if url == name or url.endswith(f"/{name}")]
        if not same:
            raise BadTableSetting(f"the table has no file {name!r} now; see its snapshot's files")
        found += same
    return found
