"""Sealed segments: descriptors and indexes come and go, and readers never notice."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.log.compaction import plan_compaction, run_compaction
from ottla.log.config import LogConfig
from ottla.log.errors import LogClosed, StorageFailure
from ottla.log.os_storage import OsStorage
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import Origin
from ottla.log.sealed import (
    INDEX_OVERHEAD,
    MAX_DESCRIPTORS,
    MIN_DESCRIPTORS,
    Budget,
    Sealed,
    descriptor_limit,
)
from ottla.log.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, CorruptSegment, segment_path
from ottla.log.tail import TailCache
from ottla.wire.batch import iter_batches
from ottla.wire.records import ControlType
from tests.support.log_batches import batch_of, marker, read_all
from tests.support.log_faults import MemoryStorage
from tests.support.sizes import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.log.segment import Segment
    from ottla.log.storage import Entry, File

HOME = Path("/data/t-0")
PATIENCE = 30.0
SMALL = LogConfig(
    segment_bytes=400, index_interval_bytes=1, retention_bytes=0, file_delete_delay_ms=0
)

COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)


def test_what_was_not_used_since_the_last_look_is_taken_out() -> None:
    budget: Budget[str] = Budget(10)
    for name in ("a", "b", "c"):
        budget.put(name, name.upper(), 2)
    budget.get("b")
    assert budget.take_unused() == ["A", "C"]
    assert (len(budget), budget.used) == (1, 2)
    assert budget.get("b") == "B"
    assert budget.take_unused() == []
    assert budget.take_unused() == ["B"]
    assert (len(budget), budget.used) == (0, 0)


def open_log(
    sealed: Sealed, home: Path = HOME, storage: Any = None, config: LogConfig = SMALL, **more: Any
) -> PartitionLog:
    return PartitionLog.open(
        home, config, now_ms=0, tail=TailCache(0), sealed=sealed, storage=storage, **more
    )


def fill(log: PartitionLog, segments: int) -> bytes:
    """Everything in the log, which has so many closed segments then."""
    while len(log.segments) <= segments:
        log.append(batch_of(b"%d" % log.log_end_offset), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(log.flush())
    return read_all(log)


# -- the budget -----------------------------------------------------------------------------------


def test_what_was_not_used_goes_first() -> None:
    kept: Budget[str] = Budget(10)
    for key in "abc":
        kept.put(key, key, 3)
    assert kept.get("a") == "a"
    kept.put("d", "d", 4)
    assert [kept.get(key) for key in "bcd"] == [None, "c", "d"]
    assert kept.used == 10
    kept.put("e", "e", 3)
    assert kept.get("a") is None, "it was passed over once, and not used since"
    assert [kept.get(key) for key in "cde"] == ["c", "d", "e"]
    kept.put("f", "f", 11)  # larger than all of it: its user has it, and nobody else
    assert (kept.get("f"), len(kept), kept.used) == (None, 3, 10)


def test_who_was_quicker_wins_unless_it_is_to_be_replaced() -> None:
    kept: Budget[str] = Budget(10)
    assert kept.put("a", "first", 4) == "first"
    assert kept.put("a", "second", 9) == "first"
    assert kept.used == 4
    assert kept.put("a", "third", 9, replace=True) == "third"
    assert kept.used == 9
    kept.drop("a")
    kept.drop("a")
    assert (kept.get("a"), kept.used) == (None, 0)


@pytest.mark.parametrize(
    ("nofile", "limit"),
    [(64, MIN_DESCRIPTORS), (1024, 128), (20_000, MAX_DESCRIPTORS), (1 << 30, MAX_DESCRIPTORS)],
)
def test_how_many_descriptors_there_are_for_sealed_segments(nofile: int, limit: int) -> None:
    assert descriptor_limit(nofile) == limit


# -- what is kept ---------------------------------------------------------------------------------


def test_only_the_last_segment_keeps_its_descriptor_and_indexes() -> None:
    storage, sealed = MemoryStorage(), Sealed(descriptors=2, index_bytes=1 << 20)
    log = open_log(sealed, storage=storage)
    everything = fill(log, 20)
    assert storage.open_files == 1 + 2
    assert log.close()
    assert (storage.open_files, sealed.files.used, sealed.indexes.used) == (0, 0, 0)
    log = open_log(sealed, storage=storage, clean=True)
    assert (storage.open_files, sealed.indexes.used) == (1, 0), "nobody has read it yet"
    assert read_all(log) == everything
    assert storage.open_files == 1 + 2


def test_indexes_of_sealed_segments_take_no_more_than_their_budget(tmp_path: Path) -> None:
    """Counted in bytes: 100 segments have ten times as much."""
    sealed = Sealed(descriptors=4, index_bytes=10_000)
    config = LogConfig(segment_bytes=8_000, index_interval_bytes=1)
    log = open_log(sealed, tmp_path, config=config)
    everything = fill(log, 100)
    closed = log.segments[:-1]
    of_all = sum(one.offset_index.nbytes + one.time_index.nbytes for one in closed)
    assert of_all + 200 * INDEX_OVERHEAD > 10 * sealed.indexes.limit
    for one in closed:
        assert len(one.offset_index) > 50
        assert log.offset_for_timestamp(1000) is not None
        assert sealed.indexes.used <= sealed.indexes.limit
        held = sealed.indexes._values.values()
        assert sealed.indexes.used == sum(one.value.nbytes + INDEX_OVERHEAD for one in held)
    assert read_all(log) == everything


def test_an_index_that_was_damaged_meanwhile_is_made_from_the_segment(tmp_path: Path) -> None:
    sealed = Sealed(descriptors=4, index_bytes=0)
    log = open_log(sealed, tmp_path)
    everything = fill(log, 3)
    first = log.segments[0]
    offsets, times = first.offset_index.encode(), first.time_index.encode()
    segment_path(tmp_path, 0, INDEX).unlink()
    segment_path(tmp_path, 0, TIME_INDEX).write_bytes(b"x" * 24)
    assert (first.offset_index.encode(), first.time_index.encode()) == (offsets, times)
    assert read_all(log) == everything
    assert log.online


@pytest.mark.parametrize("damaged", [None, b"", b"x" * 34])
def test_aborted_transactions_that_were_lost_meanwhile_are_never_read_as_none(
    tmp_path: Path, damaged: bytes | None
) -> None:
    sealed = Sealed(descriptors=4, index_bytes=0)
    log = open_log(sealed, tmp_path)
    log.append(
        batch_of(b"x", producer_id=1, epoch=0, sequence=0, transactional=True),
        leader_epoch=0,
        now_ms=0,
    )
    log.append(marker(ControlType.ABORT, 1, 0), leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
    fill(log, 2)
    expected = log.aborted_transactions(0, 1)
    assert [one.producer_id for one in expected] == [1]
    path = segment_path(tmp_path, 0, TXN_INDEX)
    if damaged is None:
        path.unlink()
    else:
        path.write_bytes(damaged)
    with pytest.raises(
        StorageFailure, match=r"0{20}\.log: its \.txnindex does not match its checksum"
    ):
        log.aborted_transactions(0, 1)
    assert not log.online
    log.close()
    again = open_log(sealed, tmp_path)  # which finds them again
    again.advance_high_watermark(again.flush())
    assert again.aborted_transactions(0, 1) == expected


def test_an_aborted_transaction_that_a_journal_brought_back_is_known_when_it_is_sealed() -> None:
    sealed = Sealed(descriptors=4, index_bytes=0)
    sent = open_log(sealed, storage=MemoryStorage())
    data = batch_of(b"x", producer_id=1, epoch=0, sequence=0, transactional=True)
    sent.append(data, leader_epoch=0, now_ms=0)
    end = marker(ControlType.ABORT, 1, 0)
    sent.append(end, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
    log = open_log(sealed, storage=MemoryStorage())
    for batch in iter_batches(memoryview(read_all(sent))):
        log.append_replayed(batch, 0)
    fill(log, 2)
    assert [one.producer_id for one in log.aborted_transactions(0, 1)] == [1]


# -- whose file it is -----------------------------------------------------------------------------


def test_a_file_that_was_put_in_the_place_of_a_sealed_one_is_not_read(tmp_path: Path) -> None:
    sealed = Sealed(descriptors=4)
    log = open_log(sealed, tmp_path)
    fill(log, 2)
    path = segment_path(tmp_path, 0, LOG)
    content = path.read_bytes()
    path.rename(tmp_path / "aside")
    path.write_bytes(content)
    sealed.files.clear()
    with pytest.raises(StorageFailure, match=f"{tmp_path.name}/0{{20}}.log: the file was removed"):
        log.read(0, 100, upper_bound_offset=1, min_one_message=True)


class RenamingStorage(OsStorage):
    """Renames the segment that is about to be opened, as retention and compaction do."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = int

    def open(self, path: Path | Entry, *, create: bool) -> int:
        if not create and path.name.endswith(LOG):
            todo, self.meanwhile = self.meanwhile, int
            todo()
        return super().open(path, create=create)


