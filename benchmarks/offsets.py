"""Offset stores against the plain work they are made of, on the same disk in the same run.

    python -m benchmarks.offsets [--quick] [--directory DIR]

Peers of the lock-file store are loops without locks, checks or checksums: one that replaces a file
with one fsync (a temporary file, synced and renamed, which a power cut may undo), and one that also
syncs the directory, so that the file is kept. The peer of the SQLite store is the same transaction
without the position, for a batch of a hundred rows, as a consumer commits them. Transactions of one
row are shown beside it: on a disk that syncs in a tenth of a millisecond the statement that moves
the position, written by hand for the same table, costs nearly as much as the target allows, so
there the store is held against that statement.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._harness import Row, Timing, faster, report, take_turns
from ottla.offsets import OffsetKey, SyncLockFileOffsetStore, SyncSqliteOffsetStore
from ottla.offsets.sql import DEFAULT_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = "--quick" in sys.argv
# Many short turns: what else uses the disk comes and goes within a second.
ROUNDS = 41 if QUICK else 201
SAVES = 20
"""In one turn: enough for a data file to grow to its end and be replaced, which costs more."""
GROUP = 64
TRANSACTIONS = 10
LINE = b"v1 1234567890 - orders 0 cd3f550b\n"


def main() -> None:
    where = sys.argv[sys.argv.index("--directory") + 1] if "--directory" in sys.argv else None
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=where) as name:
        directory = Path(name)
        rows = [*single_rows(directory), *group_rows(directory), *sqlite_rows(directory)]
    report("offsets: on one disk", rows, ("psycopg",))


def single_rows(directory: Path) -> list[Row]:
    """One key, saved again and again."""
    store = SyncLockFileOffsetStore(directory / "single")
    key = OffsetKey("group", "orders")
    position = 0

    def ours() -> None:
        nonlocal position
        for _ in range(SAVES):
            position += 1
            store.save(key, position)

    peer = directory / "peer"
    peer.mkdir()
    mine, replaced, kept = take_turns(
        ours,
        lambda: replace_files(peer, SAVES, keep=False),
        lambda: replace_files(peer, SAVES, keep=True),
        rounds=ROUNDS // 4,
    )
    what = "lock file, save, peer one fsync and rename"
    return [
        faster(what, mine, replaced, 0.9, per(SAVES)),
        faster(f"{what}, directory synced", mine, kept, 0.9, per(SAVES)),
    ]


def group_rows(directory: Path) -> list[Row]:
    """64 keys in one group commit, against 64 saves with an fsync each."""
    store = SyncLockFileOffsetStore(directory / "group")
    keys = [OffsetKey("group", "orders", shard) for shard in range(GROUP)]
    position = 0

    def ours() -> None:
        nonlocal position
        position += 1
        store.save_many(dict.fromkeys(keys, position))

    peer = directory / "peer"
    mine, replaced = take_turns(ours, lambda: replace_files(peer, GROUP, keep=False), rounds=ROUNDS)
    what = f"lock file, group commit of {GROUP} keys, peer one fsync and rename each"
    return [faster(what, mine, replaced, 10.0, per(GROUP))]


def replace_files(directory: Path, count: int, *, keep: bool) -> None:
    """Replacements of a file; `keep` syncs the directory too."""
    temporary, data = directory / "peer.tmp", directory / "peer.offset"
    here = os.open(directory, os.O_RDONLY)
    for _ in range(count):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, LINE)
        os.fsync(descriptor)
        os.close(descriptor)
        temporary.replace(data)
        if keep:
            os.fsync(here)
    os.close(here)


def sqlite_rows(directory: Path) -> list[Row]:
    """What the position adds to a transaction of one business row, and of a hundred."""
    rows = []
    for size in (1, 100):
        timings = take_turns(*sqlite_sides(directory / f"business-{size}.db", size), rounds=ROUNDS)
        mine = timings[0]
        targets = (None, 1.15) if size == 1 else (1.15, None)
        peers = ("without", "with the same UPDATE by hand")
        for name, theirs, target in zip(peers, timings[1:], targets, strict=True):
            overheads = [a / b for a, b in zip(mine.seconds, theirs.seconds, strict=True)]
            rows.append(
                Row(
                    f"SQLite, {size} row(s) per transaction with the position, peer {name}",
                    per(size * TRANSACTIONS)(mine),
                    per(size * TRANSACTIONS)(theirs),
                    # Of turns next to each other: what the disk does to both cancels out.
                    statistics.median(overheads),
                    (min(overheads), max(overheads)),
                    target,
                    at_most=True,
                )
            )
    return rows


def sqlite_sides(path: Path, size: int) -> list[Callable[[], None]]:
    """The same work with the position, without, and with a position of the caller's own updating.

    All on one connection in WAL mode, durable.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE business (id INTEGER PRIMARY KEY, value BLOB)")
    store = SyncSqliteOffsetStore()
    store.create_table(connection)
    key = OffsetKey("group", "orders")
    with store.transaction(connection) as first:
        first.save(OffsetKey("by hand", "orders"), 0)
    values = [(os.urandom(100),) for _ in range(size)]
    insert = "INSERT INTO business (value) VALUES (?)"
    update = (
        f"UPDATE {DEFAULT_TABLE} SET position = ?, updated_ms = ? WHERE consumer = 'by hand' "
        "AND stream = 'orders' AND shard = 0 AND position = ?"
    )
    position: int | None = None
    updated = 0

    def with_position() -> None:
        nonlocal position
        for _ in range(TRANSACTIONS):
            with store.transaction(connection) as transaction:
                connection.executemany(insert, values)
                following = (position or 0) + size
                transaction.save(key, following, expected=position)
                position = following

    def without() -> None:
        for _ in range(TRANSACTIONS):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(insert, values)
            connection.execute("COMMIT")

    def by_hand() -> None:
        nonlocal updated
        for _ in range(TRANSACTIONS):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(insert, values)
            following = updated + size
            now = time.time_ns() // 1_000_000
            connection.execute(update, (f"{following:039}", now, f"{updated:039}"))
            updated = following
            connection.execute("COMMIT")

    return [with_position, without, by_hand]


def per(count: int) -> Callable[[Timing], str]:
    return lambda timing: f"{count / timing.median:,.0f} /s"


if __name__ == "__main__":
    main()
