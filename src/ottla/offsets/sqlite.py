"""Positions in SQLite, in the same transaction and the same file as the business data.

The table must be in the database file of the data: in WAL mode a transaction over attached files
is not atomic. Losing the last commit (WAL with synchronous=NORMAL) does no harm, because data and
position are lost together. Connections are `sqlite3`'s, or aiosqlite's, which is not imported here.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, overload

from ottla.offsets import sql
from ottla.offsets.bound import AsyncBoundOffsets, BoundOffsets, adrive, drive
from ottla.offsets.errors import NotInTransaction, OffsetError, OffsetStoreError
from ottla.offsets.rules import goes_on, wall_time
from ottla.offsets.sql import DEFAULT_TABLE, SqliteDialect
from ottla.offsets.sqlstore import SyncSqlOffsetStore
from ottla.offsets.threaded import ThreadedOffsetStore
from ottla.offsets.types import UNSET, CommitInfo, OffsetKey, check_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Self

    from ottla.offsets.hooks import HookRunner
    from ottla.offsets.sql import Row, Statement
    from ottla.offsets.types import Expected

_HAS_AUTOCOMMIT: Final = hasattr(sqlite3.Connection, "autocommit")
_BLOCK: Final = "ottla_offsets_block"
_BLOCK_ENDED: Final = (
    "the transaction of this block has ended: raise an exception in the block to roll it back, "
    "instead of commit or rollback, and save before the block ends"
)
BUSY_SECONDS: Final = 10.0
"""How long the store's own connection waits for another writer."""


class AsyncSqliteConnection(Protocol):
    """The part of aiosqlite's connection that is used here."""

    @property
    def in_transaction(self) -> bool: ...
    @property
    def isolation_level(self) -> str | None: ...
    def execute(self, sql: str, parameters: Any = ..., /) -> Awaitable[Any]: ...


class SqliteBoundOffsets(BoundOffsets):
    """The operations on one connection of `sqlite3`.

    A transaction of few rows takes SQLite some ten microseconds beside its sync, so the usual save
    is made with as little Python as there can be.
    """

    _dialect: SqliteDialect
    _connection: sqlite3.Connection

    def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        connection = self._connection
        if (
            isinstance(expected, int)
            and isinstance(key, OffsetKey)  # type: ignore[redundant-expr]  # who knows
            and goes_on(expected, position, rewind, epoch)
            and connection.in_transaction
        ):
            dialect = self._dialect
            values = dialect.advance_values(key, expected, position)
            try:
                advanced = connection.execute(dialect.advance_text, values).rowcount
            except sqlite3.OperationalError as error:
                _explain(error)
                raise
            if advanced:
                info = CommitInfo(key, position, expected, wall_time(), changed=True)
                self._pending.append(info)
                return info
        return super().save(key, position, expected=expected, rewind=rewind, epoch=epoch)

    def _execute(self, statement: Statement) -> Sequence[Row]:
        _check_transaction(self._connection, statement)
        try:
            return _execute(self._connection, statement)
        except sqlite3.OperationalError as error:
            _explain(error)
            raise


class SqliteTransaction(SqliteBoundOffsets):
    """The same within a `with`, which is the transaction.

    A connection made with `autocommit=False` (Python 3.12) is in a transaction all the time, and
    only its own `commit` and `rollback` begin the next one: after a statement `COMMIT` it would
    commit every further statement by itself. Other connections are given statements, since
    `commit` does nothing on one made with `autocommit=True`.

    A connection of the first kind is in a transaction after its own `rollback` as well, without the
    rows of the block. A savepoint tells whether it is still the block's.
    """

    def __enter__(self) -> Self:
        if not self._connection.in_transaction or _may_begin(self._connection):
            self._connection.execute("BEGIN IMMEDIATE")
        if _begins_by_itself(self._connection):
            self._connection.execute(f"SAVEPOINT {_BLOCK}")
        return self

    def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        self._check_block()
        return super().save(key, position, expected=expected, rewind=rewind, epoch=epoch)

    def _execute(self, statement: Statement) -> Sequence[Row]:
        _check_goes_on(self._connection, statement)
        if statement.writes:
            self._check_block()
        return super()._execute(statement)

    def _check_block(self, *, ends: bool = False) -> None:
        """Raise if a connection with autocommit=False is not in the block's transaction."""
        if not _begins_by_itself(self._connection):
            return
        try:
            self._connection.execute(f"RELEASE {_BLOCK}")
        except sqlite3.OperationalError:
            raise NotInTransaction(_BLOCK_ENDED) from None
        if not ends:
            self._connection.execute(f"SAVEPOINT {_BLOCK}")

    def __exit__(self, raised: type[BaseException] | None, *_exc: object) -> None:
        if raised is not None:
            self._roll_back()
            return
        try:
            if _begins_by_itself(self._connection):
                self._check_block(ends=True)
                self._connection.commit()
            else:
                self._connection.execute("COMMIT")
        except BaseException:
            # A commit can fail, by a deferred foreign key or a full disk, and leave all open.
            self._roll_back()
            raise
        self.committed()

    def _roll_back(self) -> None:
        self.rolled_back()
        connection = self._connection
        # An error such as a full disk may have rolled back already.
        if connection.in_transaction:
            if _begins_by_itself(connection):
                connection.rollback()
            else:
                connection.execute("ROLLBACK")
        elif _begins_by_itself(connection):
            connection.execute("BEGIN")


