"""Erase rows of a table by a predicate, in all that a store keeps of it.

1. Files with such rows are written again without them, and replaced in one commit that notes the
   erasure: a salted hash of the predicate, never its values, and the offsets of its rows.
2. All older snapshots are forgotten.
3. Files that were named before and are not any more are deleted at once, without grace. Readers
   that hold one of them fail, and say so.
4. Data files that nobody names are deleted as well if they were in the store before the commit of
   step 1 and all their rows are below the table's position. Whoever wrote such a file loaded the
   table before that commit: a merge is refused by it and starts over, and a round takes rows from
   the position on. A file that comes later may belong to a commit that will go through. It is left
   to the sweep, which waits for its grace; so are all such files if there was nothing to write
   again, because nobody is refused then.

The log still has the records until its own retention removes them: the report names their offsets,
and asking again with the same predicate tells how many are left. Dead letters are searched if their
table has all columns of the predicate; else the report says how many were not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ottla.tables.compacting import is_ours
from ottla.tables.errors import CommitRefused, TableError, TablePaused, TableRunFailed
from ottla.tables.format import META_COLUMNS, PLACE_COLUMNS, NewFile
from ottla.tables.names import dead_letter_table
from ottla.tables.parquet_files import write_parquet
from ottla.tables.position import trouble
from ottla.tables.rows import directory_of, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ottla.tables.format import DataFile, Offsets, TableFormat, TableState
    from ottla.tables.predicates import Predicate
    from ottla.tables.settings import TopicSettings
    from ottla.tables.warehouse import Warehouse

ERASURES: Final = "ottla.erasures"
"""The property with what was erased."""
ATTEMPTS: Final = 5
"""Times that an erasure starts over because the worker was quicker."""
MAX_RANGES: Final = 1_000
"""Of offsets, noted for one erasure; more become one range for each partition."""
SALT_BYTES: Final = 16

Ranges = dict[int, list[tuple[int, int]]]
"""Offsets by partition; the second of a pair is not in it."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """One that was carried out. `newest_us` is the time of the newest record."""

    id: str
    time_ms: int
    salt: str
    hash: str
    files: int
    rows: int
    newest_us: int
    offsets: Ranges

    def is_of(self, text: str) -> bool:
        """Whether it was by this predicate."""
        return _hash(bytes.fromhex(self.salt), text) == self.hash

    def still_in(self, starts: Offsets) -> Ranges:
        """Offsets that a log which starts there still has."""
        found: Ranges = {}
        for number, ranges in self.offsets.items():
            start = starts.get(number, 0)
            left = [(max(low, start), end) for low, end in ranges if end > start]
            if left:
                found[number] = left
        return found


def dump_erasures(erasures: Sequence[Erasure]) -> str:
    """As the property's text."""
    return json.dumps(
        [
            {
                "id": one.id, "time": one.time_ms, "salt": one.salt, "hash": one.hash,
                "files": one.files, "rows": one.rows, "newest": one.newest_us,
                "offsets": {str(number): ranges for number, ranges in one.offsets.items()},
            }
            for one in erasures
        ],
        separators=(",", ":"),
    )  # fmt: skip


def load_erasures(text: str) -> list[Erasure]:
    """Of the property's text; `TableError` if it is not one."""
    try:
        return [
            Erasure(
                one["id"], one["time"], one["salt"], one["hash"], one["files"], one["rows"],
                one["newest"],
                {int(number): [(low, end) for low, end in ranges]
                 for number, ranges in one["offsets"].items()},
            )
            for one in json.loads(text)
        ]  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError):
        raise TableError(f"{ERASURES} of the table is not what an erasure writes") from None


def _hash(salt: bytes, text: str) -> str:
    return hashlib.scrypt(text.encode(), salt=salt, n=2**14, r=8, p=1).hex()


@dataclass(frozen=True, slots=True)
class Erased:
    """What a run did, and which offsets the log has still.

    `unsearched` are dead letters whose table lacks a column of the predicate.
    """

    rows: int
    files: int
    deleted: int
    erasures: tuple[Erasure, ...]
    unsearched: int = 0


