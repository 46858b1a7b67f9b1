"""Positions in PostgreSQL, in the same transaction as the business data. Needs `ottla[postgres]`.

Connections are psycopg's, blocking or asynchronous. A second writer of a key waits for the first
one's commit, and then sees its position (READ COMMITTED) or is told of the conflict by the server
(REPEATABLE READ and above); both end in `OffsetConflict` where `expected` says so.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, overload

from ottla.offsets import sql
from ottla.offsets.bound import AsyncBoundOffsets, BoundOffsets, adrive, drive
from ottla.offsets.errors import NotInTransaction, OffsetError
from ottla.offsets.sql import DEFAULT_TABLE, LostRace, PostgresDialect
from ottla.offsets.sqlstore import SyncSqlOffsetStore
from ottla.offsets.threaded import ThreadedOffsetStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import TypeAlias

    import psycopg

    from ottla.offsets.hooks import HookRunner
    from ottla.offsets.sql import Row, Statement

    Connection: TypeAlias = psycopg.Connection[Any]
    AsyncConnection: TypeAlias = psycopg.AsyncConnection[Any]


class SyncPostgresOffsetStore(SyncSqlOffsetStore):
    """Positions in a table of PostgreSQL."""

    def __init__(self, conninfo: str | None = None, *, table: str = DEFAULT_TABLE) -> None:
        """`conninfo` is for operations outside a caller's transaction; its table is created."""
        super().__init__(PostgresDialect(table))
        self._conninfo = conninfo
        self._connection: Connection | None = None

    @overload
    def create_table(self, connection: Connection) -> None: ...
    @overload
    def create_table(self, connection: AsyncConnection) -> Awaitable[None]: ...
    def create_table(self, connection: Connection | AsyncConnection) -> Awaitable[None] | None:
        """Create the table on the caller's connection, unless it is there."""
        import psycopg

        steps = sql.create_table(self._dialect)
        if isinstance(connection, psycopg.AsyncConnection):
            return adrive(steps, _async_executor(connection))
        return drive(steps, _executor(connection))

    @overload
    def bind(self, connection: Connection, *, hooks: HookRunner | None = None) -> BoundOffsets: ...
    @overload
    def bind(
        self, connection: AsyncConnection, *, hooks: HookRunner | None = None
    ) -> AsyncBoundOffsets: ...
    def bind(
        self, connection: Connection | AsyncConnection, *, hooks: HookRunner | None = None
    ) -> BoundOffsets | AsyncBoundOffsets:
        """The operations on the caller's connection, in its transaction."""
        import psycopg

        if isinstance(connection, psycopg.AsyncConnection):
            return AsyncBoundOffsets(self._dialect, _async_executor(connection), hooks)
        return BoundOffsets(self._dialect, _executor(connection), hooks)

    @overload
    def transaction(
        self, connection: Connection, *, hooks: HookRunner | None = None
    ) -> AbstractContextManager[BoundOffsets]: ...
    @overload
    def transaction(
        self, connection: AsyncConnection, *, hooks: HookRunner | None = None
    ) -> AbstractAsyncContextManager[AsyncBoundOffsets]: ...
    def transaction(
        self, connection: Connection | AsyncConnection, *, hooks: HookRunner | None = None
    ) -> AbstractContextManager[BoundOffsets] | AbstractAsyncContextManager[AsyncBoundOffsets]:
        """Begin; commit at the end and tell the hooks, or roll back if anything is raised."""
        import psycopg

        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            # psycopg would make a savepoint of it, and the end of that is no commit.
            raise OffsetError(
                "this connection is in a transaction already: commit it first, or use bind in it"
            )
        if isinstance(connection, psycopg.AsyncConnection):
            return self._async_transaction(connection, hooks)
        return self._transaction(connection, hooks)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _transaction(
        self, connection: Connection, hooks: HookRunner | None
    ) -> Iterator[BoundOffsets]:
        bound = self.bind(connection, hooks=hooks)
        with connection.transaction():
            yield bound
        bound.committed()

    @contextlib.asynccontextmanager
    async def _async_transaction(
        self, connection: AsyncConnection, hooks: HookRunner | None
    ) -> AsyncIterator[AsyncBoundOffsets]:
        bound = self.bind(connection, hooks=hooks)
        async with connection.transaction():
            yield bound
        await bound.committed()

    @contextlib.contextmanager
    def _own_transaction(self) -> Iterator[Callable[[Statement], Sequence[Row]]]:
        connection = self._own_connection()
        with connection.transaction():
            yield _executor(connection)

    def _own_executor(self) -> Callable[[Statement], Sequence[Row]]:
        return _executor(self._own_connection())

    def _own_connection(self) -> Connection:
        import psycopg

        if self._conninfo is None:
            raise OffsetError(
                "this store has no database of its own: use bind or transaction with a "
                "connection, or name the database when you make the store"
            )
        # A connection the server has dropped is replaced, not mourned.
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._conninfo, autocommit=True)
            # Of two that create it at once, the slower one is told that the name is taken.
            with (
                contextlib.suppress(psycopg.errors.UniqueViolation),
                self._connection.transaction(),
            ):
                self.create_table(self._connection)
        return self._connection


class PostgresOffsetStore(ThreadedOffsetStore[SyncPostgresOffsetStore]):
    """Positions in a table of PostgreSQL, for asyncio.

    `bind`, `transaction` and `create_table` take psycopg connections of both kinds; what they give
    is asynchronous if the connection is.
    """

    def __init__(self, conninfo: str | None = None, *, table: str = DEFAULT_TABLE) -> None:
        super().__init__(SyncPostgresOffsetStore(conninfo, table=table))
        self.create_table = self.sync.create_table
        self.bind = self.sync.bind
        self.transaction = self.sync.transaction


def _executor(connection: Connection) -> Callable[[Statement], Sequence[Row]]:
    import psycopg
    from psycopg.rows import tuple_row

    def execute(statement: Statement) -> Sequence[Row]:
        _check_transaction(connection, statement)
        with connection.cursor(row_factory=tuple_row) as cursor:
            try:
                cursor.execute(statement.text.encode(), statement.values)
            except psycopg.errors.SerializationFailure as error:
                raise LostRace from error
            return cursor.fetchall() if cursor.description else ()

    return execute


def _async_executor(
    connection: AsyncConnection,
) -> Callable[[Statement], Awaitable[Sequence[Row]]]:
    import psycopg
    from psycopg.rows import tuple_row

    async def execute(statement: Statement) -> Sequence[Row]:
        _check_transaction(connection, statement)
        async with connection.cursor(row_factory=tuple_row) as cursor:
            try:
                await cursor.execute(statement.text.encode(), statement.values)
            except psycopg.errors.SerializationFailure as error:
                raise LostRace from error
            return await cursor.fetchall() if cursor.description else ()

    return execute


def _check_transaction(connection: Connection | AsyncConnection, statement: Statement) -> None:
    """Is a transaction open, or will this connection open one before it writes?"""
    from psycopg.pq import TransactionStatus

    idle = connection.info.transaction_status == TransactionStatus.IDLE
    if statement.writes and idle and connection.autocommit:
        raise NotInTransaction(
            "this connection commits every statement by itself: begin a transaction first, "
            "or use store.transaction(connection)"
        )