class AsyncSqliteBoundOffsets(AsyncBoundOffsets):
    """The operations on one connection of aiosqlite."""

    _connection: AsyncSqliteConnection

    async def _execute(self, statement: Statement) -> Sequence[Row]:
        _check_transaction(self._connection, statement)
        try:
            return await _aexecute(self._connection, statement)
        except sqlite3.OperationalError as error:
            _explain(error)
            raise


class AsyncSqliteTransaction(AsyncSqliteBoundOffsets):
    """The same within the block that is the transaction."""

    async def _execute(self, statement: Statement) -> Sequence[Row]:
        _check_goes_on(self._connection, statement)
        return await super()._execute(statement)


class SyncSqliteOffsetStore(SyncSqlOffsetStore):
    """Positions in a table of SQLite; blocking. `database` is a file for use without `bind`."""

    def __init__(
        self, database: str | os.PathLike[str] | None = None, *, table: str = DEFAULT_TABLE
    ) -> None:
        """`database` is for operations outside a caller's transaction; its table is created."""
        super().__init__(SqliteDialect(table))
        if database is not None:
            check_path("database", database)
        self.database = None if database is None else os.fspath(database)
        self._connection: sqlite3.Connection | None = None

    @overload
    def create_table(self, connection: sqlite3.Connection) -> None: ...
    @overload
    def create_table(self, connection: AsyncSqliteConnection) -> Awaitable[None]: ...
    def create_table(
        self, connection: sqlite3.Connection | AsyncSqliteConnection
    ) -> Awaitable[None] | None:
        """Create the table on this connection, unless it exists."""
        steps = sql.create_table(self._dialect)
        if isinstance(connection, sqlite3.Connection):
            return drive(steps, partial(_execute, connection))
        return adrive(steps, partial(_aexecute, connection))

    @overload
    def bind(
        self, connection: sqlite3.Connection, *, hooks: HookRunner | None = None
    ) -> BoundOffsets: ...
    @overload
    def bind(
        self, connection: AsyncSqliteConnection, *, hooks: HookRunner | None = None
    ) -> AsyncBoundOffsets: ...
    def bind(
        self,
        connection: sqlite3.Connection | AsyncSqliteConnection,
        *,
        hooks: HookRunner | None = None,
    ) -> BoundOffsets | AsyncBoundOffsets:
        """Load and save on this connection, in your own transaction; call `committed` after it."""
        if isinstance(connection, sqlite3.Connection):
            return SqliteBoundOffsets(self._dialect, connection, hooks)
        return AsyncSqliteBoundOffsets(self._dialect, connection, hooks)

    @overload
    def transaction(
        self, connection: sqlite3.Connection, *, hooks: HookRunner | None = None
    ) -> SqliteTransaction: ...
    @overload
    def transaction(
        self, connection: AsyncSqliteConnection, *, hooks: HookRunner | None = None
    ) -> AbstractAsyncContextManager[AsyncBoundOffsets]: ...
    def transaction(
        self,
        connection: sqlite3.Connection | AsyncSqliteConnection,
        *,
        hooks: HookRunner | None = None,
    ) -> SqliteTransaction | AbstractAsyncContextManager[AsyncBoundOffsets]:
        """Begin a transaction; commit it at the end of the block, roll back after an exception."""
        if isinstance(connection, sqlite3.Connection):
            return SqliteTransaction(self._dialect, connection, hooks)
        return self._async_transaction(connection, hooks)

    @property
    def _name(self) -> str:
        return f"SQLite database {self.database}"

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, OSError)

    @contextlib.asynccontextmanager
    async def _async_transaction(
        self, connection: AsyncSqliteConnection, hooks: HookRunner | None
    ) -> AsyncIterator[AsyncBoundOffsets]:
        if _may_begin(connection):
            await connection.execute("BEGIN IMMEDIATE")
        bound = AsyncSqliteTransaction(self._dialect, connection, hooks)
        try:
            yield bound
            await connection.execute("COMMIT")
        except BaseException:
            bound.rolled_back()
            if connection.in_transaction:
                await connection.execute("ROLLBACK")
            raise
        await bound.committed()

    @contextlib.contextmanager
    def _own_transaction(self) -> Iterator[Callable[[Statement], Sequence[Row]]]:
        connection = self._own_connection()
        with self.transaction(connection):
            yield partial(_execute, connection)

    def _own_executor(self) -> Callable[[Statement], Sequence[Row]]:
        return partial(_execute, self._own_connection())

    def _own_connection(self) -> sqlite3.Connection:
        if self.database is None:
            raise OffsetError(
                "this store has no database of its own: use bind or transaction with a "
                "connection, or name the file when you make the store"
            )
        if self._connection is None:
            try:
                connection = sqlite3.connect(
                    self.database,
                    timeout=BUSY_SECONDS,
                    isolation_level=None,
                    check_same_thread=False,
                )
            except sqlite3.OperationalError as error:
                raise OffsetStoreError(
                    f"{self._name}: {error}; its directory must be there and writable"
                ) from error
            try:
                self.create_table(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


class SqliteOffsetStore(ThreadedOffsetStore[SyncSqliteOffsetStore]):
    """Positions in a table of SQLite, for asyncio.

    `bind`, `transaction` and `create_table` take connections of `sqlite3` or aiosqlite. With
    aiosqlite use `async with` and `await`.
    """

    def __init__(
        self, database: str | os.PathLike[str] | None = None, *, table: str = DEFAULT_TABLE
    ) -> None:
        super().__init__(SyncSqliteOffsetStore(database, table=table))
        self.create_table = self.sync.create_table
        self.bind = self.sync.bind
        self.transaction = self.sync.transaction


def _execute(connection: sqlite3.Connection, statement: Statement) -> Sequence[Row]:
    cursor = connection.execute(statement.text, statement.values)
    if statement.writes:
        return [()] * cursor.rowcount
    cursor.row_factory = None  # the caller's connection may make dictionaries of rows
    return cursor.fetchall()


async def _aexecute(connection: AsyncSqliteConnection, statement: Statement) -> Sequence[Row]:
    async with await connection.execute(statement.text, statement.values) as cursor:
        if statement.writes:
            return [()] * cursor.rowcount
        cursor.row_factory = None
        rows: Sequence[Row] = await cursor.fetchall()
        return rows


def _explain(error: sqlite3.OperationalError) -> None:
    """Raise a clearer error if the cause is known."""
    if str(error).startswith("no such table"):
        raise OffsetStoreError(
            f"{error}: make it once with store.create_table(connection), "
            "in the database of the business data"
        ) from error


def _begins_by_itself(connection: sqlite3.Connection | AsyncSqliteConnection) -> bool:
    """Whether it was made with `autocommit=False`; before Python 3.12 there was no such thing."""
    return _HAS_AUTOCOMMIT and getattr(connection, "autocommit", None) is False


def _may_begin(connection: sqlite3.Connection | AsyncSqliteConnection) -> bool:
    """False if the connection has begun by itself, as those with `autocommit=False` always have."""
    if not connection.in_transaction:
        return True
    if _begins_by_itself(connection):
        return False
    raise OffsetError(
        "this connection is in a transaction already: commit it first, or use bind in it "
        "(one of aiosqlite with autocommit=False always is: use bind, and commit it yourself)"
    )


def _check_goes_on(
    connection: sqlite3.Connection | AsyncSqliteConnection, statement: Statement
) -> None:
    """Is the transaction of the block still open? The driver would begin another by itself."""
    if statement.writes and not connection.in_transaction and not _begins_by_itself(connection):
        raise NotInTransaction(_BLOCK_ENDED)


def _check_transaction(
    connection: sqlite3.Connection | AsyncSqliteConnection, statement: Statement
) -> None:
    """Is a transaction open, or will this connection open one before it writes?"""
    if not statement.writes or connection.in_transaction:
        return
    if _begins_by_itself(connection):
        raise NotInTransaction(
            "this connection has autocommit=False and was taken out of its transaction by a "
            "statement COMMIT or ROLLBACK: use connection.commit() and connection.rollback()"
        )
    if getattr(connection, "autocommit", None) is True or connection.isolation_level is None:
        raise NotInTransaction(
            "this connection commits every statement by itself: execute BEGIN first, "
            "or use store.transaction(connection)"
        )
