"""The whole log against a list of batches, through rolls, crashes, restarts and deletions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.log import partition
from ottla.log.appending import AppendResult
from ottla.log.config import LogConfig
from ottla.log.errors import OffsetOutOfRange
from ottla.log.partition import SCANNED_BYTES, PartitionLog
from ottla.log.sealed import Sealed
from ottla.log.tail import TailCache
from ottla.wire.batch import RecordBatch, iter_batches
from ottla.wire.compression import Codec
from tests.support.log_batches import batch_of, batches_in, joined, read_all
from tests.support.log_faults import MemoryStorage, Survival
from tests.support.sizes import examples

HOME = Path("/data/t-0")
Contents = list[tuple[list[int], Codec]]  # of each batch: the sizes of its records, and the codec
CONTENTS = st.lists(
    st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=3), st.sampled_from(list(Codec))),
    min_size=1,
    max_size=4,
)
# Batches of few sizes: one that was cut off can end where one that replaced it ends.
ALIKE = st.lists(
    st.tuples(st.lists(st.sampled_from([0, 30]), min_size=1, max_size=2), st.just(Codec.NONE)),
    min_size=1,
    max_size=4,
)


class LogModel(RuleBasedStateMachine):
    """`batches` is what the log must hold from the model's point of view; it never forgets."""

    @rule(size=st.sampled_from([0, SCANNED_BYTES]))
    def scan_up_to(self, size: int) -> None:
        """How large a last segment may be that is closed without anything written about it."""
        partition.SCANNED_BYTES = size  # type: ignore[misc]

    def teardown(self) -> None:
        partition.SCANNED_BYTES = SCANNED_BYTES  # type: ignore[misc]

    @initialize(
        segment_bytes=st.sampled_from([120, 400, 1500]),
        interval=st.sampled_from([1, 150, 4096]),
        tail_bytes=st.sampled_from([0, 300, 1 << 20]),
    )
    def start(self, segment_bytes: int, interval: int, tail_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_ms=50,
            segment_ms=200,
            file_delete_delay_ms=10,
        )
        self.tail_bytes = tail_bytes
        self.storage = MemoryStorage()
        self.batches: list[RecordBatch] = []
        self.now = 1000
        self.flushed = 0
        self.log_start = 0
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            HOME,
            self.config,
            now_ms=self.now,
            clean=clean,
            recovery_point=self.flushed,
            high_watermark=self.flushed,
            log_start_offset=self.log_start,
            tail=TailCache(self.tail_bytes),
            sealed=Sealed(1, 600),  # less than two segments need: what it keeps comes and goes
            storage=self.storage,
        )

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def make(self, sizes: list[int], codec: Codec) -> RecordBatch:
        values = [bytes([len(self.batches) % 256]) * size for size in sizes]
        return batch_of(*values, timestamps=[self.now] * len(values), codec=codec)

    def note(self, batch: RecordBatch, base: int) -> None:
        copy = RecordBatch(memoryview(bytearray(batch.data)))
        copy.assign(base, self.now // 200)
        self.batches.append(copy)

    @rule(batches=CONTENTS)
    def append(self, batches: Contents) -> None:
        made = [self.make(*content) for content in batches]
        results = self.log.append_many(made, leader_epoch=self.now // 200, now_ms=self.now)
        for batch, result in zip(made, results, strict=True):
            expected = AppendResult(
                self.end, self.end + batch.last_offset_delta, -1, self.log_start, duplicate=False
            )
            assert result == expected
            self.note(batch, self.end)

    @rule(milliseconds=st.integers(1, 120))
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds

    @rule(data=st.data(), max_bytes=st.integers(0, 900), at_least_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, *, at_least_one: bool) -> None:
        offset = data.draw(st.integers(self.log_start, self.end))
        bound = data.draw(st.sampled_from([self.end, self.log.high_watermark]))
        result = self.log.read(
            offset, max_bytes, upper_bound_offset=bound, min_one_message=at_least_one
        )
        expected = b""
        for batch in self.batches:
            if batch.last_offset < offset or batch.base_offset >= bound or offset >= bound:
                continue
            if len(expected) + batch.size > max_bytes and (expected or not at_least_one):
                break
            expected += batch.data
            if len(expected) > max_bytes:
                break
        assert joined(result) == expected

    @rule()
    def read_outside(self) -> None:
        for offset in (self.log_start - 1, self.end + 1):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 1, upper_bound_offset=self.end, min_one_message=True)

    @rule(age=st.integers(0, 400))
    def look_up_time(self, age: int) -> None:
        found = self.log.offset_for_timestamp(self.now - age)
        live = [batch for batch in self.batches if batch.last_offset >= self.log_start]
        match = next((batch for batch in live if batch.max_timestamp >= self.now - age), None)
        if match is None:
            assert found is None
        else:
            assert found is not None
            assert found.offset == max(match.base_offset, self.log_start)
            assert found.leader_epoch == match.partition_leader_epoch

    @rule()
    def flush(self) -> None:
        self.flushed = self.log.flush()
        assert self.flushed == self.end
        assert self.log.advance_high_watermark(self.flushed) == self.end
        assert self.log.unflushed == 0

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.log.high_watermark))
        self.log_start = max(self.log_start, offset)
        assert self.log.delete_records_before(offset) == self.log_start

    @rule()
    def retention(self) -> None:
        for segment in self.log.apply_retention(self.now):
            assert segment.next_offset <= self.log.high_watermark
            old = self.now - segment.max_timestamp > self.config.retention_ms
            assert old or segment.next_offset <= self.log_start
        assert self.log.log_start_offset >= self.log_start
        self.log_start = self.log.log_start_offset
        self.log.purge(self.now)

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.flushed = self.log.recovery_point
        assert self.flushed == self.end
        assert self.storage.open_files == 0
        self.open(clean=True)

    @rule(survival=st.sampled_from(list(Survival)))
    def crash(self, survival: Survival) -> None:
        self.storage = self.storage.crash(survival)
        self.open(clean=False)
        assert self.flushed <= self.log.log_end_offset <= self.end
        while self.batches and self.batches[-1].next_offset > self.log.log_end_offset:
            self.batches.pop()
        assert self.log.log_end_offset == max(self.end, self.log.log_start_offset)

    @precondition(lambda self: self.end < 60)
    @invariant()
    def same_content(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.log_start, self.end)
        expected = [b.data for b in self.batches if b.last_offset >= self.log_start]
        assert read_all(self.log) == b"".join(expected)
        for batch in self.batches:
            if batch.base_offset >= self.log_start:
                assert self.log.epochs.epoch_at(batch.base_offset) == batch.partition_leader_epoch
        bases = [segment.base_offset for segment in self.log.segments]
        assert bases == sorted(set(bases))
        assert self.log.size_bytes == sum(b.size for b in self.batches if b.base_offset >= bases[0])


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=examples(120), stateful_step_count=30)


