"""What `ottla table status` and `verify` find out: lag, troubles, and rows against the log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.reader.reader import Reader
from ottla.clock import SYSTEM
from ottla.errors import OttlaError
from ottla.randomness import RANDOM
from ottla.tables.compacting import SMALL_FILE_BYTES
from ottla.tables.converting import Converter
from ottla.tables.erasing import ERASURES, load_erasures
from ottla.tables.errors import NoTable, TableError, TablePaused
from ottla.tables.names import dead_letter_table, topic_id_bytes
from ottla.tables.position import replaced, trouble
from ottla.tables.scanning import scan
from ottla.tables.topics import look
from ottla.tables.waiting import noted_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from ottla.client.admin.admin import Admin
    from ottla.client.security import Security
    from ottla.tables.format import DataFile, Offsets, TableFormat, TableState
    from ottla.tables.rounds import LogView
    from ottla.tables.settings import TopicSettings

MIB: Final = 1024 * 1024
LATE_INTERVALS: Final = 10
"""A table that is behind for this many intervals is late."""
WINDOW: Final = 100_000
"""Offsets that are compared at once: 16 bytes each, of the log and of the table."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table. `seconds` is the time since its last change while records wait, else 0."""

    topic: str
    table: str
    position: dict[int, int]
    ends: dict[int, int]
    lag: int
    seconds: float
    rows: int
    files: int
    small_files: int
    invalid: int
    holes: int
    hold_bytes: int
    problem: str | None


async def status(
    admin: Admin, tables: TableFormat, settings: TopicSettings, wall_ms: int
) -> TableStatus:
    """How a table is, and what is wrong with it."""
    log = await look(admin, settings, is_new=False)
    waits = await _waits(admin, settings)
    try:
        state = await asyncio.to_thread(tables.load, settings.table)
    except Exception as error:
        if waits is None:
            raise
        raise TableError(f"{error}; {settings.topic}: {waits}") from error
    if state is None:
        behind = sum(end - log.starts.get(one, end) for one, end in log.ends.items())
        why = waits or "is ottla table run running?"
        return TableStatus(
            settings.topic, settings.table, {}, dict(log.ends), behind, 0.0, 0, 0, 0, 0, 0,
            settings.hold_bytes,
            f"not created yet; {why}{_held(settings, behind)}",
        )  # fmt: skip
    parts = await asyncio.to_thread(_parts, tables, settings.table)
    files = parts[0].files
    invalid = sum(one.rows for part in parts[1:] for one in part.files)
    # A table of a deleted topic has taken nothing of this log.
    is_own = state.topic_id == log.topic_id
    position = dict(state.next) if is_own else {}
    taken = position if is_own else log.starts
    lag = sum(max(0, end - taken.get(one, end)) for one, end in log.ends.items())
    seconds = max(0, wall_ms - state.changed_ms) / 1000 if lag else 0.0
    problem = await asyncio.to_thread(_problem, tables, state, log, settings, seconds, waits)
    return TableStatus(
        settings.topic,
        state.table,
        position,
        dict(log.ends),
        lag,
        seconds,
        sum(one.rows for one in files),
        len(files),
        sum(one.size < SMALL_FILE_BYTES for one in files),
        invalid,
        sum(one.end - one.start for one in state.holes),
        settings.hold_bytes,
        problem,
    )


async def _waits(admin: Admin, settings: TopicSettings) -> str | None:
    """What the worker says of its waiting; who may not see groups is told nothing."""
    try:
        why = await noted_wait(admin, settings)
    except OttlaError:
        return None
    return None if why is None else f"its worker waits: {why}"


def _held(settings: TopicSettings, lag: int) -> str:
    """What the broker does about records that wait."""
    if not lag:
        return ""
    if not settings.hold_bytes:
        return "; retention does not wait for the table (ottla.table.hold.bytes)"
    return (
        f"; retention keeps the {lag} records that wait, up to {settings.hold_bytes} bytes of a "
        "partition (ottla.table.hold.bytes)"
    )


def _problem(
    tables: TableFormat,
    state: TableState,
    log: LogView,
    settings: TopicSettings,
    seconds: float,
    waits: str | None,
) -> str | None:
    found = trouble(state, log.topic_id)
    letters = tables.load(dead_letter_table(settings.table))
    if found is None and letters is not None:
        found = replaced(letters, log.topic_id)
    if found is not None:
        return f"{found.name}: {found.sentence}"
    try:
        tables.widened(state, Converter(settings).columns)
    except OttlaError as error:
        return f"{type(error).__name__}: {error}"
    if state.holes:
        return f"records were gone before they were taken: {len(state.holes)} holes"
    late = seconds > LATE_INTERVALS * settings.commit_interval
    lag = sum(max(0, end - state.next.get(one, end)) for one, end in log.ends.items())
    if not late and (waits is None or not lag):
        return None
    why = waits or "is ottla table run running?"
    said = f"nothing was taken for {seconds:.0f} s; {why}" if late else why
    return f"{said}{_held(settings, lag)}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Offsets [start, end) of a partition, and how many of them are wrong in the table."""

    partition: int
    start: int
    end: int
    missing: int
    doubled: int
    foreign: int
    different: int

    @property
    def is_wrong(self) -> bool:
        return bool(self.missing or self.doubled or self.foreign or self.different)


