"""Positions in PostgreSQL, in the same transaction as the business data. Needs `ottla[postgres]`.

Connections are psycopg's, blocking or asynchronous, or asyncpg's, which is not imported here. A
second writer of a key waits for the first one's commit, and then sees its position (READ COMMITTED)
or gets a conflict error from the server (REPEATABLE READ and above). With `expected`, both raise
`OffsetConflict`.
"""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Protocol, overload, runtime_checkable

from ottla.offsets import sql
from ottla.offsets.bound import AsyncBoundOffsets, BoundOffsets, adrive, drive
from ottla.offsets.errors import (
    InvalidOffsetArgument,
    NotInTransaction,
    OffsetError,
    OffsetStoreError,
)
from ottla.offsets.sql import DEFAULT_TABLE, LostRace, PostgresDialect
from ottla.offsets.sqlstore import SyncSqlOffsetStore
from ottla.offsets.threaded import ThreadedOffsetStore
from ottla.offsets.types import check_instance
from ottla.redaction import redact

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import TypeAlias

    import psycopg

    from ottla.offsets.hooks import HookRunner
    from ottla.offsets.sql import Row, Statement

    Connection: TypeAlias = psycopg.Connection[Any]
    AsyncConnection: TypeAlias = "psycopg.AsyncConnection[Any] | AsyncpgConnection"


SERIALIZATION_FAILURE: Final = "40001"
_SCHEMES: Final = ("postgresql://", "postgres://")
UNDEFINED_TABLE: Final = "42P01"
IN_FAILED_TRANSACTION: Final = "25P02"


@runtime_checkable
class AsyncpgConnection(Protocol):
    """The part of asyncpg's connections and pooled connections that is used here."""

    def is_in_transaction(self) -> bool: ...
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    def fetch(self, query: str, /, *args: Any) -> Awaitable[Sequence[Any]]: ...


class PsycopgBoundOffsets(BoundOffsets):
    """The operations on one blocking connection of psycopg."""

    _connection: Connection

    def _execute(self, statement: Statement) -> Sequence[Row]:
        _check_psycopg(self._connection, statement)
        with _explained():
            return _execute(self._connection, statement)


class AsyncPsycopgBoundOffsets(AsyncBoundOffsets):
    """The operations on one asynchronous connection of psycopg."""

    _connection: psycopg.AsyncConnection[Any]

    async def _execute(self, statement: Statement) -> Sequence[Row]:
        _check_psycopg(self._connection, statement)
        with _explained():
            return await _aexecute(self._connection, statement)


class AsyncpgBoundOffsets(AsyncBoundOffsets):
    """The operations on one connection of asyncpg, which begins no transaction by itself."""

    _connection: AsyncpgConnection

    async def _execute(self, statement: Statement) -> Sequence[Row]:
        if statement.writes and _is_idle(self._connection):
            raise _not_in_transaction()
        with _explained():
            return await _fetch(self._connection, statement)


