"""An object store with faults to switch on: down, refusing, slow, short, damaged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.objects.errors import RemoteStorageError, RetriableRemoteError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.objects.store import ObjectInfo, ObjectStore


class FaultyStore:
    """Passes everything on, except for what the attributes say."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.heal()
        self.log_reads = 0
        """Ranges of `.log` objects that were asked for."""

    def heal(self) -> None:
        self.down = False
        self.refusing = False
        self.truncating = False
        self.corrupting = False
        self.delay = 0.0

    async def _meet(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.down:
            raise RetriableRemoteError("the store is down")
        if self.refusing:
            raise RemoteStorageError("the store refuses")

    async def put_pieces(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        await self._meet()
        await self.store.put_pieces(key, pieces)

    async def put_new(self, key: str, data: bytes) -> None:
        await self._meet()
        await self.store.put_new(key, data)

    async def get_range(
        self, key: str, start: int, end: int, *, etag: str | None = None
    ) -> memoryview:
        if key.endswith(".log"):
            self.log_reads += 1
        await self._meet()
        found = await self.store.get_range(key, start, end, etag=etag)
        return self._damaged(found) if key.endswith(".log") else found

    def _damaged(self, found: memoryview) -> memoryview:
        if self.truncating:
            return found[: len(found) // 2]
        if self.corrupting:
            data = bytearray(found)
            data[len(data) // 2] ^= 0xFF
            return memoryview(bytes(data))
        return found

    async def get_tail(self, key: str, size: int) -> memoryview:
        await self._meet()
        return await self.store.get_tail(key, size)

    async def head(self, key: str) -> ObjectInfo:
        await self._meet()
        return await self.store.head(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        await self._meet()
        async for one in self.store.list(prefix):
            yield one

    async def delete(self, key: str) -> None:
        await self._meet()
        await self.store.delete(key)
