"""Positions in the caller's transaction: T74, T75 and T78 of the specification."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row

from ottla.offsets import (
    CollectingCommitHook,
    HookedOffsetStore,
    MemoryOffsetStore,
    NotInTransaction,
    OffsetConflict,
    OffsetError,
    OffsetKey,
    OffsetRegression,
    OffsetStoreError,
    PostgresOffsetStore,
    SqliteOffsetStore,
    SyncHookedOffsetStore,
    SyncPostgresOffsetStore,
    SyncSqliteOffsetStore,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services import PostgresServer

KEY = OffsetKey("group", "orders")
_numbers = itertools.count()


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection as `sqlite3.connect` makes it, with the tables."""
    connection = sqlite3.connect(tmp_path / "business.db")
    SyncSqliteOffsetStore().create_table(connection)
    connection.execute("CREATE TABLE business (value INTEGER)")
    yield connection
    connection.close()


class Postgres:
    """Tables of one test."""

    def __init__(self, url: str) -> None:
        number = next(_numbers)
        self.url = url
        self.business = f"business_{number}"
        self.store = PostgresOffsetStore(table=f"sql_offsets_{number}")
        with psycopg.connect(url) as connection:
            self.store.create_table(connection)
            connection.execute(f"CREATE TABLE {self.business} (value int)".encode())

    def insert(self, value: int) -> bytes:
        return f"INSERT INTO {self.business} VALUES ({value})".encode()

    def state(self) -> tuple[int, int | None]:
        """How many business rows, and the position."""
        with psycopg.connect(self.url) as connection:
            [[rows]] = connection.execute(f"SELECT count(*) FROM {self.business}".encode())
            return rows, self.store.bind(connection).load(KEY)


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Postgres:
    return Postgres(postgres_server.url)


def lite_state(connection: sqlite3.Connection) -> tuple[int, int | None]:
    [[rows]] = connection.execute("SELECT count(*) FROM business")
    return rows, SyncSqliteOffsetStore().bind(connection).load(KEY)


def test_t74_sqlite_data_and_position_live_and_die_together(lite: sqlite3.Connection) -> None:
    bound = SqliteOffsetStore().bind(lite)
    lite.execute("INSERT INTO business VALUES (1)")
    bound.save(KEY, 1, expected=None)
    lite.rollback()
    assert lite_state(lite) == (0, None)
    bound.save(KEY, 1, expected=None)  # the save may come first: it opens the transaction
    lite.execute("INSERT INTO business VALUES (1)")
    lite.commit()
    assert lite_state(lite) == (1, 1)
    assert bound.delete(KEY) is True
    lite.rollback()
    assert lite_state(lite) == (1, 1)


def test_t74_postgres_data_and_position_live_and_die_together(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url, row_factory=dict_row) as connection:
        bound = postgres.store.bind(connection)
        connection.execute(postgres.insert(1))
        bound.save(KEY, 1, expected=None)
        connection.rollback()
        assert postgres.state() == (0, None)
        bound.save(KEY, 1, expected=None)
        connection.execute(postgres.insert(1))
        connection.commit()
        assert postgres.state() == (1, 1)


async def test_t74_postgres_with_an_asynchronous_connection(postgres: Postgres) -> None:
    async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
        await postgres.store.create_table(connection)
        bound = postgres.store.bind(connection)
        await connection.execute(postgres.insert(1))
        await bound.save(KEY, 1)
        await connection.rollback()
        assert postgres.state() == (0, None)
        other = OffsetKey("group", "other")
        await connection.execute(postgres.insert(1))
        infos = await bound.save_many({KEY: 2, other: 3})
        assert [info.previous for info in infos] == [None, None]
        assert await bound.delete(other) is True
        await connection.commit()
        assert postgres.state() == (1, 2)
        assert await bound.load(KEY) == 2


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_after_the_end_of_its_transaction_a_block_saves_nothing(
    lite: sqlite3.Connection, how: str
) -> None:
    store = SyncSqliteOffsetStore()
    with (  # noqa: PT012 - the block sees the error
        pytest.raises(NotInTransaction, match="has ended"),
        store.transaction(lite) as bound,
    ):
        lite.execute("INSERT INTO business VALUES (1)")
        getattr(lite, how)()
        bound.save(KEY, 1)
    assert lite_state(lite) == (int(how == "commit"), None)
    with store.transaction(lite) as bound:
        bound.save(KEY, 2)
    with pytest.raises(NotInTransaction, match="before the block ends"):
        bound.save(KEY, 3)
    assert not lite.in_transaction