def test_a_segment_is_found_while_it_is_being_renamed(tmp_path: Path) -> None:
    storage, sealed = RenamingStorage(), Sealed(descriptors=4, index_bytes=0)
    log = open_log(sealed, tmp_path, storage)
    fill(log, 3)
    first = log.segments[0]
    with log.lease():
        before = first.read(0, 1000, 1, at_least_one=True)
        sealed.files.clear()
        storage.meanwhile = lambda: log.drop_local_segments(1, 0)
        assert first.read(0, 1000, 1, at_least_one=True) == before
        assert first.suffix.endswith(".deleted")


def test_the_successor_of_a_compacted_segment_is_not_taken_for_it(tmp_path: Path) -> None:
    """A reader asks for the old file by its name; by the time it opens it the new one has it."""
    storage, sealed = RenamingStorage(), Sealed(descriptors=4, index_bytes=0)
    log = open_log(sealed, tmp_path, storage, COMPACTED)
    fill(log, 3)
    with log.lease():
        first = log.segments[0]
        before = first.read(0, 1000, 1, at_least_one=True)
        plan = plan_compaction(log, 0, 10_000)
        assert plan is not None
        groups = run_compaction(plan).groups
        sealed.files.clear()
        storage.meanwhile = lambda: [log.install(group, 0) for group in groups]
        assert first.read(0, 1000, 1, at_least_one=True) == before
        assert log.segments[0] is not first
        assert log.segments[0].read(0, 1000, 1, at_least_one=True) != before


