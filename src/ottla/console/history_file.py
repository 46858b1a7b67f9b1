"""History that outlives the console: `history.sqlite` in its state directory.

- A blob for each series and six hours: the means and the maxima of steps of two minutes, by wall
  time. What was not sampled is a gap.
- Series belong to a cluster's id, so that another cluster under the same name has its own.
- `KEPT_DAYS` are kept, and `most_bytes`: beyond, the oldest day goes first.
- A file that is damaged is set aside, and a new one begun. A disk that is full costs the points of
  that time, never the console: `problem` says so, and the next save tries again.

Everything here waits for the disk: call it in a thread.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import threading
import zlib
from array import array
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console.history import COARSE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ottla.console.history import Name

BLOCK_SLOTS: Final = 180
"""Six hours."""
KEPT_DAYS: Final = 14
DAY_SLOTS: Final = 24 * 3600 * 1000 // COARSE_MS
VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE series (id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL,
                     UNIQUE (cluster, name));
CREATE TABLE points (block INTEGER NOT NULL, series INTEGER NOT NULL, data BLOB NOT NULL,
                     PRIMARY KEY (block, series)) WITHOUT ROWID;
"""

logger = logging.getLogger(__name__)


class Point(NamedTuple):
    """A step of two minutes: its number since the epoch, the mean and the maximum."""

    slot: int
    mean: float
    most: float


