"""Positions in SQLite, in the same transaction and the same file as the business data.

The table must be in the database file of the data: in WAL mode a transaction over attached files
is not atomic. Losing the last commit (WAL with synchronous=NORMAL) does no harm, because data and
position are lost together.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING, Final

from ottla.offsets import sql
from ottla.offsets.bound import BoundOffsets, drive
from ottla.offsets.errors import NotInTransaction, OffsetError
from ottla.offsets.sql import DEFAULT_TABLE, SqliteDialect
from ottla.offsets.sqlstore import SyncSqlOffsetStore
from ottla.offsets.threaded import ThreadedOffsetStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.offsets.hooks import HookRunner
    from ottla.offsets.sql import Row, Statement

BUSY_SECONDS: Final = 10.0
"""How long the store's own connection waits for another writer."""


class SyncSqliteOffsetStore(SyncSqlOffsetStore):
    """Positions in a table of SQLite."""

    def __init__(
        self, database: str | os.PathLike[str] | None = None, *, table: str = DEFAULT_TABLE
    ) -> None:
        """`database` is for operations outside a caller's transaction; its table is created."""
        super().__init__(SqliteDialect(table))
        self.database = None if database is None else os.fspath(database)
        self._connection: sqlite3.Connection | None = None

    def create_table(self, connection: sqlite3.Connection) -> None:
        """Create the table on the caller's connection, unless it is there."""
        drive(sql.create_table(self._dialect), _executor(connection))

    def bind(
        self, connection: sqlite3.Connection, *, hooks: HookRunner | None = None
    ) -> BoundOffsets:
        """The operations on the caller's connection, in its transaction."""
        execute = _executor(connection)

        def in_transaction(statement: Statement) -> Sequence[Row]:
            if statement.writes and not _transactional(connection):
                raise NotInTransaction(
                    "this connection commits every statement by itself: execute BEGIN first, "
                    "or use store.transaction(connection)"
                )
            return execute(statement)

        return BoundOffsets(self._dialect, in_transaction, hooks)

    @contextlib.contextmanager
    def transaction(
        self, connection: sqlite3.Connection, *, hooks: HookRunner | None = None
    ) -> Iterator[BoundOffsets]:
        """Begin; commit at the end and tell the hooks, or roll back if anything is raised."""
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        elif getattr(connection, "autocommit", None) is not False:
            raise OffsetError(
                "this connection is in a transaction already: commit it first, or use bind in it"
            )
        bound = self.bind(connection, hooks=hooks)
        try:
            yield bound
        except BaseException:
            # An error such as a full disk may have rolled back already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        bound.committed()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _own_transaction(self) -> Iterator[Callable[[Statement], Sequence[Row]]]:
        connection = self._own_connection()
        with self.transaction(connection):
            yield _executor(connection)

    def _own_executor(self) -> Callable[[Statement], Sequence[Row]]:
        return _executor(self._own_connection())

    def _own_connection(self) -> sqlite3.Connection:
        if self.database is None:
            raise OffsetError(
                "this store has no database of its own: use bind or transaction with a "
                "connection, or name the file when you make the store"
            )
        if self._connection is None:
            self._connection = sqlite3.connect(
                self.database,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            self.create_table(self._connection)
        return self._connection


class SqliteOffsetStore(ThreadedOffsetStore[SyncSqliteOffsetStore]):
    """Positions in a table of SQLite, for asyncio.

    `bind` and `transaction` are plain also here, because `sqlite3` connections are.
    """

    def __init__(
        self, database: str | os.PathLike[str] | None = None, *, table: str = DEFAULT_TABLE
    ) -> None:
        super().__init__(SyncSqliteOffsetStore(database, table=table))
        self.create_table = self.sync.create_table
        self.bind = self.sync.bind
        self.transaction = self.sync.transaction


def _executor(connection: sqlite3.Connection) -> Callable[[Statement], Sequence[Row]]:
    def execute(statement: Statement) -> Sequence[Row]:
        cursor = connection.execute(statement.text, statement.values)
        if statement.writes:
            return [()] * cursor.rowcount
        cursor.row_factory = None  # the caller's connection may make dictionaries of rows
        return cursor.fetchall()

    return execute


def _transactional(connection: sqlite3.Connection) -> bool:
    """Is a transaction open, or will this connection open one before it writes?"""
    if connection.in_transaction:
        return True
    if getattr(connection, "autocommit", None) is True:
        return False
    return connection.isolation_level is not None
