"""A store that calls hooks after each save.

It is itself an offset store. Hooks are not called for deletes, failed saves and saves that change
nothing. For bound saves of an SQL store they are called after the caller's commit (see `bound`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, overload

from ottla.offsets.errors import InvalidOffsetType, OffsetError
from ottla.offsets.hooks import DEFAULT_HOOK_TIMEOUT, HookRunner, OnHookError
from ottla.offsets.protocol import OffsetStore, SyncOffsetStore
from ottla.offsets.sqlstore import SyncSqlOffsetStore
from ottla.offsets.types import UNSET, check_seconds, member

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import Self, TypeAlias

    from ottla.offsets.bound import AsyncBoundOffsets, BoundOffsets
    from ottla.offsets.postgres import AsyncConnection as AsyncPostgresConnection
    from ottla.offsets.postgres import Connection
    from ottla.offsets.protocol import PostCommitHook
    from ottla.offsets.sqlite import AsyncSqliteConnection
    from ottla.offsets.types import CommitInfo, Expected, OffsetKey

    BlockingConnection: TypeAlias = sqlite3.Connection | Connection
    AsyncConnection: TypeAlias = AsyncPostgresConnection | AsyncSqliteConnection

Inner = TypeVar("Inner")
SyncStore = TypeVar("SyncStore", bound=SyncOffsetStore)
Store = TypeVar("Store", bound=OffsetStore)


class _Hooked(Generic[Inner]):
    """A store, hooks, and `bind` and `transaction` of the store with these hooks."""

    def __init__(
        self,
        inner: Inner,
        *hooks: PostCommitHook,
        on_error: OnHookError | str = OnHookError.LOG,
        timeout: float = DEFAULT_HOOK_TIMEOUT,
    ) -> None:
        check_seconds("timeout", timeout)
        self.inner = inner
        self.hooks = HookRunner((), member(OnHookError, "on_error", on_error), timeout)
        for hook in hooks:
            self.add_hook(hook)

    def add_hook(self, hook: PostCommitHook) -> None:
        """Add a hook; it is called after the others, for later saves."""
        if not callable(getattr(hook, "on_commit", None)):
            raise InvalidOffsetType(
                f"hook is {hook!r} of type {type(hook).__name__}, it must have on_commit(info)"
            )
        self.hooks.add(hook)

    @overload
    def bind(self, connection: BlockingConnection) -> BoundOffsets: ...
    @overload
    def bind(self, connection: AsyncConnection) -> AsyncBoundOffsets: ...
    def bind(self, connection: object) -> object:
        """Like `bind` of the SQL store; `committed` runs the hooks."""
        return self._sql_store().bind(connection, hooks=self.hooks)

    @overload
    def transaction(
        self, connection: BlockingConnection
    ) -> AbstractContextManager[BoundOffsets]: ...
    @overload
    def transaction(
        self, connection: AsyncConnection
    ) -> AbstractAsyncContextManager[AsyncBoundOffsets]: ...
    def transaction(self, connection: object) -> object:
        """Like `transaction` of the SQL store; the hooks run after the commit."""
        return self._sql_store().transaction(connection, hooks=self.hooks)

    def _sql_store(self) -> SyncSqlOffsetStore:
        store = getattr(self.inner, "sync", self.inner)
        if not isinstance(store, SyncSqlOffsetStore):
            raise OffsetError(
                f"{type(self.inner).__name__} takes no part in transactions: "
                "use SqliteOffsetStore or PostgresOffsetStore"
            )
        return store


class SyncHookedOffsetStore(_Hooked[SyncStore]):
    """A synchronous store with hooks."""

    def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        return self.inner.load(key, epoch=epoch)

    def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        info = self.inner.save(key, position, expected=expected, rewind=rewind, epoch=epoch)
        self.hooks.run([info])
        return info

    def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        infos = self.inner.save_many(items, expected=expected, rewind=rewind, epoch=epoch)
        self.hooks.run(infos)
        return infos

    def delete(self, key: OffsetKey) -> bool:
        return self.inner.delete(key)

    def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        return self.inner.list_all(consumer)

    def close(self) -> None:
        self.inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class HookedOffsetStore(_Hooked[Store]):
    """A store for asyncio with hooks. Its synchronous form is `SyncHookedOffsetStore`."""

    async def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        return await self.inner.load(key, epoch=epoch)

    async def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        info = await self.inner.save(key, position, expected=expected, rewind=rewind, epoch=epoch)
        await self.hooks.arun([info])
        return info

    async def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        infos = await self.inner.save_many(items, expected=expected, rewind=rewind, epoch=epoch)
        await self.hooks.arun(infos)
        return infos

    async def delete(self, key: OffsetKey) -> bool:
        return await self.inner.delete(key)

    async def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        return await self.inner.list_all(consumer)

    async def close(self) -> None:
        await self.inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()
