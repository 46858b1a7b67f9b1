"""What a driver or the system raises is an `OffsetStoreError`, with the way out and no password."""

from __future__ import annotations

import pickle
import sqlite3
from typing import TYPE_CHECKING

import psycopg
import pytest

from ottla.offsets import (
    OffsetError,
    OffsetKey,
    OffsetStoreError,
    SqliteOffsetStore,
    SyncLockFileOffsetStore,
    SyncPostgresOffsetStore,
    SyncSqliteOffsetStore,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services import PostgresServer

KEY = OffsetKey("group", "orders")


def test_sqlite_without_its_directory(tmp_path: Path) -> None:
    store = SyncSqliteOffsetStore(tmp_path / "nowhere" / "x.db")
    for operation in (lambda: store.load(KEY), lambda: store.save(KEY, 1), store.list_all):
        with pytest.raises(OffsetStoreError, match="its directory must be there") as caught:
            operation()
        assert isinstance(caught.value.__cause__, sqlite3.Error)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    (tmp_path / "nowhere").mkdir()
    assert store.save(KEY, 1).previous is None  # a store that failed works when it can


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.write_bytes(b"no database at all, but more than a header of a hundred bytes" * 5)
    with pytest.raises(OffsetStoreError, match=r"SQLite database .*x\.db: file is not a database"):
        await SqliteOffsetStore(file).load(KEY)


def test_postgresql_that_is_not_there_and_its_password_that_is_not_shown() -> None:
    store = SyncPostgresOffsetStore("postgresql://me:planted-secret@127.0.0.1:1/db")
    with pytest.raises(OffsetStoreError, match=r"me:.*@127\.0\.0\.1:1/db") as caught:
        store.save(KEY, 1)
    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert "planted-secret" not in str(caught.value)


def test_a_directory_that_is_a_file_is_refused_when_the_store_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_text("")
    for path in (file, file / "below"):
        with pytest.raises(OffsetStoreError, match="is a file, name a directory"):
            SyncLockFileOffsetStore(path)
    assert SyncLockFileOffsetStore(tmp_path / "new" / "offsets").list_all() == {}
    assert not (tmp_path / "new").exists()  # looking does not make


def test_a_missing_table_is_told_with_the_way_to_make_it(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    lite = SyncSqliteOffsetStore()
    with (
        sqlite3.connect(tmp_path / "x.db") as connection,
        pytest.raises(OffsetStoreError, match=r"create_table\(connection\)"),
        lite.transaction(connection) as offsets,
    ):
        offsets.save(KEY, 1, expected=0)
    postgres = SyncPostgresOffsetStore(table="never_made")
    with (
        psycopg.connect(postgres_server.url) as server,
        pytest.raises(OffsetStoreError, match=r"create_table\(connection\)"),
    ):
        postgres.bind(server).load(KEY)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_sql_store_does_not_survive_a_fork(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    store: SyncSqliteOffsetStore | SyncPostgresOffsetStore = SyncSqliteOffsetStore(
        tmp_path / "x.db"
    )
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = SyncPostgresOffsetStore(server.url, table="fork_offsets")
    before = store.load(KEY)
    kept = store._connection
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        for operation in (lambda: store.load(KEY), lambda: store.save(KEY, 1), store.list_all):
            with pytest.raises(OffsetError, match="open a new one in the child"):
                operation()
        store.close()
    # The parent's connection is as good as it was.
    store._connection = kept
    assert store.load(KEY) == before
    store.close()


def test_the_lines_of_the_docs_work_with_postgresql(postgres_server: PostgresServer) -> None:
    store = SyncPostgresOffsetStore(table="docs_offsets")
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        store.create_table(connection)
        stored = store.bind(connection).load(KEY)
        with store.transaction(connection) as transaction:
            connection.execute("CREATE TABLE IF NOT EXISTS docs_totals (total int)")
            transaction.save(KEY, 1, expected=stored)
        assert store.bind(connection).load(KEY) == 1
    with psycopg.connect(postgres_server.url) as connection:
        store.bind(connection).load(KEY)
        with pytest.raises(OffsetError, match="connect with autocommit=True"):
            store.transaction(connection)


def test_a_failed_commit_of_a_transaction_in_postgresql_leaves_a_usable_connection(
    postgres_server: PostgresServer,
) -> None:
    store = SyncPostgresOffsetStore(table="deferred_offsets")
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        store.create_table(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS deferred_parent (id int PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS deferred_child (parent int REFERENCES deferred_parent "
            "DEFERRABLE INITIALLY DEFERRED)"
        )

        def violate() -> None:
            with store.transaction(connection) as offsets:
                connection.execute("INSERT INTO deferred_child VALUES (9)")
                offsets.save(KEY, 1)

        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            violate()
        with store.transaction(connection) as offsets:
            assert offsets.save(KEY, 1).previous is None
            offsets.delete(KEY)
