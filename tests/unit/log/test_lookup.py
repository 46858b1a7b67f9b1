"""Offsets by time, aborted transactions by offset, and the last stable offset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import Origin
from ottla.log.reading import next_offset
from ottla.log.tail import TailCache
from ottla.wire.compression import Codec
from ottla.wire.records import ControlType
from tests.support.log_batches import batch_of, marker
from tests.support.log_faults import MemoryStorage
from tests.support.sizes import examples

if TYPE_CHECKING:
    from ottla.wire.batch import RecordBatch

HOME = Path("/data/t-0")


def new_log(config: LogConfig | None = None, storage: MemoryStorage | None = None) -> PartitionLog:
    return PartitionLog.open(
        HOME, config or LogConfig(), now_ms=0, storage=storage or MemoryStorage()
    )


@given(
    batches=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), max_size=25),
    log_start=st.integers(0, 20),
    reopen=st.booleans(),
)
@settings(max_examples=examples(150))
def test_time_lookup_is_exact(batches: list[list[int]], log_start: int, *, reopen: bool) -> None:
    config = LogConfig(segment_bytes=500, index_interval_bytes=90)
    storage = MemoryStorage()
    log = new_log(config, storage)
    times = [time for batch in batches for time in batch]
    for number, batch_times in enumerate(batches):
        codec = list(Codec)[number % 5]
        batch = batch_of(*[b"v" * 9] * len(batch_times), timestamps=batch_times, codec=codec)
        log.append(batch, leader_epoch=3, now_ms=0)
    log.advance_high_watermark(len(times))
    log_start = log.delete_records_before(min(log_start, len(times)))
    if reopen:
        log.close()
        log = PartitionLog.open(
            HOME, config, now_ms=0, clean=True, log_start_offset=log_start, storage=storage
        )
    rows = [(time, offset, 3) for offset, time in enumerate(times) if offset >= log_start]
    for target in range(42):
        expected = next((row for row in rows if row[0] >= target), None)
        assert log.offset_for_timestamp(target) == expected
    # A batch that the log start cuts still counts with its largest time, as its header has it.
    if log_start in range(len(times)) and not any(
        sum(map(len, batches[:number])) == log_start for number in range(len(batches))
    ):
        return
    newest = max((row[0] for row in rows), default=None)
    assert log.max_timestamp_offset() == next((row for row in rows if row[0] == newest), None)


def test_records_without_time_are_never_found() -> None:
    log = new_log()
    log.append(batch_of(b"x", timestamps=[-1]), leader_epoch=0, now_ms=0)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None


def test_log_append_time_is_the_time_of_every_record() -> None:
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime"))
    log.append(batch_of(b"a", b"b"), leader_epoch=0, now_ms=50)
    log.append(batch_of(b"c", b"d"), leader_epoch=0, now_ms=60)
    assert log.offset_for_timestamp(51) == (60, 2, 0)
    assert log.max_timestamp_offset() == (60, 2, 0)


def test_a_batch_that_cannot_be_read_is_found_as_a_whole() -> None:
    batch = batch_of(b"a", b"b", timestamps=[5, 9])
    batch.data[61:] = bytes(len(batch.data) - 61)
    batch.set_max_timestamp(9, log_append_time=False)
    log = new_log()
    log.append(batch, leader_epoch=0, now_ms=0)
    assert log.offset_for_timestamp(7) == (9, 0, 0)


class TestTransactions:
    CONFIG = LogConfig(segment_bytes=200)

    def send(self, log: PartitionLog, pid: int, sequence: int) -> int:
        batch = batch_of(b"t" * 20, producer_id=pid, epoch=0, sequence=sequence, transactional=True)
        return self.put(log, batch, Origin.CLIENT)

    def end(self, log: PartitionLog, pid: int, kind: ControlType) -> int:
        return self.put(log, marker(kind, pid, 0), Origin.COORDINATOR)

    def put(self, log: PartitionLog, batch: RecordBatch, origin: Origin) -> int:
        result = log.append(batch, leader_epoch=0, now_ms=0, origin=origin)
        log.advance_high_watermark(log.log_end_offset)
        return result.base_offset

    def script(self, storage: MemoryStorage) -> PartitionLog:
        log = new_log(self.CONFIG, storage)
        self.send(log, 1, 0)  # 0
        self.send(log, 2, 0)  # 1
        self.end(log, 2, ControlType.ABORT)  # 2
        self.send(log, 2, 1)  # 3
        self.end(log, 1, ControlType.ABORT)  # 4
        self.end(log, 2, ControlType.COMMIT)  # 5
        self.send(log, 3, 0)  # 6
        self.end(log, 3, ControlType.ABORT)  # 7
        self.send(log, 1, 1)  # 8
        return log

    EXPECTED = ((1, 0, 4, 3), (2, 1, 2, 0), (3, 6, 7, 8))

    def test_last_stable_offset(self) -> None:
        log = new_log(self.CONFIG)
        self.send(log, 1, 0)
        assert log.last_stable_offset == 0
        self.send(log, 2, 0)
        self.end(log, 1, ControlType.COMMIT)
        assert log.last_stable_offset == 1
        log.append(marker(ControlType.COMMIT, 2, 0), leader_epoch=0, now_ms=0)
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (4, 3, 1)
        log.advance_high_watermark(4)
        assert log.last_stable_offset == 4

    @pytest.mark.parametrize("stop", ["none", "clean", "crash", "snapshots lost"])
    def test_aborted_transactions(self, stop: str) -> None:
        storage = MemoryStorage()
        log = self.script(storage)
        assert len(log.segments) > 3
        if stop != "none":
            clean = stop == "clean"
            log.close(clean=clean)
            if stop == "snapshots lost":
                for name in storage.listdir(HOME):
                    if name.endswith(".snapshot"):
                        storage.unlink(HOME / name)
            log = PartitionLog.open(
                HOME, self.CONFIG, now_ms=0, clean=clean, high_watermark=9, storage=storage
            )
        assert log.aborted_transactions(0, 9) == list(self.EXPECTED)
        assert log.aborted_transactions(0, 1) == [self.EXPECTED[0]]
        assert log.aborted_transactions(3, 9) == [self.EXPECTED[0], self.EXPECTED[2]]
        assert log.aborted_transactions(5, 6) == []
        assert log.last_stable_offset == 8


STEPS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(["send", "abort", "commit"])), max_size=40
)


@given(steps=STEPS, segment_bytes=st.sampled_from([200, 700, 1 << 20]))
@settings(max_examples=examples(60))
def test_aborted_transactions_of_every_range(
    steps: list[tuple[int, str]], segment_bytes: int
) -> None:
    storage = MemoryStorage()
    config = LogConfig(segment_bytes=segment_bytes)
    log = PartitionLog.open(Path("/t-0"), config, now_ms=0, tail=TailCache(0), storage=storage)
    sequences = dict.fromkeys(range(1, 5), 0)
    started: dict[int, int] = {}
    expected: list[tuple[int, int, int]] = []
    for producer_id, step in steps:
        end = log.log_end_offset
        if step == "send":
            batch = batch_of(
                b"x",
                producer_id=producer_id,
                epoch=0,
                sequence=sequences[producer_id],
                transactional=True,
            )
            log.append(batch, leader_epoch=0, now_ms=0)
            sequences[producer_id] += 1
            started.setdefault(producer_id, end)
            continue
        kind = ControlType.ABORT if step == "abort" else ControlType.COMMIT
        ending = marker(kind, producer_id, 0)
        log.append(ending, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
        first = started.pop(producer_id, None)
        if step == "abort" and first is not None:
            expected.append((producer_id, first, end))
    end = log.log_end_offset
    for first in range(end):
        for bound in range(first + 1, end + 1):
            found = [entry[:3] for entry in log.aborted_transactions(first, bound)]
            assert sorted(found) == sorted(e for e in expected if e[2] >= first and e[1] < bound)


class TestManyAborted:
    """5,000 aborted transactions of one record each: what costs little must stay little."""

    @pytest.fixture
    def log(self) -> PartitionLog:
        storage = MemoryStorage()
        log = PartitionLog.open(Path("/t-0"), LogConfig(), now_ms=0, storage=storage)
        for number in range(5000):
            data = batch_of(b"x", producer_id=1, epoch=0, sequence=number, transactional=True)
            log.append(data, leader_epoch=0, now_ms=0)
            ending = marker(ControlType.ABORT, 1, 0)
            log.append(ending, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
            log.advance_high_watermark(log.log_end_offset)
        return log

    def test_a_small_read_carries_few(self, log: PartitionLog) -> None:
        chunks, _ = log.read(
            4000, 300, upper_bound_offset=log.last_stable_offset, min_one_message=True
        )
        found = log.aborted_in(4000, chunks)
        assert [entry.first_offset for entry in found] == [4000, 4002]
        assert next_offset(chunks) == 4004

    def test_ended_transactions_are_forgotten_though_nobody_reads(self, log: PartitionLog) -> None:
        assert not log._producers._ended

    def test_each_takes_32_bytes(self, log: PartitionLog) -> None:
        (segment,) = log.segments
        assert len(segment.aborted) == 5000
        assert sys.getsizeof(segment.aborted._values) < 5000 * 32 * 1.2