class SyncPostgresOffsetStore(SyncSqlOffsetStore):
    """Positions in a table of PostgreSQL; blocking. `conninfo` is for use without `bind`."""

    def __init__(self, conninfo: str | None = None, *, table: str = DEFAULT_TABLE) -> None:
        """`conninfo` is for operations outside a caller's transaction; its table is created."""
        super().__init__(PostgresDialect(table))
        if conninfo is not None:
            check_instance("conninfo", conninfo, (str,), "a str")
        if conninfo and not conninfo.startswith(_SCHEMES) and "=" not in conninfo:
            # libpq would quote it in its error, with the password.
            raise InvalidOffsetArgument(
                "conninfo is neither postgresql://USER:PASSWORD@HOST/DATABASE nor NAME=VALUE ..."
            )
        if conninfo and conninfo.startswith(_SCHEMES) and _has_raw_password(conninfo):
            raise InvalidOffsetArgument(
                "the password in conninfo has characters that a URL keeps for itself: "
                "write a space as %20, / as %2F, ? as %3F, # as %23 and @ as %40"
            )
        self._conninfo = conninfo
        self._connection: Connection | None = None

    @overload
    def create_table(self, connection: Connection) -> None: ...
    @overload
    def create_table(self, connection: AsyncConnection) -> Awaitable[None]: ...
    def create_table(self, connection: Connection | AsyncConnection) -> Awaitable[None] | None:
        """Create the table on this connection, unless it exists."""
        steps = sql.create_table(self._dialect)
        if isinstance(connection, AsyncpgConnection):
            return adrive(steps, partial(_fetch, connection))
        import psycopg

        if isinstance(connection, psycopg.AsyncConnection):
            return adrive(steps, partial(_aexecute, connection))
        return drive(steps, partial(_execute, connection))

    @overload
    def bind(self, connection: Connection, *, hooks: HookRunner | None = None) -> BoundOffsets: ...
    @overload
    def bind(
        self, connection: AsyncConnection, *, hooks: HookRunner | None = None
    ) -> AsyncBoundOffsets: ...
    def bind(
        self, connection: Connection | AsyncConnection, *, hooks: HookRunner | None = None
    ) -> BoundOffsets | AsyncBoundOffsets:
        """Load and save on this connection, in your own transaction; call `committed` after it."""
        if isinstance(connection, AsyncpgConnection):
            return AsyncpgBoundOffsets(self._dialect, connection, hooks)
        import psycopg

        if isinstance(connection, psycopg.AsyncConnection):
            return AsyncPsycopgBoundOffsets(self._dialect, connection, hooks)
        return PsycopgBoundOffsets(self._dialect, connection, hooks)

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
        """Begin a transaction; commit it at the end of the block, roll back after an exception."""
        if not _is_idle(connection):
            # The driver would make a savepoint of it, and the end of that is no commit.
            raise OffsetError(
                "this connection is in a transaction already: connect with autocommit=True, commit "
                "before, or use bind in the transaction"
            )
        if isinstance(connection, AsyncpgConnection):
            return self._async_transaction(connection, hooks)
        import psycopg

        if isinstance(connection, psycopg.AsyncConnection):
            return self._async_transaction(connection, hooks)
        return self._transaction(connection, hooks)

    @property
    def _name(self) -> str:
        return "PostgreSQL" if self._conninfo is None else redact(self._conninfo)

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        import psycopg

        return (psycopg.Error, OSError)

    @contextlib.contextmanager
    def _transaction(
        self, connection: Connection, hooks: HookRunner | None
    ) -> Iterator[BoundOffsets]:
        bound = self.bind(connection, hooks=hooks)
        with connection.transaction():
            yield bound
            _check_unbroken(connection)
        bound.committed()

    @contextlib.asynccontextmanager
    async def _async_transaction(
        self, connection: AsyncConnection, hooks: HookRunner | None
    ) -> AsyncIterator[AsyncBoundOffsets]:
        bound = self.bind(connection, hooks=hooks)
        async with connection.transaction():
            yield bound
            if isinstance(connection, AsyncpgConnection):
                # It does not say how its transaction fares, so the server is asked.
                await _check_unbroken_asyncpg(connection)
            else:
                _check_unbroken(connection)
        await bound.committed()

    @contextlib.contextmanager
    def _own_transaction(self) -> Iterator[Callable[[Statement], Sequence[Row]]]:
        connection = self._own_connection()
        with connection.transaction():
            yield partial(_execute, connection)

    def _own_executor(self) -> Callable[[Statement], Sequence[Row]]:
        return partial(_execute, self._own_connection())

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
            # If two create it at once, the slower one gets an error that the name is taken.
            with (
                contextlib.suppress(psycopg.errors.UniqueViolation),
                self._connection.transaction(),
            ):
                self.create_table(self._connection)
        return self._connection


class PostgresOffsetStore(ThreadedOffsetStore[SyncPostgresOffsetStore]):
    """Positions in a table of PostgreSQL, for asyncio.

    `bind`, `transaction` and `create_table` take connections of psycopg, of both kinds, and of
    asyncpg; they return asynchronous objects if the connection is asynchronous.
    """

    def __init__(self, conninfo: str | None = None, *, table: str = DEFAULT_TABLE) -> None:
        super().__init__(SyncPostgresOffsetStore(conninfo, table=table))
        self.create_table = self.sync.create_table
        self.bind = self.sync.bind
        self.transaction = self.sync.transaction


