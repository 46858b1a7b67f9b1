"""Positions saved on the caller's own connection, in the caller's own transaction.

Bound offsets execute single statements: they never begin, commit or roll back, change no setting
and open nothing, so the position lives and dies with the business data beside it. A connection
that would commit the position by itself is refused (`NotInTransaction`).

The connection decides the form: a blocking one gets `BoundOffsets`, an asynchronous one
`AsyncBoundOffsets`. Hooks cannot know of a commit that the caller makes; `committed` tells them,
and `transaction` of the stores, which makes the commit, calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.offsets import sql
from ottla.offsets.rules import wish, wishes
from ottla.offsets.sql import LostRace
from ottla.offsets.types import UNSET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ottla.offsets.hooks import HookRunner
    from ottla.offsets.sql import Dialect, Row, Statement, Steps
    from ottla.offsets.types import CommitInfo, Expected, OffsetKey

T = TypeVar("T")


def drive(steps: Steps[T], execute: Callable[[Statement], Sequence[Row]]) -> T:
    """Run an operation on a blocking connection."""
    try:
        statement = next(steps)
        while True:
            try:
                rows = execute(statement)
            except LostRace as lost:
                statement = steps.throw(lost)
            else:
                statement = steps.send(rows)
    except StopIteration as done:
        result: T = done.value
        return result


async def adrive(steps: Steps[T], execute: Callable[[Statement], Awaitable[Sequence[Row]]]) -> T:
    """Run an operation on an asynchronous connection."""
    try:
        statement = next(steps)
        while True:
            try:
                rows = await execute(statement)
            except LostRace as lost:
                statement = steps.throw(lost)
            else:
                statement = steps.send(rows)
    except StopIteration as done:
        result: T = done.value
        return result


class BoundOffsets(ABC):
    """The operations of a store on one blocking connection, of a driver of its kind."""

    def __init__(self, dialect: Dialect, connection: Any, hooks: HookRunner | None) -> None:
        self._dialect = dialect
        self._connection = connection
        self._hooks = hooks
        self._pending: list[CommitInfo] = []

    @abstractmethod
    def _execute(self, statement: Statement) -> Sequence[Row]:
        """Execute it in the caller's transaction: NotInTransaction if there is none."""

    def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        return drive(sql.load(self._dialect, key, epoch), self._execute)

    def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        wanted = wish(position, expected, rewind, epoch)
        info = drive(sql.save(self._dialect, key, wanted), self._execute)
        self._pending.append(info)
        return info

    def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        wanted = wishes(items, expected, rewind, epoch)
        infos = drive(sql.save_many(self._dialect, wanted), self._execute)
        self._pending.extend(infos)
        return infos

    def delete(self, key: OffsetKey) -> bool:
        return drive(sql.delete(self._dialect, key), self._execute)

    def committed(self) -> list[CommitInfo]:
        """Call this after your commit: it runs the hooks."""
        infos, self._pending = self._pending, []
        if self._hooks is not None:
            self._hooks.run(infos)
        return infos

    def rolled_back(self) -> None:
        """Call this after your rollback, if you use the object again."""
        self._pending.clear()


class AsyncBoundOffsets(ABC):
    """The operations of a store on one asynchronous connection, of a driver of its kind."""

    def __init__(self, dialect: Dialect, connection: Any, hooks: HookRunner | None) -> None:
        self._dialect = dialect
        self._connection = connection
        self._hooks = hooks
        self._pending: list[CommitInfo] = []

    @abstractmethod
    async def _execute(self, statement: Statement) -> Sequence[Row]:
        """Execute it in the caller's transaction: NotInTransaction if there is none."""

    async def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        return await adrive(sql.load(self._dialect, key, epoch), self._execute)

    async def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        wanted = wish(position, expected, rewind, epoch)
        info = await adrive(sql.save(self._dialect, key, wanted), self._execute)
        self._pending.append(info)
        return info

    async def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        wanted = wishes(items, expected, rewind, epoch)
        infos = await adrive(sql.save_many(self._dialect, wanted), self._execute)
        self._pending.extend(infos)
        return infos

    async def delete(self, key: OffsetKey) -> bool:
        return await adrive(sql.delete(self._dialect, key), self._execute)

    async def committed(self) -> list[CommitInfo]:
        """Call this after your commit: it runs the hooks."""
        infos, self._pending = self._pending, []
        if self._hooks is not None:
            await self._hooks.arun(infos)
        return infos

    def rolled_back(self) -> None:
        """Call this after your rollback, if you use the object again."""
        self._pending.clear()