class HistoryFile:
    """One file. `open` first, `close` last."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path = path
        self.problem = ""
        """Why history is not written at the moment."""
        self._most_bytes = most_bytes
        self._database: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        """Whoever stops waiting for a thread leaves it at work."""

    def open(self, wall_s: int) -> None:
        """Open or make the file; one that cannot be read is set aside."""
        with self._lock:
            self._open(wall_s)

    def _open(self, wall_s: int) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                self._database = self._opened()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise  # the disk's fault, not the file's
                self._set_aside(wall_s, error)
                self._database = self._opened()
        except (OSError, sqlite3.Error) as error:
            self._failed(error)

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        try:
            [version] = database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            if version == 0:
                database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"version {version} is of another release")
            [found] = database.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
        except BaseException:
            database.close()
            raise
        self.path.chmod(0o600)
        return database

    def _set_aside(self, wall_s: int, error: sqlite3.Error) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged-{wall_s}")
        logger.warning("%s cannot be read (%s); kept as %s", self.path, error, aside)
        self.path.replace(aside)
        for suffix in ("-wal", "-shm"):
            with suppress(OSError):
                self.path.with_name(self.path.name + suffix).unlink()

    def save(self, cluster: str, series: Iterable[tuple[Name, list[Point]]], now_slot: int) -> bool:
        """Add the points of a cluster; False if they could not be written."""
        with self._lock:
            return self._save(cluster, series, now_slot)

    def _save(
        self, cluster: str, series: Iterable[tuple[Name, list[Point]]], now_slot: int
    ) -> bool:
        database = self._database
        if database is None:
            return False
        try:
            database.execute("BEGIN IMMEDIATE")
            try:
                for name, points in series:
                    self._put(database, cluster, name, points)
                first = (now_slot - KEPT_DAYS * DAY_SLOTS) // BLOCK_SLOTS
                database.execute("DELETE FROM points WHERE block < ?", (first,))
                self._shrink(database)
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk rolls back by itself
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
            database.execute("PRAGMA incremental_vacuum").fetchall()
        except (OSError, sqlite3.Error) as error:
            self._failed(error)
            return False
        self.problem = ""
        return True

    def _put(
        self, database: sqlite3.Connection, cluster: str, name: Name, points: list[Point]
    ) -> None:
        key = (cluster, json.dumps(name))
        database.execute("INSERT OR IGNORE INTO series (cluster, name) VALUES (?, ?)", key)
        [number] = database.execute(
            "SELECT id FROM series WHERE cluster = ? AND name = ?", key
        ).fetchone()
        blocks: dict[int, list[Point]] = {}
        for one in points:
            blocks.setdefault(one.slot // BLOCK_SLOTS, []).append(one)
        for block, some in blocks.items():
            row = database.execute(
                "SELECT data FROM points WHERE block = ? AND series = ?", (block, number)
            ).fetchone()
            values = _unpacked(row[0]) if row else None
            if values is None:
                values = array("f", [math.nan]) * (2 * BLOCK_SLOTS)
            for one in some:
                values[one.slot % BLOCK_SLOTS] = one.mean
                values[BLOCK_SLOTS + one.slot % BLOCK_SLOTS] = one.most
            database.execute(
                "INSERT OR REPLACE INTO points (block, series, data) VALUES (?, ?, ?)",
                (block, number, zlib.compress(values.tobytes(), 6)),
            )

    def _shrink(self, database: sqlite3.Connection) -> None:
        """Drop the oldest days until the rest fits."""
        while self._size(database) > self._most_bytes:
            [oldest] = database.execute("SELECT min(block) FROM points").fetchone()
            [newest] = database.execute("SELECT max(block) FROM points").fetchone()
            if oldest is None or oldest == newest:
                return
            day = max(1, DAY_SLOTS // BLOCK_SLOTS)
            database.execute("DELETE FROM points WHERE block < ?", (min(oldest + day, newest),))
        database.execute("DELETE FROM series WHERE id NOT IN (SELECT DISTINCT series FROM points)")

    def _size(self, database: sqlite3.Connection) -> int:
        pages, free, size = (
            database.execute(f"PRAGMA {one}").fetchone()[0]
            for one in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def load(
        self, cluster: str, first_slot: int, last_slot: int, most: int
    ) -> list[tuple[Name, list[Point]]]:
        """The points of a cluster's series between two steps, of so many series at most."""
        with self._lock:
            return self._load(cluster, first_slot, last_slot, most)

    def _load(
        self, cluster: str, first_slot: int, last_slot: int, most: int
    ) -> list[tuple[Name, list[Point]]]:
        database = self._database
        if database is None:
            return []
        found: dict[str, list[Point]] = {}
        try:
            rows = database.execute(
                "SELECT name, block, data FROM points JOIN series ON series.id = points.series"
                " WHERE cluster = ? AND block BETWEEN ? AND ? ORDER BY block",
                (cluster, first_slot // BLOCK_SLOTS, last_slot // BLOCK_SLOTS),
            )
            with closing(rows):
                for name, block, data in rows:
                    if name not in found and len(found) >= most:
                        continue
                    values = _unpacked(data)
                    if values is not None:
                        points = found.setdefault(name, [])
                        points += _points(values, block, first_slot, last_slot)
        except sqlite3.Error as error:
            self._failed(error)
        return [(tuple(json.loads(name)), points) for name, points in found.items() if points]

    def read(self, cluster: str, name: Name, first_slot: int, last_slot: int) -> list[Point]:
        """The points of one series between two steps."""
        with self._lock:
            database = self._database
            if database is None:
                return []
            found: list[Point] = []
            try:
                rows = database.execute(
                    "SELECT block, data FROM points JOIN series ON series.id = points.series"
                    " WHERE cluster = ? AND name = ? AND block BETWEEN ? AND ? ORDER BY block",
                    (
                        cluster,
                        json.dumps(name),
                        first_slot // BLOCK_SLOTS,
                        last_slot // BLOCK_SLOTS,
                    ),
                )
                with closing(rows):
                    for block, data in rows:
                        values = _unpacked(data)
                        if values is not None:
                            found += _points(values, block, first_slot, last_slot)
            except sqlite3.Error as error:
                self._failed(error)
            return found

    def close(self) -> None:
        with self._lock:
            if self._database is not None:
                with suppress(sqlite3.Error):
                    self._database.close()
                self._database = None

    def _failed(self, error: Exception) -> None:
        if not self.problem:
            logger.warning("%s: history is kept in memory only: %s", self.path, error)
        self.problem = str(error)


def _unpacked(data: bytes) -> array[float] | None:
    """The values of a blob; None if it is none of ours."""
    size = 2 * BLOCK_SLOTS * 4
    try:
        raw = zlib.decompressobj().decompress(data, size)
    except zlib.error:
        return None
    if len(raw) != size:
        return None
    values = array("f")
    values.frombytes(raw)
    return values


def _points(values: array[float], block: int, first: int, last: int) -> list[Point]:
    begin = block * BLOCK_SLOTS
    return [
        Point(begin + index, values[index], values[BLOCK_SLOTS + index])
        for index in range(BLOCK_SLOTS)
        if first <= begin + index <= last and not math.isnan(values[index])
    ]
