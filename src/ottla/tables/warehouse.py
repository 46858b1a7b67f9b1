"""The store of data files: local directories and object stores, by URL."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.objects.location import open_store
from ottla.objects.store import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.objects.location import StoreLocation


class Warehouse:
    """Files below one location."""

    def __init__(self, location: StoreLocation) -> None:
        self.location = location
        self._base = str(location)
        self._store = open_store(location)

    def url(self, path: str) -> str:
        """The URL of a path below the location."""
        return self._base + path

    def _key(self, url: str) -> str:
        if not url.startswith(self._base):
            raise ValueError(f"{url} is not in {self._base}")
        return self.location.prefix + url.removeprefix(self._base)

    async def upload(self, spool: Path, url: str) -> None:
        """Copy a file; it is durable when this returns."""
        await self._store.put_pieces(self._key(url), _pieces(spool))

    async def list(self, url: str) -> AsyncIterator[tuple[str, int]]:
        """The files below a URL, and when each was last written, in milliseconds."""
        root = self.location.prefix
        async for one in self._store.list(self._key(url) + "/"):
            yield self._base + one.key.removeprefix(root), one.modified_ms

    async def delete(self, url: str) -> None:
        """Delete a file; one that is missing is deleted already."""
        await self._store.delete(self._key(url))


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece
    finally:
        file.close()
