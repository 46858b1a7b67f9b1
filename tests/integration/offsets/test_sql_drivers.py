"""Positions in transactions of aiosqlite and asyncpg: T74 and T75 of the specification."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import aiosqlite
import asyncpg
import pytest

from ottla.offsets import (
    CollectingCommitHook,
    HookedOffsetStore,
    NotInTransaction,
    OffsetConflict,
    OffsetError,
    OffsetKey,
    PostgresOffsetStore,
    SqliteOffsetStore,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = OffsetKey("group", "orders", 2**64 - 1)
BIG = 2**128 - 1
_numbers = itertools.count()


class Database:
    """A connection with the tables of one test, and what the two drivers do differently."""

    def __init__(self, connection: Any, store: SqliteOffsetStore | PostgresOffsetStore) -> None:
        self.connection = connection
        self.store: Any = store  # each of the two takes the connections of its own drivers
        self.business = f"driver_business_{next(_numbers)}"

    async def begin(self) -> None:
        await self.connection.execute("BEGIN")

    async def insert(self) -> None:
        await self.connection.execute(f"INSERT INTO {self.business} VALUES (1)")

    async def end(self, how: str) -> None:
        await self.connection.execute(how)

    async def state(self) -> tuple[int, int | None]:
        """How many business rows, and the position."""
        query = f"SELECT count(*) FROM {self.business}"
        if hasattr(self.connection, "fetchval"):
            rows = await self.connection.fetchval(query)
        else:
            [[rows]] = await self.connection.execute_fetchall(query)
        return rows, await self.store.bind(self.connection).load(KEY)


@contextlib.asynccontextmanager
async def aiosqlite_database(path: Path, request: object) -> AsyncIterator[Database]:
    async with aiosqlite.connect(path / "business.db", isolation_level=None) as connection:
        yield Database(connection, SqliteOffsetStore())


@contextlib.asynccontextmanager
async def asyncpg_database(path: object, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    server = request.getfixturevalue("postgres_server")
    connection = await asyncpg.connect(server.url)
    try:
        table = f"driver_offsets_{next(_numbers)}"
        yield Database(connection, PostgresOffsetStore(table=table))
    finally:
        await connection.close()


DATABASES = {"aiosqlite": aiosqlite_database, "asyncpg": asyncpg_database}


@contextlib.asynccontextmanager
async def opened(
    driver: str, path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Database]:
    async with DATABASES[driver](path, request) as database:
        await database.store.create_table(database.connection)
        await database.connection.execute(f"CREATE TABLE {database.business} (value int)")
        yield database


@pytest.mark.parametrize("driver", DATABASES)
async def test_t74_data_and_position_live_and_die_together(
    tmp_path: Path, request: pytest.FixtureRequest, driver: str
) -> None:
    async with opened(driver, tmp_path, request) as database:
        bound = database.store.bind(database.connection)
        for how, expected in (("ROLLBACK", (0, None)), ("COMMIT", (1, 5))):
            await database.begin()
            await database.insert()
            info = await bound.save(KEY, 5, expected=None)
            assert (info.previous, info.changed) == (None, True)
            await database.end(how)
            assert await database.state() == expected
        await database.begin()
        assert (await bound.save(KEY, BIG, expected=5)).previous == 5
        other = OffsetKey("group", "other")
        infos = await bound.save_many({KEY: BIG, other: 0}, epoch="life-1")
        assert [info.previous for info in infos] == [BIG, None]
        assert await bound.delete(other) is True
        assert await bound.delete(other) is False
        await database.end("COMMIT")
        assert await database.state() == (1, BIG)


@pytest.mark.parametrize("driver", DATABASES)
async def test_t74_outside_a_transaction_a_save_is_refused(
    tmp_path: Path, request: pytest.FixtureRequest, driver: str
) -> None:
    async with opened(driver, tmp_path, request) as database:
        bound = database.store.bind(database.connection)
        for name, arguments in (("save", (KEY, 1)), ("save_many", ({KEY: 1},)), ("delete", (KEY,))):
            with pytest.raises(NotInTransaction):
                await getattr(bound, name)(*arguments)
        assert await bound.load(KEY) is None


async def test_after_a_rollback_in_its_block_aiosqlite_saves_nothing(tmp_path: Path) -> None:
    store = SqliteOffsetStore()
    async with aiosqlite.connect(tmp_path / "business.db") as connection:
        await store.create_table(connection)
        with pytest.raises(NotInTransaction, match="has ended"):  # noqa: PT012 - the block sees it
            async with store.transaction(connection) as bound:
                await bound.save(KEY, 1)
                await connection.rollback()
                await bound.save(KEY, 2)
        assert await store.bind(connection).load(KEY) is None


async def test_an_error_in_sql_that_was_caught_leaves_the_block_as_an_error(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened("asyncpg", tmp_path, request) as database:
        with pytest.raises(OffsetError, match="rolled all of it back"):  # noqa: PT012 - at its end
            async with database.store.transaction(database.connection) as bound:
                await bound.save(KEY, 1)
                with contextlib.suppress(asyncpg.PostgresError):
                    await database.connection.execute("SELECT 1 / 0")
        assert await database.state() == (0, None)


@pytest.mark.parametrize("driver", DATABASES)
async def test_t74_a_zombie_gets_a_conflict_and_its_data_go_too(
    tmp_path: Path, request: pytest.FixtureRequest, driver: str
) -> None:
    hook = CollectingCommitHook()
    async with opened(driver, tmp_path, request) as database:
        store: Any = HookedOffsetStore(database.store, hook)

        async def work(position: int, expected: int | None) -> None:
            async with store.transaction(database.connection) as transaction:
                await database.insert()
                await transaction.save(KEY, position, expected=expected)

        await work(5, None)
        with pytest.raises(OffsetConflict):
            await work(6, 4)
        assert await database.state() == (1, 5)
        await work(6, 5)
        assert await database.state() == (2, 6)
        # T75: only what was committed is told.
        assert [info.position for info in hook.commits()] == [5, 6]
        await database.begin()
        with pytest.raises(OffsetError, match="already"):
            await work(7, 6)
        await database.end("ROLLBACK")


async def test_t74_asyncpg_tells_of_a_serialization_failure_as_a_conflict(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened("asyncpg", tmp_path, request) as database:
        second = await asyncpg.connect(request.getfixturevalue("postgres_server").url)
        try:
            async with database.store.transaction(database.connection) as transaction:
                await transaction.save(KEY, 1)
            late = second.transaction(isolation="repeatable_read")
            await late.start()
            bound = database.store.bind(second)
            assert await bound.load(KEY) == 1
            async with database.store.transaction(database.connection) as transaction:
                await transaction.save(KEY, 2, expected=1)
                waiting = asyncio.create_task(bound.save(KEY, 3, expected=1))
                await asyncio.wait([waiting], timeout=0.1)
                assert not waiting.done(), "the second writer has to wait"
            with pytest.raises(OffsetConflict):
                await waiting
            await late.rollback()
            assert await database.state() == (0, 2)
        finally:
            await second.close()