class Erasing:
    """Of one topic's tables."""

    def __init__(
        self, tables: TableFormat, warehouse: Warehouse, settings: TopicSettings, spool: Path
    ) -> None:
        self._tables = tables
        self._warehouse = warehouse
        self._settings = settings
        self._spool = spool

    async def run(self, predicate: Predicate, text: str, now_ms: int) -> Erased:
        """Erase, and tell all erasures by this text, also earlier ones."""
        done = Erased(0, 0, 0, ())
        letters = dead_letter_table(self._settings.table)
        for table, needed in ((self._settings.table, META_COLUMNS), (letters, PLACE_COLUMNS)):
            state = await asyncio.to_thread(self._load, table, needed)
            if state is None:
                continue
            if table == letters and not predicate.columns <= {*state.columns.names}:
                files = await asyncio.to_thread(self._tables.files, state)
                done = replace(done, unsearched=sum(one.rows for one in files))
                continue
            predicate.checked(state.columns)
            one = await self._table(table, needed, predicate, text, now_ms)
            done = Erased(
                done.rows + one.rows,
                done.files + one.files,
                done.deleted + one.deleted,
                done.erasures + one.erasures,
            )
        return done

    def _load(self, table: str, needed: Sequence[str]) -> TableState | None:
        state = self._tables.load(table)
        why = None if state is None else trouble(state, state.topic_id, needed)
        if why is not None:
            raise TablePaused(f"{self._settings.topic}: {why.name}: {why.sentence}")
        return state

    async def _table(
        self, table: str, needed: Sequence[str], predicate: Predicate, text: str, now_ms: int
    ) -> Erased:
        refused: set[str] = set()
        for _ in range(ATTEMPTS):
            state = await asyncio.to_thread(self._load, table, needed)
            assert state is not None
            try:
                return await self._once(state, predicate, text, now_ms, refused)
            except CommitRefused:
                continue
        raise TableRunFailed(
            f"{self._settings.topic}: the table moved on {ATTEMPTS} times meanwhile; try again"
        )

    async def _once(
        self,
        state: TableState,
        predicate: Predicate,
        text: str,
        now_ms: int,
        refused: set[str],
    ) -> Erased:
        """`refused` gets the files whose commits are refused because of this one."""
        self._check_refs(state)
        known = load_erasures(self._tables.property(state, ERASURES) or "[]")
        before = await asyncio.to_thread(self._tables.named_files, state)
        work = await asyncio.to_thread(self._rewrite, state, predicate)
        if work.old:
            for one in work.new:
                await self._warehouse.upload(one.spool, one.url)
            salt = secrets.token_bytes(SALT_BYTES)
            entry = Erasure(
                uuid4().hex, now_ms, salt.hex(), _hash(salt, text), len(work.old), work.rows,
                work.newest_us, _ranges(work.offsets),
            )  # fmt: skip
            known = [*known, entry]
            present = await self._data_files(state)
            try:
                state = await asyncio.to_thread(
                    self._tables.replace,
                    state, work.old, work.new, "erase", {ERASURES: dump_erasures(known)},
                )  # fmt: skip
            except CommitRefused:
                for one in work.new:
                    await self._warehouse.delete(one.url)
                raise
            refused |= present
        mine = [one for one in known if one.is_of(text)]
        deleted = 0
        if mine:
            state = await self._forget(state)
            deleted = await self._delete(state, before, refused)
        return Erased(work.rows, len(work.old), deleted, tuple(mine))

    def _check_refs(self, state: TableState) -> None:
        _, named = self._tables.snapshots(state)
        others = named - {state.snapshot}
        if others:
            raise TableRunFailed(
                f"table {state.table}: a branch or tag names an older snapshot, which would keep "
                "the rows; drop it first"
            )

    async def _forget(self, state: TableState) -> TableState:
        snapshots, _ = self._tables.snapshots(state)
        old = [one.id for one in snapshots if one.id != state.snapshot]
        return await asyncio.to_thread(self._tables.expire, state, old) if old else state

    async def _data_files(self, state: TableState) -> set[str]:
        """Data files of ours that are in the store, whether the table names them or not."""
        return {
            url
            async for url, _ in self._warehouse.list(state.location)
            if url.endswith(".parquet") and is_ours(url)
        }

    async def _delete(self, state: TableState, before: set[str], refused: set[str]) -> int:
        """Files that were named before, and those that no commit can name any more."""
        named = await asyncio.to_thread(self._tables.named_files, state)
        gone = before - named
        for url in refused - named - gone:
            if await asyncio.to_thread(self._is_past, state, url):
                gone.add(url)
        for url in sorted(gone):
            await self._warehouse.delete(url)
        return len(gone)

    def _is_past(self, state: TableState, url: str) -> bool:
        """Whether all its rows are below the position, so that no commit under way adds it."""
        system, path = self._tables.open_file(state, url)
        try:
            found = pq.read_table(path, columns=["_partition", "_offset"], filesystem=system)
        except (OSError, pa.ArrowInvalid):
            return False  # being written, or deleted meanwhile
        highest = found.group_by("_partition").aggregate([("_offset", "max")]).to_pylist()
        return all(one["_offset_max"] < state.next.get(one["_partition"], 0) for one in highest)

    def _rewrite(self, state: TableState, predicate: Predicate) -> _Work:
        work = _Work([], [], {}, 0, 0)
        self._spool.mkdir(parents=True, exist_ok=True)
        for file in self._tables.files(state):
            system, path = self._tables.open_file(state, file.url)
            read = ds.dataset(path, filesystem=system, format="parquet", partitioning=None)
            wanted = sorted(predicate.columns & {*read.schema.names})
            hits = 0
            for batch in read.to_batches(columns=[*wanted, *_missing(wanted)]):
                hits += self._note(work, batch, _mask(predicate, batch, state.columns))
            if not hits:
                continue
            work.old.append(file)
            work.rows += hits
            if hits < file.rows:
                work.new.append(self._written(state, predicate, file, read))
        return work

    @staticmethod
    def _note(work: _Work, batch: pa.RecordBatch, mask: pa.BooleanArray) -> int:
        hit = batch.filter(mask)
        numbers, offsets = hit.column("_partition"), hit.column("_offset")
        for number, offset in zip(numbers.to_pylist(), offsets.to_pylist(), strict=True):
            if number is not None and offset is not None:
                work.offsets.setdefault(number, []).append(offset)
        times = hit.column("_timestamp").cast(pa.int64())
        work.newest_us = max(work.newest_us, pc.max(times).as_py() or 0)
        return int(hit.num_rows)

    def _written(
        self, state: TableState, predicate: Predicate, file: DataFile, read: ds.Dataset
    ) -> NewFile:
        name = uuid4().hex
        path = self._spool / f"{name}.parquet"
        write_parquet(path, state.columns, _kept(read, predicate, state.columns))
        footer = pq.read_metadata(path)
        folder = directory_of(file.bucket, state.partition or "none")
        return NewFile(
            f"{state.location}/data/{folder}{name}-0.parquet",
            path,
            footer.num_rows,
            path.stat().st_size,
            file.bucket,
            footer,
        )