def test_an_error_in_sql_that_was_caught_leaves_the_block_as_an_error(postgres: Postgres) -> None:
    hook = CollectingCommitHook()
    store = HookedOffsetStore(postgres.store, hook)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        with (  # noqa: PT012 - the end of the block raises
            pytest.raises(OffsetError, match="rolled all of it back"),
            store.transaction(connection) as bound,
        ):
            connection.execute(postgres.insert(1))
            bound.save(KEY, 1)
            with contextlib.suppress(psycopg.Error):
                connection.execute(b"SELECT 1 / 0")
        assert (postgres.state(), list(hook.commits())) == ((0, None), [])
        with store.transaction(connection) as bound:  # a savepoint keeps the rest
            connection.execute(postgres.insert(1))
            bound.save(KEY, 1)
            with contextlib.suppress(psycopg.Error), connection.transaction():
                connection.execute(b"SELECT 1 / 0")
    assert postgres.state() == (1, 1)


async def test_the_same_on_an_asynchronous_connection(postgres: Postgres) -> None:
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as connection:
        with pytest.raises(OffsetError, match="rolled all of it back"):  # noqa: PT012 - as above
            async with postgres.store.transaction(connection) as bound:
                await bound.save(KEY, 1)
                with contextlib.suppress(psycopg.Error):
                    await connection.execute(b"SELECT 1 / 0")
    assert postgres.state() == (0, None)


def test_t74_sqlite_that_commits_by_itself_is_refused(lite: sqlite3.Connection) -> None:
    lite.isolation_level = None
    bound = SyncSqliteOffsetStore().bind(lite)
    for operation in (
        lambda: bound.save(KEY, 1),
        lambda: bound.save_many({KEY: 1}),
        lambda: bound.delete(KEY),
    ):
        with pytest.raises(NotInTransaction, match="BEGIN"):
            operation()
    assert bound.load(KEY) is None
    lite.execute("BEGIN")
    bound.save(KEY, 1)
    lite.execute("COMMIT")
    assert bound.load(KEY) == 1


async def test_t74_postgres_that_commits_by_itself_is_refused(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        bound = postgres.store.bind(connection)
        with pytest.raises(NotInTransaction):
            bound.save(KEY, 1)
        with connection.transaction():
            bound.save(KEY, 1)
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as again:
        with pytest.raises(NotInTransaction):
            await postgres.store.bind(again).save(KEY, 2)
    assert postgres.state() == (0, 1)


def test_t74_a_zombie_gets_a_conflict_and_its_data_go_too(lite: sqlite3.Connection) -> None:
    store = SyncSqliteOffsetStore()
    with store.transaction(lite) as owner:
        owner.save(KEY, 5, expected=None)

    def work_as_zombie() -> None:
        with store.transaction(lite) as zombie:
            lite.execute("INSERT INTO business VALUES (1)")
            zombie.save(KEY, 6, expected=4)

    with pytest.raises(OffsetConflict):
        work_as_zombie()
    assert lite_state(lite) == (0, 5)


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("stored", [False, True])
def test_t74_of_two_writers_the_second_waits_and_gets_a_conflict(
    postgres: Postgres, isolation: str, stored: bool
) -> None:
    """Without a row they meet at the insert, with one at the lock of the row."""
    expected = None
    if stored:
        with psycopg.connect(postgres.url) as connection:
            postgres.store.bind(connection).save(KEY, 1)
        expected = 1
    outcome: list[object] = []

    def second() -> None:
        with contextlib.closing(psycopg.connect(postgres.url)) as connection:
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}".encode())
            bound = postgres.store.bind(connection)
            outcome.append(bound.load(KEY))  # what it sees is fixed now, but in READ COMMITTED
            ready.set()
            try:
                bound.save(KEY, 3, expected=expected)
            except OffsetConflict as conflict:
                outcome.append(conflict)

    ready = threading.Event()
    with psycopg.connect(postgres.url) as first:
        postgres.store.bind(first).save(KEY, 2, expected=expected)
        thread = threading.Thread(target=second)
        thread.start()
        ready.wait(10)
        thread.join(0.1)
        assert thread.is_alive(), "the second writer has to wait"
        first.commit()
    thread.join()
    assert outcome[0] == expected
    assert isinstance(outcome[1], OffsetConflict)
    assert postgres.state() == (0, 2)