async def verify(
    bootstrap: str,
    security: Security,
    admin: Admin,
    tables: TableFormat,
    settings: TopicSettings,
    *,
    sample: int | None = None,
    choose: Callable[[list[tuple[int, int, int]], int], list[tuple[int, int, int]]] = RANDOM.sample,
) -> list[Finding]:
    """Compare rows with the log: every offset once, in the table or its dead letters.

    Where the table keeps values, their bytes are compared, too. Offsets that the log has no more
    are left out. With `sample` so many windows are compared. `NoTable` if there is none yet,
    `TablePaused` if it belongs to a deleted topic of this name.
    """
    parts = await asyncio.to_thread(_parts, tables, settings.table)
    if not parts:
        raise NoTable(f"{settings.topic} has no table yet; is ottla table run running?")
    state = parts[0].state
    log = await look(admin, settings, is_new=False)
    why = replaced(state, log.topic_id)
    if why is not None:
        raise TablePaused(f"{settings.topic}: {why.name}: {why.sentence}")
    [policy] = await admin.describe_configs("topic", settings.topic, ["cleanup.policy"])
    is_compacted = "compact" in (policy.value or "")
    has_values = settings.value_format == "raw" or settings.keep_value
    has_keys = settings.key_format != "registry"
    told = [name for name, is_told in (("key", has_keys), ("value", has_values)) if is_told]
    topic_id = topic_id_bytes(state.topic_id)
    oldest_us = None
    if settings.retention_ms >= 0:
        oldest_us = (SYSTEM.wall_ms() - settings.retention_ms) * 1000
    windows = list(_windows(state, log.starts))
    if sample is not None and sample < len(windows):
        windows = sorted(choose(windows, sample))
    erased = _erased(tables, parts)
    found = []
    for number, start, end in windows:
        theirs, old = await _in_log(
            bootstrap, security, settings.topic, topic_id, told, number, start, end, oldest_us
        )
        ours = await asyncio.to_thread(_in_tables, tables, parts, told, number, start, end)
        if is_compacted:
            # The log has dropped older values of a key since; the table keeps what it saw.
            ours = {one: hashes for one, hashes in ours.items() if one in theirs}
        old |= erased.get(number, set())
        kept = {one: hashes for one, hashes in theirs.items() if one in ours or one not in old}
        found.append(_compared(number, start, end, kept, ours))
    return found


def _erased(tables: TableFormat, parts: Sequence[_Part]) -> dict[int, set[int]]:
    """Offsets that an erasure may have taken out of the table."""
    found: dict[int, set[int]] = {}
    for part in parts:
        for one in load_erasures(tables.property(part.state, ERASURES) or "[]"):
            for number, ranges in one.offsets.items():
                for low, end in ranges:
                    found.setdefault(number, set()).update(range(low, end))
    return found


def _windows(state: TableState, starts: Offsets) -> Iterator[tuple[int, int, int]]:
    for number, end in sorted(state.next.items()):
        low = max(state.first.get(number, 0), starts.get(number, end))
        for start in range(low, end, WINDOW):
            yield number, start, min(start + WINDOW, end)


_Rows = dict[int, list[int]]
"""Hashes of key and value by offset."""


def _add(rows: _Rows, offsets: pa.Array, told: Sequence[pa.Array]) -> None:
    """`told` are the bytes that are compared; keys may be kept as text."""
    bytes_of = [one.cast("binary").to_pylist() for one in told]
    for row, offset in enumerate(offsets.to_pylist()):
        rows.setdefault(offset, []).append(hash(tuple(one[row] for one in bytes_of)))


async def _in_log(
    bootstrap: str, security: Security, topic: str, topic_id: bytes, told: Sequence[str],
    number: int, start: int, end: int, oldest_us: int | None,
) -> tuple[_Rows, set[int]]:  # fmt: skip
    """Rows of the log, and which of them are so old that the table may have dropped them."""
    rows: _Rows = {}
    old: set[int] = set()
    reader = Reader(
        bootstrap,
        topic,
        start={number: start},
        stop={number: end},
        columns=("key", "value", "offset", "timestamp"),
        isolation_level="read_committed",
        topic_id=topic_id,
        max_batch_bytes=8 * MIB,
        security=security,
        client_id="ottla-table",
    )
    async with reader:
        async for batch in reader:
            offsets = batch.column("offset")
            _add(rows, offsets, [batch.column(one) for one in told])
            if oldest_us is not None:
                times = batch.column("timestamp").cast("int64").to_pylist()
                pairs = zip(offsets.to_pylist(), times, strict=True)
                old |= {offset for offset, time in pairs if time < oldest_us}
    return rows, old


def _in_tables(
    tables: TableFormat,
    parts: Sequence[_Part],
    told: Sequence[str],
    number: int,
    start: int,
    end: int,
) -> _Rows:
    rows: _Rows = {}
    of_table = {"key": "_key", "value": "value"}
    columns = ["_offset", *(of_table[one] for one in told)]
    for part in parts:
        for batch in scan(tables, part.state, part.files, columns, number, start, end):
            _add(rows, batch.column("_offset"), [batch.column(one) for one in columns[1:]])
    return rows


@dataclass(frozen=True, slots=True)
class _Part:
    """The table, or that of its dead letters."""

    state: TableState
    files: list[DataFile]


def _parts(tables: TableFormat, table: str) -> list[_Part]:
    """The table first, then its letters; those of another topic id are not its own."""
    state = tables.load(table)
    if state is None:
        return []
    letters = tables.load(dead_letter_table(table))
    found = [state] if letters is None or letters.topic_id != state.topic_id else [state, letters]
    return [_Part(one, tables.files(one)) for one in found]


def _compared(number: int, start: int, end: int, theirs: _Rows, ours: _Rows) -> Finding:
    return Finding(
        number,
        start,
        end,
        missing=sum(one not in ours for one in theirs),
        doubled=sum(len(found) > 1 for found in ours.values()),
        foreign=sum(one not in theirs for one in ours),
        different=sum(one in ours and ours[one][0] != found[0] for one, found in theirs.items()),
    )
