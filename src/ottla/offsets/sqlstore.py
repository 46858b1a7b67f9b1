"""Shared by SQL stores: operations on the store's own connection.

That connection is for tools and for readers; exactly-once is made with `bind` or `transaction` on
the connection that also writes the business data.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.offsets import sql
from ottla.offsets.bound import drive
from ottla.offsets.errors import OffsetError, wrapped
from ottla.offsets.rules import wish, wishes
from ottla.offsets.types import UNSET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from ottla.offsets.hooks import HookRunner
    from ottla.offsets.sql import Dialect, Row, Statement, Steps
    from ottla.offsets.types import CommitInfo, Expected, OffsetKey

T = TypeVar("T")

_OF_PARENT: list[object] = []
"""Connections that a fork has copied: kept, because letting go of one would close it."""


class SyncSqlOffsetStore(ABC):
    """Positions in a table."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._connection: Any = None

    @abstractmethod
    def bind(self, connection: Any, *, hooks: HookRunner | None = None) -> Any:
        """The operations on the caller's connection, in its transaction."""

    @abstractmethod
    def transaction(self, connection: Any, *, hooks: HookRunner | None = None) -> Any:
        """Begin a transaction; commit it at the end of the block, roll back after an exception."""

    @abstractmethod
    def _own_transaction(
        self,
    ) -> AbstractContextManager[Callable[[Statement], Sequence[Row]]]:
        """A transaction on the store's own connection, and how to execute in it."""

    @abstractmethod
    def _own_executor(self) -> Callable[[Statement], Sequence[Row]]:
        """How to read on the store's own connection, without holding up any writer."""

    @property
    @abstractmethod
    def _name(self) -> str:
        """The database, for errors."""

    @abstractmethod
    def _driver_errors(self) -> tuple[type[Exception], ...]:
        """The exceptions of the driver."""

    def close(self) -> None:
        """Close the store's own connection."""
        if os.getpid() != self._process:
            # Closing it here would end the parent's session, or give up its locks.
            _OF_PARENT.append(self._connection)
            self._connection = None
            return
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        return self._read(sql.load(self._dialect, key, epoch))

    def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        return self._write(sql.save(self._dialect, key, wish(position, expected, rewind, epoch)))

    def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        """All keys or none, in one transaction."""
        return self._write(sql.save_many(self._dialect, wishes(items, expected, rewind, epoch)))

    def delete(self, key: OffsetKey) -> bool:
        return self._write(sql.delete(self._dialect, key))

    def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        return self._read(sql.list_all(self._dialect, consumer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise OffsetError(
                "this store was opened before a fork and shares its connection with the parent; "
                "open a new one in the child"
            )

    @wrapped
    def _read(self, steps: Steps[T]) -> T:
        self._check_process()
        with self._lock:
            return drive(steps, self._own_executor())

    @wrapped
    def _write(self, steps: Steps[T]) -> T:
        self._check_process()
        with self._lock, self._own_transaction() as execute:
            return drive(steps, execute)
