"""A disk whose page cache was dropped, and who waited for it since.

The real page cache cannot be asked who missed it, and a fast disk hides that somebody waited. This
one keeps its own account: what was written is in the cache until `drop`; from then on only reads
bring pages back. Every call of the event loop's thread that a real disk could hold up is noted.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from typing import TYPE_CHECKING, Final

from ottla.log.os_storage import OsStorage
from ottla.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from ottla.log.storage import Buffer, Entry, File
    from ottla.testing.embedded import EmbeddedBroker

PAGE: Final = 4096


class ColdDisk(OsStorage):
    """`waits` has a stack for each call of the loop that would have waited."""

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.read_by_workers = 0
        self._warm: dict[int, set[int]] = {}  # pages by file
        self._loop: int | None = None

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> ColdDisk:
        """It is the disk of every broker that keeps its data."""
        disk = cls()
        monkeypatch.setattr("ottla.broker.hosting.data.OsStorage", lambda: disk)
        lend = Segment._views

        def lent(
            segment: Segment, file: File, start: int, stop: int, end: int
        ) -> list[memoryview] | None:
            disk._note("a view of pages", file.fd, start, stop - start)
            return lend(segment, file, start, stop, end)

        monkeypatch.setattr(Segment, "_views", lent)
        return disk

    def drop(self, broker: EmbeddedBroker) -> None:
        """Nothing is in the page cache, nor open or loaded of sealed segments."""
        assert broker._node is not None
        assert broker._loop is not None
        asyncio.run_coroutine_threadsafe(self._drop(broker), broker._loop).result()

    async def _drop(self, broker: EmbeddedBroker) -> None:
        assert broker._node is not None
        self._loop = threading.get_ident()
        self._warm.clear()
        self.read_by_workers = 0
        for hosted in broker._node.partitions:
            for segment in hosted.log.segments:
                segment._cursors = None
                for budget in (segment.shared.files, segment.shared.indexes, segment.shared.maps):
                    budget.clear()

    def _note(self, what: str, fd: int, start: int, size: int) -> None:
        if threading.get_ident() == self._loop and not self.is_cached(fd, start, size):
            self._note_call(f"{what} {start} to {start + size}")

    def _note_call(self, what: str) -> None:
        if threading.get_ident() == self._loop:
            self.waits.append(f"{what}\n{''.join(traceback.format_stack()[-12:-2])}")

    def _pages(self, start: int, size: int) -> range:
        return range(start // PAGE, -(-(start + size) // PAGE))

    def _warm_up(self, fd: int, start: int, size: int) -> None:
        self._warm.setdefault(self.identity(fd), set()).update(self._pages(start, size))

    def is_cached(self, fd: int, start: int, size: int) -> bool | None:
        return self._warm.get(self.identity(fd), set()).issuperset(self._pages(start, size))

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._note("bytes", fd, position, size)
        self.read_by_workers += threading.get_ident() != self._loop
        found = super().pread(fd, size, position)
        self._warm_up(fd, position, size)
        return found

    def pwritev(self, fd: int, chunks: Sequence[Buffer], position: int) -> int:
        self._warm_up(fd, position, sum(map(len, chunks)))
        return super().pwritev(fd, chunks, position)

    def open(self, path: Path | Entry, *, create: bool) -> int:
        if not create:
            self._note_call(f"opening {path.name}")
        return super().open(path, create=create)

    def read_file(self, path: Path | Entry) -> bytes:
        self._note_call(f"reading {path.name}")
        return super().read_file(path)
