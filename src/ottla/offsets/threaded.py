"""The asynchronous form of a store: each call of the synchronous one in a worker thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.offsets.protocol import SyncOffsetStore
from ottla.offsets.types import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ottla.offsets.types import CommitInfo, Expected, OffsetKey

SyncStore = TypeVar("SyncStore", bound=SyncOffsetStore)


class ThreadedOffsetStore(Generic[SyncStore]):
    """An `OffsetStore` over a synchronous one, which is its `sync`."""

    def __init__(self, sync: SyncStore) -> None:
        self.sync = sync

    async def load(self, key: OffsetKey, *, epoch: str | None = None) -> int | None:
        return await asyncio.to_thread(self.sync.load, key, epoch=epoch)

    async def save(
        self,
        key: OffsetKey,
        position: int,
        *,
        expected: Expected = UNSET,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> CommitInfo:
        return await asyncio.to_thread(
            self.sync.save, key, position, expected=expected, rewind=rewind, epoch=epoch
        )

    async def save_many(
        self,
        items: Mapping[OffsetKey, int],
        *,
        expected: Mapping[OffsetKey, int | None] | None = None,
        rewind: bool = False,
        epoch: str | None = None,
    ) -> list[CommitInfo]:
        return await asyncio.to_thread(
            self.sync.save_many, items, expected=expected, rewind=rewind, epoch=epoch
        )

    async def delete(self, key: OffsetKey) -> bool:
        return await asyncio.to_thread(self.sync.delete, key)

    async def list_all(self, consumer: str | None = None) -> dict[OffsetKey, int]:
        return await asyncio.to_thread(self.sync.list_all, consumer)

    async def close(self) -> None:
        await asyncio.to_thread(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()