@dataclass(slots=True)
class _Work:
    """Files with rows to erase, those that take their place, and where the rows were."""

    old: list[DataFile]
    new: list[NewFile]
    offsets: dict[int, list[int]]
    rows: int
    newest_us: int


def _missing(given: Sequence[str]) -> list[str]:
    return [one for one in PLACE_COLUMNS if one not in given]


def _mask(predicate: Predicate, batch: pa.RecordBatch, columns: pa.Schema) -> pa.BooleanArray:
    """Of a file that may be older than some columns of the table."""
    lacking = [one for one in sorted(predicate.columns) if one not in batch.schema.names]
    for name in lacking:
        kind = columns.field(name).type
        batch = batch.append_column(name, pa.nulls(batch.num_rows, kind))
    return predicate.mask(batch)


def _kept(read: ds.Dataset, predicate: Predicate, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in read.to_batches():
        kept = batch.filter(pc.invert(_mask(predicate, batch, columns)))
        if kept.num_rows:
            yield fitted(kept, columns)


def _ranges(offsets: Mapping[int, list[int]]) -> Ranges:
    found: Ranges = {}
    for number, known in sorted(offsets.items()):
        ranges: list[Any] = []
        for one in sorted(known):
            if ranges and ranges[-1][1] == one:
                ranges[-1] = (ranges[-1][0], one + 1)
            else:
                ranges.append((one, one + 1))
        found[number] = ranges
    if sum(map(len, found.values())) > MAX_RANGES:
        return {number: [(ranges[0][0], ranges[-1][1])] for number, ranges in found.items()}
    return found
