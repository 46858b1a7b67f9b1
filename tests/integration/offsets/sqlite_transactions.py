"""Exactly once in SQLite, as a plain program that `test_sqlite.py` runs.

It needs nothing but the standard library and prints `ok` when everything held.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.offsets import (
    NotInTransaction,
    OffsetError,
    OffsetKey,
    OffsetStoreError,
    SyncSqliteOffsetStore,
)

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = OffsetKey("group", "orders")
STORE = SyncSqliteOffsetStore()


def modes() -> list[dict[str, object]]:
    """All the ways to make a connection; `autocommit` came with 3.12."""
    legacy: list[dict[str, object]] = [
        {},
        {"isolation_level": None},
        {"isolation_level": "EXCLUSIVE"},
    ]
    if sys.version_info >= (3, 12):
        legacy += [{"autocommit": False}, {"autocommit": True}]
    return legacy


def opened(path: Path, mode: dict[str, object]) -> sqlite3.Connection:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS parent (id INTEGER PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS business (value INTEGER, parent INTEGER "
            "REFERENCES parent DEFERRABLE INITIALLY DEFERRED)"
        )
        STORE.create_table(connection)
    connection.close()
    made = sqlite3.connect(path, **mode)  # type: ignore[call-overload]  # keywords by version
    if mode.get("autocommit") is False:
        made.rollback()  # the pragma does nothing inside a transaction
        made.autocommit = True
        made.execute("PRAGMA foreign_keys = ON")
        made.autocommit = False
    else:
        made.execute("PRAGMA foreign_keys = ON")
    return made  # type: ignore[no-any-return]  # a connection, whatever the keywords


def state(path: Path) -> tuple[int, int | None]:
    """Rows and position as another process sees them."""
    connection = sqlite3.connect(path)
    try:
        [[rows]] = connection.execute("SELECT count(*) FROM business")
        return rows, STORE.bind(connection).load(KEY)
    finally:
        connection.close()


def told(kind: type[Exception], call: Callable[[], object]) -> str:
    """What the error says that a call has to raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def check(path: Path, mode: dict[str, object]) -> None:
    connection = opened(path, mode)
    with STORE.transaction(connection) as offsets:
        connection.execute("INSERT INTO business VALUES (1, NULL)")
        offsets.save(KEY, 1, expected=None)
    assert state(path) == (1, 1), "the first transaction is committed"

    # The hole of 3.12: after the first commit, statements committed one by one.
    try:
        with STORE.transaction(connection) as offsets:
            connection.execute("INSERT INTO business VALUES (2, NULL)")
            assert state(path) == (1, 1), "a row is visible before its position"
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert state(path) == (1, 1), "a row without its position"

    # A commit that fails is rolled back, and the connection can be used again.
    try:
        with STORE.transaction(connection) as offsets:
            connection.execute("INSERT INTO business VALUES (3, 99)")
            offsets.save(KEY, 2, expected=1)
    except sqlite3.IntegrityError:
        pass
    else:
        raise AssertionError("the foreign key was not checked")
    assert state(path) == (1, 1)
    with STORE.transaction(connection) as offsets:
        connection.execute("INSERT INTO business VALUES (4, NULL)")
        offsets.save(KEY, 2, expected=1)
    assert state(path) == (2, 2), "the connection works on after a failed commit"

    # Whoever rolls back in the block has lost its rows: no position may be saved in their place.
    # With autocommit=True these two do nothing.
    both = () if mode.get("autocommit") is True else (connection.rollback, connection.commit)
    for ends in both:
        try:
            with STORE.transaction(connection) as offsets:
                ends()
                save = partial(offsets.save, KEY, 3)
                assert "has ended" in told(NotInTransaction, save)
                assert "has ended" in told(NotInTransaction, partial(save, expected=2))
        except (NotInTransaction, sqlite3.OperationalError):
            pass
        else:
            raise AssertionError("the block ended as if all were committed")
        assert state(path) == (2, 2), "a position without its row"

    if mode.get("autocommit") is False:
        connection.execute("COMMIT")
        bound = STORE.bind(connection)
        assert "connection.commit()" in told(NotInTransaction, lambda: bound.save(KEY, 3))
        assert "connection.commit()" in told(NotInTransaction, lambda: bound.delete(KEY))
    connection.close()


def check_fork(path: Path) -> None:
    store = SyncSqliteOffsetStore(path)
    store.save(KEY, 5)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            store.save(KEY, 6)
        except OffsetError as error:
            status = 0 if "fork" in str(error) else 2
        store.close()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert store.save(KEY, 7).previous == 5
    store.close()


def check_errors(directory: Path) -> None:
    store = SyncSqliteOffsetStore(directory / "nowhere" / "x.db")
    assert "unable to open" in told(OffsetStoreError, lambda: store.load(KEY))
    connection = sqlite3.connect(directory / "empty.db")
    assert "create_table" in told(OffsetStoreError, lambda: STORE.bind(connection).load(KEY))
    connection.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for number, mode in enumerate(modes()):
            check(Path(name) / f"{number}.db", mode)
        check_fork(Path(name) / "fork.db")
        check_errors(Path(name))
    print("ok")


if __name__ == "__main__":
    main()
