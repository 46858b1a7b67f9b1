"""What the system says of its page cache, and what a log makes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.log.config import LogConfig
from ottla.log.errors import NotAtHand
from ottla.log.os_storage import OsStorage
from ottla.log.partition import PartitionLog
from ottla.log.tail import TailCache
from tests.support.log_batches import batch_of, joined


def test_what_was_dropped_from_the_page_cache_is_not_taken_to_be_there(tmp_path: Path) -> None:
    storage = OsStorage()
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1_000_000)
    fd = storage.open(path, create=False)
    try:
        assert storage.is_cached(fd, 0, 1_000_000) in (True, None)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        dropped = storage.is_cached(fd, 0, 1_000_000)
        storage.pread(fd, 1_000_000, 0)
        assert storage.is_cached(fd, 0, 1_000_000) in (True, None)
    finally:
        storage.close(fd)
    # A file system in memory keeps everything; one without the question answers None.
    assert dropped in (False, None) or _is_in_memory(tmp_path)


def _is_in_memory(path: Path) -> bool:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [mount for mount in mounts if str(path).startswith(mount[1])]
    return max(holding, key=lambda mount: len(mount[1]))[2] in ("tmpfs", "ramfs")


class Disk(OsStorage):
    """Says of its cache what it is told to say."""

    answer: bool | None = False

    def is_cached(self, fd: int, start: int, size: int) -> bool | None:
        return self.answer


def test_a_read_that_must_not_wait_refuses_what_is_on_disk_alone(tmp_path: Path) -> None:
    disk = Disk()
    log = PartitionLog.open(
        tmp_path / "t-0", LogConfig(), now_ms=0, tail=TailCache(0), storage=disk
    )
    log.append(batch_of(b"value"), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(1)

    def read(*, wait: bool) -> bytes:
        return joined(log.read(0, 1000, upper_bound_offset=1, min_one_message=True, wait=wait))

    with pytest.raises(NotAtHand):
        read(wait=False)
    assert read(wait=True)
    disk.answer = True
    assert read(wait=False)
    disk.answer = None  # it is among the newest bytes of the log
    assert read(wait=False)
    log.close()


class CountingDisk(Disk):
    """Knows how often it was read."""

    reads = 0

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.reads += 1
        return super().pread(fd, size, position)


def test_a_reader_that_goes_on_asks_before_it_looks_at_a_header(tmp_path: Path) -> None:
    """Its place is remembered, but the page may have left the cache since."""
    disk = CountingDisk()
    log = PartitionLog.open(
        tmp_path / "t-0", LogConfig(), now_ms=0, tail=TailCache(0), storage=disk
    )
    size = batch_of(b"value").size
    for _ in range(3):
        log.append(batch_of(b"value"), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(3)

    def read(offset: int) -> bytes:
        return joined(
            log.read(offset, size, upper_bound_offset=3, min_one_message=True, wait=False)
        )

    disk.answer = True
    assert len(read(0)) == size
    disk.answer, disk.reads = False, 0
    with pytest.raises(NotAtHand):
        read(1)
    assert disk.reads == 0
    disk.answer = True
    assert len(read(1)) == size
    log.close()