def _execute(connection: Connection, statement: Statement) -> Sequence[Row]:
    import psycopg
    from psycopg.rows import tuple_row

    with connection.cursor(row_factory=tuple_row) as cursor:
        try:
            cursor.execute(statement.text.encode(), statement.values)
        except psycopg.errors.SerializationFailure as error:
            raise LostRace from error
        return cursor.fetchall() if cursor.description else ()


async def _aexecute(
    connection: psycopg.AsyncConnection[Any], statement: Statement
) -> Sequence[Row]:
    import psycopg
    from psycopg.rows import tuple_row

    async with connection.cursor(row_factory=tuple_row) as cursor:
        try:
            await cursor.execute(statement.text.encode(), statement.values)
        except psycopg.errors.SerializationFailure as error:
            raise LostRace from error
        return await cursor.fetchall() if cursor.description else ()


async def _fetch(connection: AsyncpgConnection, statement: Statement) -> Sequence[Row]:
    try:
        return await connection.fetch(_numbered(statement.text), *statement.values)
    except Exception as error:
        if getattr(error, "sqlstate", None) == SERIALIZATION_FAILURE:
            raise LostRace from error
        raise


def _has_raw_password(url: str) -> bool:
    """Whether libpq would take a part of the password for something else, and print it."""
    rest = url.partition("://")[2]
    before, *_ = re.split(r"[/?#]", rest, maxsplit=1)
    if re.search(r"\s", before) or before.count("@") > 1:
        return True
    # user:pass/word@host: the part that looks like a port is none.
    port = before.partition(":")[2]
    return "@" in rest and "@" not in before and bool(port) and not port[0].isdigit()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise a clearer error if the cause is known."""
    try:
        yield
    except Exception as error:
        if getattr(error, "sqlstate", None) == UNDEFINED_TABLE:
            raise OffsetStoreError(
                f"{error}: make the table once with store.create_table(connection)"
            ) from error
        raise


@lru_cache(maxsize=64)
def _numbered(text: str) -> str:
    """The placeholders as the server has them; psycopg numbers them itself."""
    first, *others = text.split("%s")
    return first + "".join(f"${number}{rest}" for number, rest in enumerate(others, 1))


def _is_idle(connection: Connection | AsyncConnection) -> bool:
    if isinstance(connection, AsyncpgConnection):
        return not connection.is_in_transaction()
    from psycopg.pq import TransactionStatus

    return connection.info.transaction_status == TransactionStatus.IDLE


def _check_psycopg(
    connection: Connection | psycopg.AsyncConnection[Any], statement: Statement
) -> None:
    """Is a transaction open, or will this connection open one before it writes?"""
    if statement.writes and connection.autocommit and _is_idle(connection):
        raise _not_in_transaction()


def _check_unbroken(connection: Connection | psycopg.AsyncConnection[Any]) -> None:
    """After an error in SQL the server answers COMMIT with a rollback, and drivers keep quiet."""
    from psycopg.pq import TransactionStatus

    if connection.info.transaction_status == TransactionStatus.INERROR:
        raise _broken()


async def _check_unbroken_asyncpg(connection: AsyncpgConnection) -> None:
    try:
        await connection.fetch("SELECT 1")
    except Exception as error:
        if getattr(error, "sqlstate", None) == IN_FAILED_TRANSACTION:
            raise _broken() from error
        raise


def _broken() -> OffsetError:
    return OffsetError(
        "an error in SQL within this transaction was caught, and the server has rolled all of it "
        "back: let the error out of the block, or put the statement into a savepoint "
        "(a nested connection.transaction())"
    )


def _not_in_transaction() -> NotInTransaction:
    return NotInTransaction(
        "this connection commits every statement by itself: begin a transaction first, "
        "or use store.transaction(connection)"
    )
