"""A store that tells hooks about its saves.

It is a store itself, so it can stand wherever one is asked for. Deletes, failed saves and saves
that change nothing are told to nobody. Bound saves of an SQL store are told after the caller's
commit (see `bound`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.offsets.hooks import DEFAULT_HOOK_TIMEOUT, HookRunner, OnHookError
from ottla.offsets.protocol import OffsetStore, SyncOffsetStore
from ottla.offsets.types import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ottla.offsets.protocol import PostCommitHook
    from ottla.offsets.types import CommitInfo, Expected, OffsetKey

SyncStore = TypeVar("SyncStore", bound=SyncOffsetStore)
Store = TypeVar("Store", bound=OffsetStore)


class SyncHookedOffsetStore(Generic[SyncStore]):
    """A synchronous store with hooks."""

    def __init__(
        self,
        inner: SyncStore,
        *hooks: PostCommitHook,
        on_error: OnHookError = OnHookError.LOG,
        timeout: float = DEFAULT_HOOK_TIMEOUT,
    ) -> None:
        self.inner = inner
        self.hooks = HookRunner(hooks, on_error, timeout)

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


class HookedOffsetStore(Generic[Store]):
    """A store for asyncio with hooks. Its synchronous form is `SyncHookedOffsetStore`."""

    def __init__(
        self,
        inner: Store,
        *hooks: PostCommitHook,
        on_error: OnHookError = OnHookError.LOG,
        timeout: float = DEFAULT_HOOK_TIMEOUT,
    ) -> None:
        self.inner = inner
        self.hooks = HookRunner(hooks, on_error, timeout)

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

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
