"""The interfaces of offset stores: `OffsetStore` for asyncio, `SyncOffsetStore` for blocking code.

A store class with a plain name is asynchronous; its attribute `sync` is the blocking form, with the
same methods. Both are one store: they share files, connections and locks. (`HookedOffsetStore` and
`SyncHookedOffsetStore` are separate classes, because each wraps a store of its own form.)
Cancelling an asynchronous save only stops waiting: the save may still happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.offsets.types import UNSET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from ottla.offsets.types import CommitInfo, Expected, OffsetKey


class SyncOffsetStore(Protocol):
    """An offset store for blocking code: one position per key."""

    def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        """The stored position, or None if nothing is stored.

        Raises `StaleOffset` if the position was saved under another epoch.
        """
        ...

    def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        """Save a position: the next sequence to read. The result has the position it replaced.

        With `expected`, raises `OffsetConflict` if something else is stored (None: if anything is).
        Without `rewind`, raises `OffsetRegression` if the position is lower than the stored one,
        and `StaleOffset` if the stored one has another epoch.
        """
        ...

    def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        """Save several positions with few syncs; if one key is refused, none is written."""
        ...

    def delete(self, key: OffsetKey) -> bool:
        """Delete the position; returns whether there was one."""
        ...

    def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        """All positions, or those of one consumer."""
        ...

    def close(self) -> None:
        """Close files, locks and connections of the store."""
        ...


class OffsetStore(Protocol):
    """An offset store for asyncio; each method is that of `SyncOffsetStore` with `await`."""

    async def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        """See `SyncOffsetStore.load`."""
        ...

    async def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        """See `SyncOffsetStore.save`."""
        ...

    async def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        """See `SyncOffsetStore.save_many`."""
        ...

    async def delete(self, key: OffsetKey) -> bool:
        """See `SyncOffsetStore.delete`."""
        ...

    async def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        """See `SyncOffsetStore.list_all`."""
        ...

    async def close(self) -> None:
        """Close files, locks and connections of the store."""
        ...


class PostCommitHook(Protocol):
    """A hook that is called after each save that changed something, when the save is durable."""

    def on_commit(self, info: CommitInfo) -> Awaitable[None] | None:
        """Called with the save. Plain functions run in a thread, coroutines in the event loop."""
        ...
