"""The metadata store in one SQLite file, shared by every node on the machine.

Three tables: `changes`, one row per version, `snapshot`, the image as of some version, and
`secrets`, the passwords and keys that nodes share and that are in no image. Opening reads the
snapshot and folds the later changes over it; so does a node that fell behind. The rows are JSON:
`sqlite3 metadata.db 'select * from changes'` shows what happened to the cluster.

Rules:

* A proposal is one `BEGIN IMMEDIATE` transaction: catch up with the other nodes, check, apply,
  insert, commit. SQLite's write lock orders the nodes; the version is the primary key.
* WAL with synchronous=FULL: what was proposed survives a power cut, readers never wait for it.
* Every `SNAPSHOT_INTERVAL` changes the proposal also writes the snapshot; the changes before the
  previous interval go, so that a node that polls now and then need not read a whole image.
* A decision is asked inside that transaction, so it sees what the other nodes committed.
* `PRAGMA data_version` tells in microseconds whether another node committed.
* The file is readable by its owner alone, and SQLite overwrites what it deletes: it holds secrets
  and what verifies passwords.
* A store of schema version 1, which has no `secrets`, is raised to 2 when it is opened; releases
  that know version 1 alone refuse it from then on.
* A connection belongs to the thread that opened it, and does not survive a fork.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.metadata.changes.apply import apply, carry_out
from ottla.metadata.changes.nodes import SetClusterId
from ottla.metadata.codec import (
    UndecodableMetadata,
    decode_change,
    decode_image,
    encode_change,
    encode_image,
)
from ottla.metadata.errors import (
    ChangeRefused,
    CorruptStore,
    StoreBusy,
    StoreUnavailable,
    UnsupportedSchema,
)
from ottla.metadata.image import MetadataImage, random_topic_id, topic_id_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.metadata.changes.apply import Change, Decision

APPLICATION_ID: Final = 0x4F74746C  # "Ottl", so that `file` and Ottla recognize the database
SCHEMA_VERSION: Final = 2
_FILE_MODE: Final = 0o600
# A snapshot costs about as much as a hundred changes; folding 2,000 at start costs milliseconds.
SNAPSHOT_INTERVAL: Final = 1000
# For all but proposals, which say how long they wait: opening may meet other nodes that start.
LOCK_TIMEOUT_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.005
# SQLite's shared memory and a write-ahead log of a few changes take about 64 KiB.
NEEDED_BYTES: Final = 256 * 1024

_SCHEMA: Final = (
    "CREATE TABLE changes (version INTEGER PRIMARY KEY, change TEXT NOT NULL) STRICT",
    "CREATE TABLE snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), image TEXT NOT NULL) STRICT",
    f"PRAGMA application_id = {APPLICATION_ID}",
    "PRAGMA user_version = 1",
)
_SCHEMA_2: Final = (
    "CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT",
    "PRAGMA user_version = 2",
)


class SqliteMetadataStore:
    """A `MetadataStore`. A new file is given `cluster_id` or a random one, an old one keeps its."""

    def __init__(
        self,
        path: Path,
        *,
        cluster_id: str | None = None,
        snapshot_interval: int = SNAPSHOT_INTERVAL,
        durable: bool = True,
    ) -> None:
        self._durable = durable  # it outlives a power cut
        self._path = str(path)
        self._snapshot_interval = snapshot_interval
        self._image = MetadataImage()
        self._data_version = -1
        _create_private(self._path)
        with self._errors():
            self._connection = sqlite3.connect(
                self._path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None
            )
        try:
            with self._errors():
                self._open(cluster_id or topic_id_text(random_topic_id()))
        except BaseException:
            self._connection.close()
            raise

    def snapshot(self) -> MetadataImage:
        return self._image

    def propose(
        self, *steps: Change | Decision, wait: float = LOCK_TIMEOUT_SECONDS
    ) -> MetadataImage:
        with self._errors():
            self._connection.execute(f"PRAGMA busy_timeout = {max(1, int(wait * 1000))}")
            newest = self._image
            try:
                with self._transaction("IMMEDIATE"):
                    newest = self._read(newest)
                    changes, after = carry_out(newest, steps)
                    self._write(newest, changes, after)
                newest = after
            finally:
                # What the other nodes committed counts, whether this proposal does or not.
                self._image = newest
            return newest

    def poll(self) -> MetadataImage:
        with self._errors():
            data_version = self._pragma("data_version")
            if data_version != self._data_version:
                with self._transaction("DEFERRED"):
                    self._image = self._read(self._image)
                self._data_version = data_version
            return self._image

    def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        with self._errors(), self._transaction("IMMEDIATE"):
            find = "SELECT value FROM secrets WHERE name = ?"
            row = self._connection.execute(find, (name,)).fetchone()
            if row is None:
                row = (make(),)
                self._connection.execute("INSERT INTO secrets VALUES (?, ?)", (name, *row))
            value: bytes = row[0]
            return value

    def close(self) -> None:
        self._connection.close()

    def _open(self, cluster_id: str) -> None:
        self._write_ahead()
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'OFF'}")
        self._connection.execute("PRAGMA secure_delete = ON")
        with self._transaction("IMMEDIATE"):
            image = MetadataImage()
            if self._is_empty():
                for statement in _SCHEMA:
                    self._connection.execute(statement)
                self._raise_schema()
            else:
                self._check_schema()
                if self._pragma("user_version") < SCHEMA_VERSION:
                    self._raise_schema()
                image = self._read(image)
            if not image.cluster_id:
                first = SetClusterId(cluster_id)
                after = apply(image, first)
                self._write(image, (first,), after)
                image = after
        self._image = image

    def _write_ahead(self) -> None:
        """Use a write-ahead log. SQLite does not wait if another node just does that, too."""
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)
            else:
                return

    def _is_empty(self) -> bool:
        return self._connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None

    def _check_schema(self) -> None:
        application_id = self._pragma("application_id")
        if application_id != APPLICATION_ID:
            raise CorruptStore("a metadata store of Ottla", "another database", self._path)
        schema_version = self._pragma("user_version")
        if not 1 <= schema_version <= SCHEMA_VERSION:
            raise UnsupportedSchema(
                f"version 1 or {SCHEMA_VERSION}",
                f"version {schema_version}, written by another release of Ottla: start that one",
                self._path,
            )
        (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise CorruptStore("a sound database", verdict, self._path)

    def _raise_schema(self) -> None:
        for statement in _SCHEMA_2:
            self._connection.execute(statement)
        for suffix in ("", "-wal", "-shm"):
            _make_private(Path(self._path + suffix))

    def _pragma(self, name: str) -> int:
        value: int = self._connection.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    def _read(self, known: MetadataImage) -> MetadataImage:
        """The newest image, from one the caller has; inside a transaction."""
        rows = self._changes_after(known.version)
        if (rows and rows[0][0] != known.version + 1) or not known.version:
            known = self._snapshot() or known
            rows = self._changes_after(known.version)
        for version, text in rows:
            try:
                known = apply(known, decode_change(text))
            except (UndecodableMetadata, ChangeRefused) as error:
                raise CorruptStore(
                    "a change that fits", error, f"{self._path}, version {version}"
                ) from error
            if known.version != version:
                raise CorruptStore(f"version {known.version}", version, self._path)
        return known

    def _changes_after(self, version: int) -> list[tuple[int, str]]:
        return self._connection.execute(
            "SELECT version, change FROM changes WHERE version > ? ORDER BY version", (version,)
        ).fetchall()

    def _snapshot(self) -> MetadataImage | None:
        row = self._connection.execute("SELECT image FROM snapshot").fetchone()
        if row is None:
            return None
        try:
            return decode_image(row[0])
        except UndecodableMetadata as error:
            raise CorruptStore("an image", error, f"{self._path}, snapshot") from error

    def _write(
        self, before: MetadataImage, changes: Sequence[Change], after: MetadataImage
    ) -> None:
        self._connection.executemany(
            "INSERT INTO changes VALUES (?, ?)",
            (
                (version, encode_change(change))
                for version, change in enumerate(changes, before.version + 1)
            ),
        )
        interval = self._snapshot_interval
        if before.version // interval != after.version // interval:
            self._connection.execute(
                "INSERT OR REPLACE INTO snapshot VALUES (1, ?)", (encode_image(after),)
            )
            self._connection.execute(
                "DELETE FROM changes WHERE version <= ?", (after.version - interval,)
            )

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self._connection.execute(f"BEGIN {kind}")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _advice(self) -> str:
        """SQLite says of a full disk only that I/O failed."""
        import shutil  # loaded in this case only

        try:
            free = shutil.disk_usage(Path(self._path).parent).free
        except OSError:
            return ""
        if free >= NEEDED_BYTES:
            return ""
        return f" ({free // 1024} KiB are free on its disk: make room for {NEEDED_BYTES // 1024})"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate SQLite's errors: temporary, or a damaged or foreign file."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StoreUnavailable("an open database", error, self._path) from error
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise StoreBusy(
                    "the write lock in time",
                    f"{error} (`fuser -v` on the file shows which process holds it)",
                    self._path,
                ) from error
            # SQLITE_ERROR is a statement that does not fit the tables: ours always do.
            generic = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR
            if isinstance(error, sqlite3.OperationalError) and not generic:
                raise StoreUnavailable(
                    "a writable database", f"{error}{self._advice()}", self._path
                ) from error
            raise CorruptStore("a metadata store", error, self._path) from error


def _create_private(path: str) -> None:
    """Make the file before SQLite does, which would obey the umask alone.

    Only a file that does not exist is opened: to close one drops this process's locks on it.
    """
    with suppress(OSError):  # SQLite says what is wrong with the place
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _FILE_MODE))


def _make_private(path: Path) -> None:
    with suppress(OSError):  # another user's file, which this one may only write to
        path.chmod(_FILE_MODE)
