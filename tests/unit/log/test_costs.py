"""What a log costs: syncs, looks at its directory, and memory while nobody uses it."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ottla.log.config import LogConfig
from ottla.log.os_storage import OsStorage
from ottla.log.partition import PartitionLog
from ottla.log.tail import TailCache
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.log.storage import Directory

# Of one open log that was written once, without its tail: 10,000 of them take 40 MB.
MAX_BYTES_OF_AN_IDLE_LOG = 4000
# Of a segment that does not grow any more and that nobody reads: a million of them take 600 MB.
MAX_BYTES_OF_A_SEALED_SEGMENT = 650  # 605 on Python 3.12


class CountingStorage(OsStorage):
    """Real files; counts what waits for the disk, and what grows with the directory."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def fdatasync(self, fd: int) -> None:
        self.calls["fdatasync"] += 1
        super().fdatasync(fd)

    def fsync_dir(self, path: Path | Directory) -> None:
        self.calls["fsync_dir"] += 1
        super().fsync_dir(path)

    def listdir(self, path: Path | Directory) -> list[str]:
        self.calls["listdir"] += 1
        return super().listdir(path)

    def taken(self) -> dict[str, int]:
        calls, self.calls = self.calls, Counter()
        return dict(calls)


def append(log: PartitionLog, value: bytes = b"x") -> None:
    log.append(batch_of(value), leader_epoch=0, now_ms=0)


@pytest.mark.parametrize("scanned", [0, 1 << 16])
def test_a_new_log_waits_for_the_disk_as_little_as_is_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scanned: int
) -> None:
    monkeypatch.setattr("ottla.log.partition.SCANNED_BYTES", scanned)
    storage = CountingStorage()
    log = PartitionLog.open(tmp_path / "t-0", LogConfig(), now_ms=0, storage=storage)
    assert storage.taken() == {"listdir": 1}
    append(log)
    log.flush()
    assert storage.taken() == {"fdatasync": 1, "fsync_dir": 1}  # the batch, and the file's name
    append(log)
    log.flush()
    assert storage.taken() == {"fdatasync": 1}
    log.flush()
    assert storage.taken() == {}
    log.close()
    if scanned:
        assert storage.taken() == {}  # all is durable, and the next opening scans so little
    else:
        # Producers, leader epochs, names.
        assert storage.taken() == {"fdatasync": 2, "fsync_dir": 1}


def test_what_many_segments_cost(tmp_path: Path) -> None:
    storage = CountingStorage()
    config = LogConfig(segment_bytes=100, retention_bytes=0)
    log = PartitionLog.open(tmp_path / "t-0", config, now_ms=0, storage=storage)
    for _ in range(50):
        append(log)
    log.advance_high_watermark(log.flush())
    storage.taken()
    assert len(log.apply_retention(0)) == 50
    assert storage.taken() == {}
    assert log.size_bytes == 0
    log.close()
    storage.taken()
    again = PartitionLog.open(
        tmp_path / "t-0", config, now_ms=0, clean=True, recovery_point=50, storage=storage
    )
    assert storage.taken() == {"listdir": 1}
    assert again.log_end_offset == 50


def idle_logs(directory: Path, tail: TailCache) -> Iterator[PartitionLog]:
    config = LogConfig()
    for number in range(100):
        log = PartitionLog.open(directory / f"t-{number}", config, now_ms=0, tail=tail)
        append(log)
        log.advance_high_watermark(log.flush())
        yield log


def test_an_idle_log_is_small(tmp_path: Path) -> None:
    tail = TailCache(0)
    warm = list(idle_logs(tmp_path / "warm", tail))
    gc.collect()
    tracemalloc.start()
    try:
        logs = list(idle_logs(tmp_path / "cold", tail))
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(logs) < MAX_BYTES_OF_AN_IDLE_LOG
    assert len(warm) == len(logs)


def test_a_sealed_segment_is_small(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=1)
    log = PartitionLog.open(tmp_path, config, now_ms=0, tail=TailCache(0))
    while len(log.segments) <= 200:
        append(log, b"x" * 100)
    end = log.flush()
    assert log.close()
    del log
    gc.collect()
    tracemalloc.start()
    try:
        log = PartitionLog.open(
            tmp_path, config, now_ms=0, clean=True, recovery_point=end, tail=TailCache(0)
        )
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    sealed = len(log.segments) - 1
    assert sum(len(one.offset_index) for one in log.segments[:-1]) > 2 * sealed
    assert (used - MAX_BYTES_OF_AN_IDLE_LOG) / sealed < MAX_BYTES_OF_A_SEALED_SEGMENT