def test_without_an_expectation_the_second_writer_goes_on_from_what_it_finds(
    postgres: Postgres,
) -> None:
    infos = []

    def second() -> None:
        with psycopg.connect(postgres.url) as connection:
            infos.append(postgres.store.bind(connection).save(KEY, 3))
            infos.extend(postgres.store.bind(connection).save_many({KEY: 4}))

    with psycopg.connect(postgres.url) as first:
        postgres.store.bind(first).save(KEY, 2)
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        first.commit()
    thread.join()
    assert [(info.previous, info.position) for info in infos] == [(2, 3), (3, 4)]


def test_t75_a_bound_save_begins_and_ends_nothing(lite: sqlite3.Connection) -> None:
    lite.isolation_level = None
    lite.execute("BEGIN")
    statements: list[str] = []
    lite.set_trace_callback(statements.append)
    bound = SyncSqliteOffsetStore().bind(lite)
    bound.save(KEY, 1, expected=None)
    bound.save_many({KEY: 2, OffsetKey("group", "b"): 1})
    bound.delete(KEY)
    bound.committed()
    lite.set_trace_callback(None)
    assert {statement.split()[0] for statement in statements} == {
        "SELECT",
        "INSERT",
        "UPDATE",
        "DELETE",
    }


def test_t75_the_same_in_postgres(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    real = psycopg.Cursor.execute

    def traced(cursor: Any, query: bytes, *args: Any, **kwargs: Any) -> Any:
        statements.append(query.split()[0].decode())
        return real(cursor, query, *args, **kwargs)

    with psycopg.connect(postgres.url) as connection, connection.transaction():
        monkeypatch.setattr(psycopg.Cursor, "execute", traced)
        bound = postgres.store.bind(connection)
        bound.save(KEY, 1, expected=None)
        bound.save(KEY, 2)
        bound.delete(KEY)
    assert set(statements) == {"SELECT", "INSERT", "UPDATE", "DELETE"}


def test_t75_hooks_wait_for_committed(lite: sqlite3.Connection) -> None:
    hook = CollectingCommitHook()
    bound = SyncHookedOffsetStore(SyncSqliteOffsetStore(), hook).bind(lite)
    bound.save(KEY, 1)
    bound.save(KEY, 1)
    assert hook.commits() == []
    lite.commit()
    bound.committed()
    assert [info.position for info in hook.commits()] == [1]
    bound.save(KEY, 2)
    lite.rollback()
    bound.rolled_back()
    assert bound.committed() == []
    assert len(hook.commits()) == 1


def test_t75_a_transaction_tells_the_hooks_after_its_commit(
    lite: sqlite3.Connection, postgres: Postgres
) -> None:
    hook = CollectingCommitHook()
    with HookedOffsetStore(SqliteOffsetStore(), hook).transaction(lite) as transaction:
        transaction.save(KEY, 1)
        assert hook.commits() == []
    store = SyncHookedOffsetStore(postgres.store.sync, hook)
    with psycopg.connect(postgres.url) as connection, store.transaction(connection) as tx:
        tx.save(KEY, 2)
        assert len(hook.commits()) == 1
    assert [info.position for info in hook.commits()] == [1, 2]


async def test_t75_also_on_an_asynchronous_connection(postgres: Postgres) -> None:
    hook = CollectingCommitHook()
    store = HookedOffsetStore(postgres.store, hook)

    async def fail_in_transaction(connection: psycopg.AsyncConnection[Any]) -> None:
        async with store.transaction(connection) as transaction:
            await transaction.save(KEY, 1)
            raise RuntimeError("business failed")

    async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
        with pytest.raises(RuntimeError, match="business failed"):
            await fail_in_transaction(connection)
        assert (hook.commits(), postgres.state()) == ([], (0, None))
        async with store.transaction(connection) as transaction:
            await transaction.save(KEY, 2)
    assert [info.position for info in hook.commits()] == [2]
    assert postgres.state() == (0, 2)


def test_a_transaction_within_a_transaction_is_refused(
    lite: sqlite3.Connection, postgres: Postgres
) -> None:
    """Its end would be no commit, so hooks would be told of what may yet be rolled back."""
    lite.execute("INSERT INTO business VALUES (1)")
    with (
        pytest.raises(OffsetError, match="already"),
        SyncSqliteOffsetStore().transaction(lite),
    ):
        pass
    with psycopg.connect(postgres.url) as connection:
        connection.execute("SELECT 1")
        with pytest.raises(OffsetError, match="already"):
            postgres.store.transaction(connection)


def test_a_store_without_a_database_says_so(lite: sqlite3.Connection) -> None:
    for store in (SyncSqliteOffsetStore(), SyncPostgresOffsetStore()):
        with pytest.raises(OffsetError, match="no database of its own"):
            store.load(KEY)
    with pytest.raises(OffsetError, match="SqliteOffsetStore"):
        HookedOffsetStore(MemoryOffsetStore()).bind(lite)
    with pytest.raises(ValueError, match="valid table name"):
        SyncSqliteOffsetStore(table="x; DROP TABLE business")


def test_a_refused_position_leaves_the_transaction_usable(lite: sqlite3.Connection) -> None:
    lite.row_factory = lambda _cursor, row: {"row": row}
    with SyncSqliteOffsetStore().transaction(lite) as transaction:
        transaction.save(KEY, 5)
        with pytest.raises(OffsetRegression):
            transaction.save(KEY, 4)
        transaction.save(KEY, 6)
    assert SyncSqliteOffsetStore().bind(lite).load(KEY) == 6


def test_a_dropped_connection_is_replaced(postgres: Postgres) -> None:
    url = f"{postgres.url}&application_name=dropped"
    store = SyncPostgresOffsetStore(url, table=f"{postgres.business}_offsets")
    store.save(KEY, 1)
    with psycopg.connect(postgres.url) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'dropped'"
        )
    with pytest.raises(OffsetStoreError):
        store.load(KEY)
    assert store.load(KEY) == 1
    store.close()


def test_t78_hand_over_from_one_worker_to_the_next(tmp_path: Path) -> None:
    """The group's position goes on with its next owner; the old one is stopped by its save."""
    first = SyncSqliteOffsetStore(tmp_path / "offsets.db")
    second = SyncSqliteOffsetStore(tmp_path / "offsets.db")
    first.save(KEY, 10, expected=None)
    loaded = second.load(KEY)
    assert loaded == 10
    second.save(KEY, 12, expected=loaded)
    with pytest.raises(OffsetConflict, match="stop this one"):
        first.save(KEY, 11, expected=10)
    assert second.load(KEY) == 12
    first.close()
    second.close()