def _cut_twice(last: list[int]) -> list[tuple[Contents, Survival]]:
    """Half of the second step survives; recovery cuts a torn batch, and the third overwrites it."""
    long = [([0], Codec.ZSTD), ([0, 29], Codec.NONE), ([0], Codec.GZIP), ([0, 0, 0], Codec.ZSTD)]
    return [
        ([([0], Codec.NONE)], Survival.NOTHING),
        (long, Survival.HALF),
        ([([0], Codec.NONE), (last, Codec.NONE)], Survival.HALF),
    ]


@example(segment_bytes=400, crashes=_cut_twice([0, 0]))
@example(segment_bytes=400, crashes=_cut_twice([0]))
@given(
    segment_bytes=st.sampled_from([120, 400, 1500]),
    crashes=st.lists(st.tuples(ALIKE, st.sampled_from(list(Survival))), min_size=2, max_size=6),
)
@settings(max_examples=examples(200))
def test_crash_after_crash(segment_bytes: int, crashes: list[tuple[Contents, Survival]]) -> None:
    """Nothing is synced in between but what recovery itself makes durable."""
    model = LogModel()
    model.start(segment_bytes=segment_bytes, interval=1, tail_bytes=0)
    for batches, survival in crashes:
        model.append(batches)
        model.crash(survival)
        model.same_content()


def test_a_flush_covers_what_came_before_it(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, replace(LogConfig(), segment_bytes=300), now_ms=0)
    for _ in range(7):
        log.append(batch_of(b"x" * 60), leader_epoch=0, now_ms=0)
    assert log.flush() == 7
    log.append(batch_of(b"y"), leader_epoch=0, now_ms=0)
    assert (log.recovery_point, log.unflushed) == (7, 1)
    result = log.read(0, 1 << 20, upper_bound_offset=7, min_one_message=True)
    assert len(batches_in(result)) == 7
    assert len(list(iter_batches(memoryview(read_all(log))))) == 8


def test_flush_lookup_and_purge_run_beside_appends(tmp_path: Path) -> None:
    """Real files, real threads: the calls that may block run while the log grows and rolls."""
    config = LogConfig(segment_bytes=2000, retention_bytes=20_000, file_delete_delay_ms=0)
    log = PartitionLog.open(tmp_path, config, now_ms=0, tail=TailCache(500))
    done = threading.Event()

    def work() -> list[int]:
        flushed = []
        while not done.is_set():
            flushed.append(log.flush())
            found = log.offset_for_timestamp(1000 + flushed[-1] // 2)
            assert found is None or found.timestamp >= 1000
            log.purge(1)
        return flushed

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work)
        try:
            for number in range(1500):
                batch = batch_of(b"%d" % number, timestamps=[1000 + number])
                assert log.append(batch, leader_epoch=0, now_ms=0).base_offset == number
                if number % 100 == 0:
                    log.advance_high_watermark(log.recovery_point)
                    log.apply_retention(0)
        finally:
            done.set()
        flushed = worker.result()
    assert flushed == sorted(flushed)
    log.close()
    again = PartitionLog.open(tmp_path, config, now_ms=0, clean=True)
    assert again.log_end_offset == 1500
    stored = list(iter_batches(memoryview(read_all(again))))
    assert [b.base_offset for b in stored] == list(range(again.log_start_offset, 1500))
