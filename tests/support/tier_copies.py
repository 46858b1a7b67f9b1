"""Copies of logs to a store that fails when told to, and a cache of their indexes."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

from ottla.objects.errors import RetriableRemoteError
from ottla.objects.local import LocalStore
from ottla.tier.reading.index_cache import RemoteIndexCache
from ottla.tier.store.storage_manager import LogPieces
from ottla.tier.upkeep.copier import SegmentCopy
from tests.support.tier_logs import NOW_MS, Rolled, rolled

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.partition import PartitionLog
    from ottla.objects.store import ObjectStore
    from ottla.tier.catalogue.rlmm import RemoteLogMetadataManager
    from ottla.tier.store.storage_manager import RemoteStorageManager


class FailingStore(LocalStore):
    """Fails when told to."""

    failure: Exception | None = None
    deletions_left = 1 << 30
    reads = 0

    async def delete(self, key: str) -> None:
        if self.deletions_left == 0:
            raise RetriableRemoteError("killed")
        self.deletions_left -= 1
        await super().delete(key)

    async def put_new(self, key: str, data: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        await super().put_new(key, data)

    async def get_range(
        self, key: str, start: int, end: int, *, etag: str | None = None
    ) -> memoryview:
        self.reads += 1
        await asyncio.sleep(0)
        return await super().get_range(key, start, end, etag=etag)


def failing(storage: RemoteStorageManager) -> FailingStore:
    assert isinstance(storage.store, FailingStore)
    return storage.store


def copy_of(
    one: Rolled, catalogue: RemoteLogMetadataManager, storage: RemoteStorageManager
) -> SegmentCopy:
    return SegmentCopy(catalogue, storage, one.metadata, one.data, clock_ms=lambda: NOW_MS)


async def keys(storage: RemoteStorageManager) -> list[str]:
    return [one.key async for one in storage.store.list("")]


async def copy_all(
    log: PartitionLog, catalogue: RemoteLogMetadataManager, storage: RemoteStorageManager
) -> None:
    for one in rolled(log):
        await copy_of(one, catalogue, storage).run()


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


def cache_on(
    directory: Path, storage: RemoteStorageManager, clock: Clock, max_bytes: int = 1 << 30
) -> RemoteIndexCache:
    return RemoteIndexCache(directory, storage, max_bytes=max_bytes, ttl_ms=900_000, clock_ms=clock)


async def put_file(store: ObjectStore, key: str, path: Path) -> None:
    with closing(LogPieces(path)) as pieces:
        await store.put_pieces(key, pieces)


async def damage(storage: RemoteStorageManager, key: str, at: int, scratch: Path) -> None:
    """Flip a bit of an object."""
    data = bytearray(await storage.store.get_tail(key, 1 << 20))
    data[at] ^= 0x80
    await asyncio.to_thread(scratch.write_bytes, data)
    await put_file(storage.store, key, scratch)