def test_a_reader_keeps_what_compaction_has_replaced_twice(tmp_path: Path) -> None:
    """Both that went had the same name."""
    sealed = Sealed(descriptors=4, index_bytes=0)
    log = open_log(sealed, tmp_path, config=COMPACTED)
    fill(log, 3)
    held, dirty = [], 0
    with log.lease():
        for segments in (4, 6):
            first = log.segments[0]
            held.append((first, first.read(0, 1000, 1, at_least_one=True)))
            plan = plan_compaction(log, dirty, 10_000)
            assert plan is not None
            result = run_compaction(plan)
            assert all(log.install(group, 0) for group in result.groups)
            dirty = result.first_dirty_offset
            fill(log, segments)
        sealed.files.clear()
        assert log.purge(0) == 0
        assert held[0][0] is not held[1][0]
        for segment, before in held:
            assert segment.read(0, 1000, 1, at_least_one=True) == before


def test_who_reads_a_deleted_log_is_told_that_it_is_closed(tmp_path: Path) -> None:
    sealed = Sealed(descriptors=4)
    log = open_log(sealed, tmp_path / "t-0")
    fill(log, 3)
    with log.lease():
        sealed.files.clear()
        log.begin_close()
        (tmp_path / "t-0").rename(tmp_path / "t-0-delete")
        assert log.segments[0].read(0, 100, 1, at_least_one=True)[0], "found by its directory"
        for file in (tmp_path / "t-0-delete").iterdir():
            file.unlink()
        sealed.files.clear()
        with pytest.raises(CorruptSegment) as gone:
            log.segments[0].read(0, 100, 1, at_least_one=True)
        assert isinstance(log._unreadable(gone.value), LogClosed)
        log.close()


