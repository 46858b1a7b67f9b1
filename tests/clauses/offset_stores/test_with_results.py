"""Exactly once: the offset in one transaction with the results

The document names this as the purpose of offsets that a client keeps, and leaves it to programs.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from ottla.offsets import (
    CollectingCommitHook,
    NotInTransaction,
    OffsetConflict,
    OffsetKey,
    SyncHookedOffsetStore,
    SyncPostgresOffsetStore,
    SyncSqliteOffsetStore,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.services import PostgresServer

KEY: Final = OffsetKey("billing", "orders")


class Bench:
    """A database with results and offsets, and a store for the latter."""

    def __init__(self, store: Any, connection: Any) -> None:
        self.store = store
        self.connection = connection
        connection.execute("CREATE TABLE totals (kilos INTEGER)")
        store.create_table(connection)
        connection.commit()

    def stored(self) -> tuple[list[int], int | None]:
        """The results and the offset, as they are for others."""
        with self.store.transaction(self.connection) as transaction:
            rows = self.connection.execute("SELECT kilos FROM totals").fetchall()
            return [row[0] for row in rows], transaction.load(KEY)


@pytest.fixture
def sqlite_bench() -> Iterator[Bench]:
    connection = sqlite3.connect(":memory:")
    yield Bench(SyncSqliteOffsetStore(), connection)
    connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_bench")
        return
    import psycopg

    server: PostgresServer = request.getfixturevalue("postgres_server")
    with psycopg.connect(server.url) as connection:
        schema = f"clauses_{abs(hash(request.node.name))}"
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"SET search_path TO {schema}")
        connection.commit()
        yield Bench(SyncPostgresOffsetStore(), connection)
        connection.rollback()
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


def test_results_and_offset_are_committed_together(bench: Bench) -> None:
    """The offset is stored with business data atomically: a commit stores both."""
    with bench.store.transaction(bench.connection) as transaction:
        bench.connection.execute("INSERT INTO totals VALUES (30)")
        transaction.save(KEY, 3)
    assert bench.stored() == ([30], 3)


def test_a_rollback_undoes_results_and_offset(bench: Bench) -> None:
    """A failure leaves neither the data nor the offset."""
    with suppress(ZeroDivisionError), bench.store.transaction(bench.connection) as transaction:
        bench.connection.execute("INSERT INTO totals VALUES (30)")
        transaction.save(KEY, 3)
        raise ZeroDivisionError
    assert bench.stored() == ([], None)


def test_a_message_that_comes_again_is_counted_once(bench: Bench) -> None:
    """Exactly-once: a worker that repeats its work finds that it is done."""

    def work() -> None:
        with bench.store.transaction(bench.connection) as transaction:
            transaction.save(KEY, 1, expected=None)
            bench.connection.execute("INSERT INTO totals VALUES (30)")

    work()
    with pytest.raises(OffsetConflict):
        work()
    assert bench.stored() == ([30], 1)


def test_the_store_leaves_the_transaction_to_the_caller(bench: Bench) -> None:
    """The offset belongs to the transaction of the data: saving it commits nothing."""
    bound = bench.store.bind(bench.connection)
    bench.connection.execute("INSERT INTO totals VALUES (30)")
    bound.save(KEY, 3)
    bench.connection.rollback()
    assert bench.stored() == ([], None)


def test_without_a_transaction_a_save_is_refused() -> None:
    """An offset outside of the transaction would not be atomic: it is refused."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    store = SyncSqliteOffsetStore()
    store.create_table(connection)
    with pytest.raises(NotInTransaction):
        store.bind(connection).save(KEY, 1)
    connection.close()


def test_hooks_wait_for_the_commit(sqlite_bench: Bench) -> None:
    """Hooks run after a commit: that of the transaction, and not at all if it is rolled back."""
    hook = CollectingCommitHook()
    hooked = SyncHookedOffsetStore(sqlite_bench.store, hook)
    with suppress(ZeroDivisionError), hooked.transaction(sqlite_bench.connection) as transaction:
        transaction.save(KEY, 1)
        raise ZeroDivisionError
    assert hook.commits() == []
    with hooked.transaction(sqlite_bench.connection) as transaction:
        transaction.save(KEY, 2)
        assert hook.commits() == []
    assert [one.position for one in hook.commits()] == [2]
