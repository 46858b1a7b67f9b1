"""What an offset store is: `OffsetStore` for asyncio, `SyncOffsetStore` for everyone else.

Each store of this room has the asynchronous form under its plain name and the synchronous one,
with the same methods, as its `sync` attribute. Both are one store: they share files, connections
and locks. (`HookedOffsetStore` goes around a store of either form, so it has two names.) A caller
that is cancelled in an asynchronous save does not stop it: the save may still happen, as with any
commit whose answer is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.offsets.types import UNSET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from ottla.offsets.types import CommitInfo, Expected, OffsetKey


class SyncOffsetStore(Protocol):
    """Keeps one position per key; every call may block."""

    def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        """The position; None if there has never been one. StaleOffset if the epochs differ."""
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
        """Store the position, and say what was there.

        OffsetConflict if `expected` is given and something else is stored; OffsetRegression if
        the position is lower than the stored one, StaleOffset if the epochs differ, both unless
        `rewind`.
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
        """Store several positions at the price of few; if a key is refused none is written."""
        ...

    def delete(self, key: OffsetKey) -> bool:
        """Forget the position; True if there was one."""
        ...

    def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        """All positions, or those of one consumer."""
        ...

    def close(self) -> None:
        """Give back what the store holds open."""
        ...


class OffsetStore(Protocol):
    """The same for asyncio."""

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
        """Give back what the store holds open."""
        ...


class PostCommitHook(Protocol):
    """Told of every save that changed something, when it is durable."""

    def on_commit(self, info: CommitInfo) -> Awaitable[None] | None:
        """Plain hooks run in a thread, coroutines on the event loop of the saver."""
        ...