# -- descriptors run out --------------------------------------------------------------------------


class ExhaustedStorage(OsStorage):
    """Has no descriptor left for segments that are opened again, so many times."""

    failures = 0

    def open(self, path: Path | Entry, *, create: bool) -> int:
        if not create and path.name.endswith(LOG) and self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return super().open(path, create=create)


def test_without_descriptors_what_is_kept_goes_and_a_log_stays_online(tmp_path: Path) -> None:
    storage, sealed = ExhaustedStorage(), Sealed(descriptors=4)
    log = open_log(sealed, tmp_path, storage)
    everything = fill(log, 8)
    assert len(sealed.files) == 4
    storage.failures = 1
    assert log.segments[0].read(0, 1000, 1, at_least_one=True)[0]
    assert len(sealed.files) == 1
    storage.failures = 2
    with pytest.raises(StorageFailure, match=r"cannot be read now.*raise the limit of open files"):
        log.read(log.segments[3].base_offset, 10, upper_bound_offset=100, min_one_message=True)
    assert log.online
    assert read_all(log) == everything


# -- readers --------------------------------------------------------------------------------------


class PausingReads(OsStorage):
    """Stops one read in the system call until it is told to go on."""

    def __init__(self) -> None:
        self.pause = False
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.closed: list[int] = []

    def close(self, fd: int) -> None:
        self.closed.append(fd)
        super().close(fd)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        if self.pause:
            self.pause = False
            self.reached.set()
            assert self.go_on.wait(PATIENCE)
        return super().pread(fd, size, position)


def test_what_goes_while_a_read_is_under_way_is_closed_after_it(tmp_path: Path) -> None:
    """The number of a descriptor that is closed under a reader is another file's at once."""
    storage, sealed = PausingReads(), Sealed(descriptors=1)
    log = open_log(sealed, tmp_path, storage)
    fill(log, 3)
    first = log.segments[0]
    before = first.read(0, 1000, 1, at_least_one=True)
    fd = first.file.fd
    with ThreadPoolExecutor(1) as pool:
        storage.pause = True
        read = pool.submit(first.read, 0, 1000, 1, at_least_one=True)
        try:
            assert storage.reached.wait(PATIENCE)
            storage.closed.clear()
            sealed.files.clear()
            assert fd not in storage.closed
        finally:
            storage.go_on.set()
        assert read.result(PATIENCE) == before
    assert fd in storage.closed


class Reader:
    """Somebody inside a log, with the segments it had then and maybe a file that is in use."""

    def __init__(self, log: PartitionLog) -> None:
        self.lease = log.lease()
        self.segments = log.segments
        self.sizes = [one.size for one in log.segments]
        self.contents = [content(one, one.size) for one in log.segments]
        self.using: File | None = None
        self.used = 0

    def check(self, number: int) -> None:
        number %= len(self.segments)
        assert content(self.segments[number], self.sizes[number]) == self.contents[number]


def content(segment: Segment, size: int) -> bytes:
    file = segment.file
    return segment.storage.pread(file.fd, size, 0)


