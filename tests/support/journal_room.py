"""A journal with its thread, its workers and real files, without a broker around it.

`Disk` tells which files were synced, and lets a test hold a call until it says otherwise.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch
from uuid import UUID

from ottla.broker.hosting.data import Data
from ottla.broker.hosting.flusher import GroupFlusher
from ottla.broker.hosting.hosted import HostedPartition
from ottla.broker.hosting.journal import JournalDurability
from ottla.clock import SYSTEM
from ottla.log.checkpoints import TopicPartition
from ottla.log.config import LogConfig
from tests.support.faults_disk import FaultyStorage
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE: Final = 60.0
TOPIC_ID: Final = UUID(int=7)
EXTENT_MAX_BYTES: Final = 32 * 1024
FILE_BYTES: Final = 64 * 1024


class Held:
    """A call that waits; `reached` when somebody is in it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.goes_on = threading.Event()

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, PATIENCE)

    def release(self) -> None:
        self.goes_on.set()


class Disk(FaultyStorage):
    """The real one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self._held: list[tuple[str, str, Held]] = []

    def hold(self, call: str, part: str) -> Held:
        """Hold these calls on paths that contain the part."""
        held = Held()
        self._held.append((call, part, held))
        return held

    def release(self) -> None:
        for _, _, held in self._held:
            held.release()
        self._held.clear()

    def _strike(self, call: str, path: str) -> None:
        if call in ("fdatasync", "write_durably"):
            self.calls.append((call, path))
        for name, part, held in tuple(self._held):
            if name == call and part in path:
                held.reached.set()
                assert held.goes_on.wait(PATIENCE)
        super()._strike(call, path)

    def written(self) -> list[str]:
        """The files of the journal that slots were written to, in order."""
        return [path[-1] for call, path in self.calls if call == "write_durably"]

    def synced(self, part: str) -> int:
        """How often such files were synced."""
        return sum(call == "fdatasync" and part in path for call, path in self.calls)


class Answer:
    """An `Ack` and its listener."""

    def __init__(self, hears: Callable[[], None] = lambda: None) -> None:
        self.waits = 0
        self.hears = hears
        self.is_sent = False

    def settle(self) -> Answer:
        return self

    def acked(self) -> None:
        self.is_sent = True
        self.hears()


class Room:
    """In an event loop; `close` it."""

    def __init__(
        self,
        path: Path,
        disk: Disk,
        *,
        files: int = 2,
        journal_dir: Path | None = None,
    ) -> None:
        self.disk = disk
        with patch("ottla.broker.hosting.data.OsStorage", lambda: disk):
            self.data = Data(path, fresh_max_bytes=EXTENT_MAX_BYTES)
        self.data.claim("cluster", 1)
        self.data.look_for_journal(accept_loss=False)
        self.executor = ThreadPoolExecutor(8)
        self.data.checkpoints.start(self.executor)
        self.partitions: list[HostedPartition] = []
        self.journal = JournalDurability(
            self.data,
            GroupFlusher(self.executor, 4),
            self.executor,
            SYSTEM,
            node_id=1,
            path=journal_dir,
            total_bytes=files * FILE_BYTES,
            extent_max_bytes=EXTENT_MAX_BYTES,
            file_bytes=FILE_BYTES,
        )

    def open(self, *topics: str) -> list[HostedPartition]:
        opened: list[HostedPartition] = []
        for number, topic in enumerate(topics):
            topic_id = UUID(int=TOPIC_ID.int + number)
            request = self.data.request(
                TopicPartition(topic, 0), topic_id, LogConfig(), create=True
            )
            (one,) = self.data.work.open_logs([request])
            assert one.log is not None
            self.data.was_opened(request, one)
            described: Any = SimpleNamespace(
                name=topic,
                internal=False,
                topic_id=topic_id,
                partitions=[SimpleNamespace(leader_epoch=1)],
            )
            opened.append(HostedPartition(described, 0, one.log))
        self.partitions += opened
        return opened

    def append(self, partition: HostedPartition, size: int = 100) -> None:
        partition.log.append(batch_of(b"." * size), leader_epoch=1, now_ms=1000)

    def join(self, *partitions: HostedPartition, size: int = 100) -> asyncio.Future[None]:
        for partition in partitions:
            self.append(partition, size)
        joined = self.journal.join(partitions)
        assert joined is not None
        return joined

    async def write(self, *partitions: HostedPartition, size: int = 100) -> None:
        """Append a batch to each and wait until it is durable."""
        await asyncio.wait_for(self.join(*partitions, size=size), PATIENCE)

    async def ready(self, *partitions: HostedPartition) -> None:
        """The first round makes the journal's first file; forget its calls."""
        await self.write(*partitions)
        await until(lambda: bool(self.journal.free_files))
        self.disk.calls.clear()

    async def close(self, *, clean: bool = True) -> None:
        self.disk.release()
        await asyncio.wait_for(self.journal.drain(), PATIENCE)
        for partition in self.partitions:
            trusted = partition.log.close(clean=clean)
            self.data.was_closed(partition.name, trusted=trusted)
        await asyncio.wait_for(self.journal.close(), PATIENCE)
        if clean:
            self.data.mark_clean()
        self.executor.shutdown()
        self.data.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 (worker threads set no event)
            await asyncio.sleep(0.001)


def journal_files(path: Path) -> list[str]:
    return sorted(one.name for one in path.glob("*journal*"))
