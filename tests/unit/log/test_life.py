"""A log on its way out: who is refused, who may finish, and when the files are closed."""

from __future__ import annotations

import errno
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.log.compaction import plan_compaction, run_compaction
from ottla.log.config import LogConfig
from ottla.log.errors import LogClosed, StorageFailure
from ottla.log.life import Life
from ottla.log.os_storage import OsStorage
from ottla.log.partition import PartitionLog
from ottla.log.reading import read_segments
from ottla.log.retention import SegmentBin
from ottla.log.tail import TailCache
from tests.support.log_batches import batch_of, joined, read_all
from tests.support.log_faults import Fault, MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.log.compaction import CompactionResult

HOME = Path("/data/t-0")
COMPACTED = LogConfig(segment_bytes=300, cleanup_policy=frozenset({"compact"}))


def open_log(
    home: Path = HOME, config: LogConfig | None = None, storage: MemoryStorage | None = None
) -> PartitionLog:
    return PartitionLog.open(
        home, config or LogConfig(), now_ms=0, tail=TailCache(0), storage=storage
    )


def fill(log: PartitionLog, *values: bytes) -> bytes:
    for value in values:
        log.append(batch_of(value), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(log.flush())
    return read_all(log)


def test_each_log_has_its_own_incarnation(tmp_path: Path) -> None:
    first = open_log(tmp_path)
    assert first.life is Life.OPEN
    first.close()
    assert first.incarnation != open_log(tmp_path).incarnation


def test_files_close_when_the_last_lease_is_released() -> None:
    storage = MemoryStorage()
    log = open_log(storage=storage)
    first, second = log.lease(), log.lease()
    assert log.close(clean=True)
    first.release()
    first.release()
    assert (log.life, storage.open_files > 0) == (Life.CLOSING, True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(second.release).result()
    assert (log.life, storage.open_files) == (Life.CLOSED, 0)


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_close_that_fails_still_gives_the_files_back(fault: Fault) -> None:
    healthy = MemoryStorage()
    log = open_log(storage=healthy)
    fill(log, b"x")
    before = healthy.calls
    log.close()
    for number in range(before, healthy.calls):
        storage = MemoryStorage({number: fault})
        log = open_log(storage=storage)
        fill(log, b"x")
        lease = log.lease()
        assert not log.close()
        assert log.life is Life.CLOSING
        lease.release()
        assert (log.life, storage.open_files) == (Life.CLOSED, 0)


def test_a_lease_is_given_back_after_an_error() -> None:
    storage = MemoryStorage()
    log = open_log(storage=storage)
    with pytest.raises(ZeroDivisionError), log.lease():
        raise ZeroDivisionError
    log.close()
    assert (log.life, storage.open_files) == (Life.CLOSED, 0)


CALLS: dict[str, Callable[[PartitionLog], object]] = {
    "lease": lambda log: log.lease(),
    "append": lambda log: log.append(batch_of(b"x"), leader_epoch=0, now_ms=0),
    "read": lambda log: log.read(0, 100, upper_bound_offset=1, min_one_message=True),
    "read_files": lambda log: log.read_files(0, 100, upper_bound_offset=1, min_one_message=True),
    "offset_for_timestamp": lambda log: log.offset_for_timestamp(0),
    "max_timestamp_offset": lambda log: log.max_timestamp_offset(),
    "flush": lambda log: log.flush(),
    "purge": lambda log: log.purge(0),
    "roll": lambda log: log.roll(0),
    "apply_retention": lambda log: log.apply_retention(0),
    "drop_local_segments": lambda log: log.drop_local_segments(1, 0),
    "delete_records_before": lambda log: log.delete_records_before(0),
}


@pytest.mark.parametrize("held", [False, True], ids=["closed", "closing"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_closed_log_refuses_every_call(
    call: Callable[[PartitionLog], object], *, held: bool
) -> None:
    storage = MemoryStorage()
    log = open_log(storage=storage)
    fill(log, b"x")
    lease = log.lease() if held else None
    log.close(clean=False)
    calls = storage.calls
    with pytest.raises(LogClosed, match=r"t-0 is clos.*look the partition up again"):
        call(log)
    assert storage.calls == calls
    if lease is not None:
        lease.release()


def test_closing_begins_in_the_logs_thread_and_ends_in_a_worker() -> None:
    storage = MemoryStorage()
    log = open_log(storage=storage)
    log.append(batch_of(b"x"), leader_epoch=0, now_ms=0)
    log.begin_close()
    with pytest.raises(LogClosed):
        log.append(batch_of(b"y"), leader_epoch=0, now_ms=0)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(log.close).result()
    assert (log.life, log.recovery_point) == (Life.CLOSED, 1)


class PausingStorage(MemoryStorage):
    """Stops in the first sync until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def fdatasync(self, fd: int) -> None:
        self.reached.set()
        assert self.go_on.wait(30)
        super().fdatasync(fd)


def test_a_flush_that_is_under_way_keeps_its_descriptor() -> None:
    storage = PausingStorage()
    log = open_log(storage=storage)
    fill(log, b"x")
    log.append(batch_of(b"y"), leader_epoch=0, now_ms=0)
    storage.reached.clear()
    storage.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(log.flush)
        try:
            assert storage.reached.wait(30)
            log.close(clean=False)  # does not wait for the worker
            assert (log.life, storage.open_files) == (Life.CLOSING, 2)
        finally:
            storage.go_on.set()
        assert flushed.result() == 2
    assert (log.life, storage.open_files) == (Life.CLOSED, 0)


def test_a_descriptor_is_never_another_logs_under_a_reader(tmp_path: Path) -> None:
    """A deleted log is read on by a worker while a new one is opened."""
    old = open_log(tmp_path / "old-0")
    expected = fill(old, b"of the old topic")
    segments, lease = old.segments, old.lease()
    old.close(clean=False)
    others = [open_log(tmp_path / f"new-{number}") for number in range(3)]
    for log in others:
        fill(log, b"of the new topic")
    assert joined(read_segments(segments, 0, 1000, 1, at_least_one=True)) == expected
    lease.release()
    # A reader without a lease is a fault of its own; it must not be shown another topic.
    others.append(open_log(tmp_path / "new-3"))
    fill(others[-1], b"of the new topic")
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_segments(segments, 0, 1000, 1, at_least_one=True)


def names_and_bytes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


class PausingFiles(OsStorage):
    """Real files; stops in a sync until it is told to go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def fdatasync(self, fd: int) -> None:
        self.reached.set()
        assert self.go_on.wait(30)
        super().fdatasync(fd)


def test_a_flush_of_a_deleted_log_writes_nothing_into_its_successor(tmp_path: Path) -> None:
    """The worker is inside the sync of the leader epochs, before it renames the new file."""
    home = tmp_path / "t-0"
    storage = PausingFiles()
    old = PartitionLog.open(home, LogConfig(), now_ms=0, storage=storage)
    old.append(batch_of(b"x"), leader_epoch=7, now_ms=0)
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(old.flush)
        try:
            assert storage.reached.wait(30)
            old.close(clean=False)
            home.rename(tmp_path / "t-0.deleted")
            new = open_log(home)
            fill(new, b"y")
            before = names_and_bytes(home)
        finally:
            storage.go_on.set()
        assert flushed.result() == 1
    assert names_and_bytes(home) == before


def test_a_purge_of_a_deleted_log_unlinks_nothing_of_its_successor(tmp_path: Path) -> None:
    home = tmp_path / "t-0"
    config = LogConfig(segment_bytes=300, retention_bytes=0, file_delete_delay_ms=10)
    old, deleted = open_log(home, config), SegmentBin()
    fill(old, *(b"%d" % number * 40 for number in range(20)))
    lease = old.lease()
    deleted.discard(old.segments[0], 0, 0)
    old.close(clean=False)
    home.rename(tmp_path / "t-0.deleted")
    new = open_log(home, config)
    fill(new, *(b"%d" % number * 40 for number in range(20)))
    assert new.apply_retention(0)
    before = names_and_bytes(home)
    assert deleted.purge(1, oldest_lease=1) == 1
    lease.release()
    assert names_and_bytes(home) == before


@pytest.mark.parametrize("deleted_first", [True, False])
def test_a_compaction_of_a_deleted_log_leaves_nothing(
    tmp_path: Path, *, deleted_first: bool
) -> None:
    home, gone = tmp_path / "t-0", tmp_path / "t-0.deleted"
    old = open_log(home, COMPACTED)
    fill(old, *(b"%d" % number * 40 for number in range(20)))
    plan = plan_compaction(old, 0, 0)
    assert plan is not None
    with old.lease():
        if not deleted_first:
            result = run_compaction(plan)
        old.close(clean=False)
        home.rename(gone)
        new = open_log(home, COMPACTED)
        fill(new, b"y")
        before = names_and_bytes(home)
        if deleted_first:
            result = run_compaction(plan)
        assert [name for name in names_and_bytes(gone) if name.endswith(".cleaned")]
        result.discard(0)
    assert names_and_bytes(home) == before
    assert not [name for name in names_and_bytes(gone) if name.endswith(".cleaned")]


def test_a_compaction_of_a_deleted_log_touches_nothing_of_its_successor(tmp_path: Path) -> None:
    home = tmp_path / "t-0"
    old = open_log(home, COMPACTED)
    fill(old, *(b"%d" % number * 40 for number in range(20)))
    plan = plan_compaction(old, 0, 0)
    assert plan is not None
    result = run_compaction(plan)
    old.close(clean=False)
    home.rename(tmp_path / "t-0.deleted")
    new = open_log(home, COMPACTED)
    expected = fill(new, *(b"new %d" % number * 10 for number in range(20)))
    before = names_and_bytes(home)
    for group in result.groups:
        with pytest.raises(LogClosed):
            old.install(group, 0)
    assert names_and_bytes(home) == before
    assert new.close()
    again = PartitionLog.open(home, COMPACTED, now_ms=0, clean=True, recovery_point=20)
    assert read_all(again) == expected


def compacted(log: PartitionLog) -> CompactionResult:
    plan = plan_compaction(log, 0, 0)
    assert plan is not None
    return run_compaction(plan)


def test_a_dropped_compaction_takes_nothing_from_the_one_after_it(tmp_path: Path) -> None:
    """The log was closed and opened again in its place, and both have compacted it."""
    old = open_log(tmp_path, COMPACTED)
    expected = fill(old, *(b"%d" % number * 40 for number in range(20)))[-300:]
    with old.lease():
        dropped = compacted(old)
        old.close()
        new = PartitionLog.open(
            tmp_path, COMPACTED, now_ms=0, clean=True, recovery_point=20, high_watermark=20
        )
        installed = compacted(new)
        dropped.discard(0)
    for group in installed.groups:
        assert new.install(group, 0)
    assert read_all(new).endswith(expected)
    assert new.close()
    again = PartitionLog.open(tmp_path, COMPACTED, now_ms=0, clean=True, recovery_point=20)
    assert read_all(again).endswith(expected)


def test_a_compacted_segment_that_is_gone_is_not_installed() -> None:
    storage = MemoryStorage()
    log = open_log(config=COMPACTED, storage=storage)
    fill(log, *(b"%d" % number * 40 for number in range(20)))
    result = compacted(log)
    result.discard(0)
    before = storage.listdir(HOME)
    with pytest.raises(StorageFailure):
        log.install(result.groups[0], 0)
    assert storage.listdir(HOME) == before


class NoMoreDirectories(OsStorage):
    """Real files; once told so no directory can be opened."""

    is_out = False

    def open_directory(self, path: Path) -> int:
        if self.is_out:
            raise OSError(errno.EMFILE, "too many open files", str(path))
        return super().open_directory(path)


def test_without_a_descriptor_for_its_directory_a_deleted_log_touches_nothing(
    tmp_path: Path,
) -> None:
    """Files are out when the topic is deleted under a compaction, and there again after it."""
    home, storage = tmp_path / "t-0", NoMoreDirectories()
    old = PartitionLog.open(home, COMPACTED, now_ms=0, storage=storage)
    fill(old, *(b"%d" % number * 40 for number in range(20)))
    plan = plan_compaction(old, 0, 0)
    assert plan is not None
    with old.lease():
        storage.is_out = True
        old.close(clean=False)
        home.rename(tmp_path / "t-0.deleted")
        storage.is_out = False
        new = open_log(home, COMPACTED)
        fill(new, b"y")
        before = names_and_bytes(home)
        with pytest.raises(OSError, match="directory is closed"):
            run_compaction(plan)
    assert names_and_bytes(home) == before


def test_a_closed_log_is_freed_without_the_garbage_collector() -> None:
    """A broker with thousands of logs freezes them: what is in a cycle would stay for ever."""
    log = open_log(storage=MemoryStorage())
    fill(log, b"a", b"b")
    with log.lease():
        log.close(clean=True)
    freed = weakref.ref(log)
    gc.disable()
    try:
        del log
        assert freed() is None
    finally:
        gc.enable()