class SealedMachine(RuleBasedStateMachine):
    """One log whose segments share two descriptors, and readers who are inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.sealed = Sealed(descriptors=2, index_bytes=2_000)
        self.config = LogConfig(
            segment_bytes=300,
            index_interval_bytes=1,
            retention_bytes=-1,
            file_delete_delay_ms=0,
            cleanup_policy=frozenset({"compact", "delete"}),
            min_cleanable_dirty_ratio=0.0,
        )
        self.log = open_log(self.sealed, storage=self.storage, config=self.config)
        self.readers: list[Reader] = []
        self.dirty = 0

    @rule(count=st.integers(1, 6), key=st.sampled_from([b"a", b"b", b"c"]))
    def append(self, count: int, key: bytes) -> None:
        for _ in range(count):
            value = b"%d" % self.log.log_end_offset
            self.log.append(batch_of(value, key=key), leader_epoch=0, now_ms=0)
        self.log.advance_high_watermark(self.log.flush())

    @rule()
    def come(self) -> None:
        if len(self.readers) < 4:
            self.readers.append(Reader(self.log))

    @precondition(lambda self: self.readers)
    @rule(who=st.integers(0, 3), number=st.integers(0, 9))
    def hold(self, who: int, number: int) -> None:
        """A read begins, and is not done yet."""
        reader = self.readers[who % len(self.readers)]
        reader.used = number % len(reader.segments)
        reader.using = reader.segments[reader.used].file

    @precondition(lambda self: self.readers)
    @rule(who=st.integers(0, 3))
    def leave(self, who: int) -> None:
        self.readers.pop(who % len(self.readers)).lease.release()

    @rule()
    def evict(self) -> None:
        self.sealed.files.clear()
        self.sealed.indexes.clear()

    @rule(share=st.integers(0, 4))
    def delete(self, share: int) -> None:
        start = self.log.log_start_offset
        self.log.delete_records_before(start + (self.log.high_watermark - start) * share // 4)
        self.log.apply_retention(0)

    @rule()
    def purge(self) -> None:
        self.log.purge(0)

    @rule()
    def swap(self) -> None:
        plan = plan_compaction(self.log, self.dirty, 10_000)
        if plan is not None:
            result = run_compaction(plan)
            for group in result.groups:
                assert self.log.install(group, 0)
            self.dirty = result.first_dirty_offset

    @precondition(lambda self: not self.readers)
    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        before = read_all(self.log)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.close(clean=clean)
        assert self.storage.open_files == 0
        assert (len(self.sealed.files), self.sealed.indexes.used) == (0, 0)
        self.log = open_log(
            self.sealed,
            storage=self.storage,
            config=self.config,
            clean=clean,
            recovery_point=end,
            log_start_offset=start,
        )
        self.log.advance_high_watermark(self.log.flush())
        assert read_all(self.log) == before

    @invariant()
    def readers_find_what_they_came_for(self) -> None:
        for reader in self.readers:
            for number in range(len(reader.segments)):
                reader.check(number)
            if reader.using is not None:
                found = self.storage.pread(reader.using.fd, reader.sizes[reader.used], 0)
                assert found == reader.contents[reader.used]

    @invariant()
    def indexes_lead_to_their_batches(self) -> None:
        for segment in self.log.segments:
            for _, header in segment.headers():
                position = segment.locate(header.last_offset)
                assert position is not None
                _, found = next(segment.headers(position))
                assert found.base_offset == header.base_offset

    @invariant()
    def nothing_is_kept_beyond_the_budgets(self) -> None:
        in_use = sum(reader.using is not None for reader in self.readers)
        assert self.storage.open_files <= 1 + self.sealed.files.limit + in_use
        assert self.sealed.files.used == len(self.sealed.files) <= self.sealed.files.limit
        assert self.sealed.indexes.used <= self.sealed.indexes.limit

    def teardown(self) -> None:
        while self.readers:
            self.readers.pop().lease.release()
        self.log.close()
        assert self.storage.open_files == 0


TestSealed = SealedMachine.TestCase
TestSealed.settings = settings(max_examples=examples(60), stateful_step_count=25)


def test_a_segment_that_is_gone_is_told_by_its_file(tmp_path: Path) -> None:
    sealed = Sealed(descriptors=4)
    log = open_log(sealed, tmp_path / "t-0")
    fill(log, 2)
    first = log.segments[0]
    log.drop_local_segments(1, 0)
    assert log.purge(0) == 1
    with pytest.raises(
        CorruptSegment, match=r"^t-0/0{20}\.log\.\d+\.deleted: the file was removed"
    ):
        first.read(0, 100, 1, at_least_one=True)
