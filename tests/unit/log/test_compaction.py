"""Compaction: what stays, what goes, and what a crash leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.compaction import (
    CompactionResult,
    dirty_ratio,
    plan_compaction,
    run_compaction,
)
from ottla.log.config import LogConfig
from ottla.log.errors import StorageFailure
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import Origin
from ottla.log.sealed import Sealed
from ottla.log.tail import TailCache
from ottla.wire.batch import RecordBatch, iter_batches
from ottla.wire.builder import BatchBuilder
from ottla.wire.compression import Codec
from ottla.wire.records import ControlType, Record, iter_records
from tests.support.log_batches import batches_in, marker, read_all
from tests.support.log_faults import Fault, MemoryStorage, PowerLoss, Survival
from tests.support.sizes import examples, some

HOME = Path("/data/t-0")
CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    file_delete_delay_ms=10,
)
NOW = 50_000

Row = tuple[bytes, bytes | None]


class Topic:
    """A compacted log with the conveniences of a producer."""

    def __init__(
        self,
        config: LogConfig = CONFIG,
        storage: MemoryStorage | None = None,
        tail_bytes: int = 0,
    ) -> None:
        self.config = config
        self.tail_bytes = tail_bytes
        self.storage = storage or MemoryStorage()
        self.dirty = 0
        self.sequences: dict[int, int] = {}
        self.open(clean=False)

    def open(self, *, clean: bool, recovery_point: int = 0) -> None:
        self.log = PartitionLog.open(
            HOME,
            self.config,
            now_ms=0,
            clean=clean,
            recovery_point=recovery_point,
            high_watermark=1 << 40,
            tail=TailCache(self.tail_bytes),
            sealed=Sealed(1, 600),  # less than two segments need: what it keeps comes and goes
            storage=self.storage,
        )

    def send(self, *rows: Row, pid: int = -1, txn: bool = False, codec: Codec = Codec.NONE) -> None:
        builder = BatchBuilder(
            codec=codec,
            producer_id=pid,
            producer_epoch=0 if pid >= 0 else -1,
            base_sequence=self.sequences.get(pid, 0) if pid >= 0 else -1,
            transactional=txn,
        )
        for number, (key, value) in enumerate(rows):
            builder.append(value, key=key, timestamp=1000 + number, headers=[("h", key)])
        self.put(RecordBatch(memoryview(builder.build())))
        self.sequences[pid] = self.sequences.get(pid, 0) + len(rows)

    def end(self, pid: int, kind: ControlType) -> None:
        self.put(marker(kind, pid, 0), Origin.COORDINATOR)

    def put(self, batch: RecordBatch, origin: Origin = Origin.CLIENT) -> None:
        self.log.append(batch, leader_epoch=0, now_ms=0, origin=origin)

    def seal(self) -> None:
        """Everything so far into closed, durable, decided segments."""
        self.log._roll(0)
        self.log.advance_high_watermark(self.log.flush())

    def compact(self, now_ms: int = NOW, max_keys: int = 10_000) -> CompactionResult | None:
        plan = plan_compaction(self.log, self.dirty, now_ms)
        if plan is None:
            return None
        result = run_compaction(plan, max_keys)
        for group in result.groups:
            assert self.log.install(group, now_ms)
        self.dirty = result.first_dirty_offset
        return result

    def batches(self) -> list[RecordBatch]:
        batches = list(iter_batches(memoryview(read_all(self.log))))
        for batch in batches:
            batch.verify_crc()
        return batches

    def records(self) -> list[Record]:
        return [r for b in self.batches() if not b.is_control for r in iter_records(b)]

    def committed(self) -> list[Record]:
        """What a client with read_committed makes of one large fetch, by the rules of KIP-98."""
        log = self.log
        start = log.log_start_offset
        end = log.last_stable_offset
        found = log.read(start, 1 << 30, upper_bound_offset=end, min_one_message=True)
        left = [*log.aborted_in(start, found.chunks)]
        skipped: set[int] = set()
        records: list[Record] = []
        for batch in batches_in(found):
            while left and left[0].first_offset <= batch.last_offset:
                skipped.add(left.pop(0).producer_id)
            if batch.is_control:
                (control,) = iter_records(batch)
                assert control.key is not None
                if control.key[3] == ControlType.ABORT:
                    skipped.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in skipped):
                records += iter_records(batch)
        return records

    def rows(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records()]


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
@pytest.mark.parametrize("codec", list(Codec))
def test_the_last_value_of_each_key_stays_where_it_was(codec: Codec, tail_bytes: int) -> None:
    topic = Topic(tail_bytes=tail_bytes)
    topic.send((b"a", b"1"), (b"b", b"1"), codec=codec)
    topic.send((b"a", b"2"), (b"c", b"1"), codec=codec)
    topic.send((b"b", b"2"), codec=codec)
    topic.seal()
    before = {record.offset: record for record in topic.records()}
    topic.compact()
    assert topic.rows() == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert all(before[record.offset] == record for record in topic.records())
    assert {batch.codec for batch in topic.batches()} == {codec}
    assert topic.log.log_end_offset == 5
    assert topic.dirty == 5


def test_the_active_segment_is_left_alone() -> None:
    topic = Topic()
    topic.send((b"a", b"1"))
    topic.seal()
    topic.send((b"a", b"2"))
    topic.compact()
    assert topic.rows() == [(0, b"a", b"1"), (1, b"a", b"2")]


def test_segments_are_merged_up_to_the_segment_size() -> None:
    topic = Topic(replace(CONFIG, segment_bytes=800))
    for number in range(60):
        topic.send((b"k%d" % (number % 5), b"v" * 60))
    topic.seal()
    count = len(topic.log.segments)
    topic.compact()
    topic.compact(max_keys=1)
    assert [offset for offset, _, _ in topic.rows()] == [55, 56, 57, 58, 59]
    topic.dirty = 0
    topic.compact()
    assert len(topic.log.segments) < count
    ends = [segment.next_offset for segment in topic.log.segments]
    assert ends[:-1] == [segment.base_offset for segment in topic.log.segments[1:]]


def test_a_full_map_cleans_what_it_covers() -> None:
    topic = Topic()
    for number in range(6):
        topic.send((b"k%d" % (number % 3), b"v"))
    topic.seal()
    topic.compact(max_keys=2)
    assert topic.dirty == 2
    topic.compact(max_keys=3)
    topic.compact(max_keys=3)
    assert topic.rows() == [(3, b"k0", b"v"), (4, b"k1", b"v"), (5, b"k2", b"v")]


def test_a_tombstone_the_map_does_not_reach_outlives_the_values_before_it() -> None:
    topic = Topic()
    topic.send((b"a", b"1"), pid=1, txn=True)
    topic.end(1, ControlType.COMMIT)
    topic.send((b"a", None), (b"a", None))
    topic.seal()
    for now_ms in (NOW, NOW + 2000):
        topic.compact(now_ms, max_keys=1)
        assert topic.rows() == [(0, b"a", b"1"), (2, b"a", None), (3, b"a", None)]
    topic.compact(NOW + 2001)
    assert topic.rows() == [(3, b"a", None)]


def test_reads_across_the_gaps() -> None:
    topic = Topic()
    for number in range(20):
        topic.send((b"same" if number < 19 else b"other", b"v" * 30))
    topic.seal()
    topic.send((b"tail", b"v"))
    topic.compact()
    end = topic.log.log_end_offset
    for offset in range(21):
        result = topic.log.read(offset, 1, upper_bound_offset=end, min_one_message=True)
        (batch,) = iter_batches(memoryview(b"".join(result.chunks)))
        assert batch.last_offset >= offset


class TestWhen:
    def topic(self, **changes: float) -> Topic:
        topic = Topic(replace(CONFIG, **changes))  # type: ignore[arg-type]  # by field name
        for number in range(8):
            topic.send((b"k", b"v%d" % number * 20))
        topic.seal()
        return topic

    def test_dirty_ratio(self) -> None:
        topic = self.topic(min_cleanable_dirty_ratio=0.5)
        assert dirty_ratio(topic.log.segments, 0) == 1.0
        topic.compact()
        assert topic.compact() is None
        topic.send((b"x", b"v"))
        topic.seal()
        assert 0.0 < dirty_ratio(topic.log.segments, topic.dirty) < 0.5
        assert topic.compact() is None
        for number in range(30):
            topic.send((b"k", b"v%d" % number * 20))
        topic.seal()
        assert topic.compact() is not None

    def test_max_lag_overrides_the_ratio(self) -> None:
        topic = self.topic(min_cleanable_dirty_ratio=1.1, max_compaction_lag_ms=500)
        assert topic.compact(now_ms=1500) is None
        assert topic.compact(now_ms=1501) is not None

    def test_min_lag_keeps_young_records(self) -> None:
        topic = self.topic(min_compaction_lag_ms=500)
        assert topic.compact(now_ms=1499) is None
        assert topic.compact(now_ms=1500) is not None

    def test_nothing_past_the_recovery_point_or_an_open_transaction(self) -> None:
        topic = self.topic()
        topic.log.recovery_point = 0
        assert topic.compact() is None
        other = Topic()
        other.send((b"k", b"v"), pid=5, txn=True)
        other.seal()
        assert other.compact() is None

    def test_only_topics_that_ask_for_it(self) -> None:
        assert self.topic(cleanup_policy=frozenset({"delete"})).compact() is None  # type: ignore[arg-type]  # any field


class TestTombstones:
    def test_stay_until_their_horizon(self) -> None:
        topic = Topic()
        topic.send((b"a", b"1"))
        topic.send((b"a", None), (b"b", b"1"))
        topic.seal()
        times = {record.offset: record.timestamp for record in topic.records()}
        topic.compact(NOW)
        assert topic.rows() == [(1, b"a", None), (2, b"b", b"1")]
        (batch,) = topic.batches()
        assert batch.delete_horizon_ms == NOW + 1000
        assert {r.offset: r.timestamp for r in topic.records()} == {1: times[1], 2: times[2]}
        topic.dirty = 0
        topic.compact(NOW + 999)
        assert topic.rows() == [(1, b"a", None), (2, b"b", b"1")]
        assert topic.batches()[0].delete_horizon_ms == NOW + 1000
        topic.dirty = 0
        topic.compact(NOW + 1000)
        assert topic.rows() == [(2, b"b", b"1")]
        assert topic.records()[0].timestamp == times[2]

    def test_a_newer_value_wins(self) -> None:
        topic = Topic()
        topic.send((b"a", None))
        topic.send((b"a", b"2"))
        topic.seal()
        topic.compact()
        assert topic.rows() == [(1, b"a", b"2")]


class TestProducers:
    def test_the_last_sequence_survives_as_an_empty_batch(self) -> None:
        topic = Topic()
        topic.send((b"a", b"1"), (b"b", b"1"), pid=7)
        topic.send((b"a", b"2"), (b"b", b"2"))
        topic.send((b"c", b"2"))
        topic.seal()
        topic.compact()
        empty = topic.batches()[0]
        assert (empty.record_count, empty.base_offset, empty.last_offset) == (0, 0, 1)
        assert (empty.producer_id, empty.base_sequence, empty.last_sequence) == (7, 0, 1)
        topic.log.close(clean=False)
        for name in topic.storage.listdir(HOME):
            if name.endswith(".snapshot"):
                topic.storage.unlink(HOME / name)
        topic.open(clean=False)
        topic.send((b"a", b"3"), pid=7)
        assert topic.log.log_end_offset == 6

    def test_aborted_data_goes_and_markers_follow(self) -> None:
        topic = Topic()
        topic.send((b"a", b"committed"), pid=1, txn=True)
        topic.end(1, ControlType.COMMIT)
        topic.send((b"a", b"aborted"), pid=2, txn=True)
        topic.end(2, ControlType.ABORT)
        for pid in (1, 2):  # so that the markers are not the producers' last word
            topic.send((b"p%d" % pid, b"x"), pid=pid, txn=True)
            topic.end(pid, ControlType.COMMIT)
        topic.seal()
        topic.compact(NOW)
        assert topic.rows() == [(0, b"a", b"committed"), (4, b"p1", b"x"), (6, b"p2", b"x")]
        controls = {b.base_offset: b.delete_horizon_ms for b in topic.batches() if b.is_control}
        assert controls == {1: None, 3: NOW + 1000, 5: None, 7: None}
        assert topic.log.aborted_transactions(0, 8) == [], "of data that is gone nothing is told"
        topic.dirty = 0
        topic.compact(NOW + 1000)
        assert [b.base_offset for b in topic.batches() if b.is_control] == [1, 5, 7]
        committed = [(record.offset, record.key, record.value) for record in topic.committed()]
        assert committed == topic.rows()
        topic.log.close()
        topic.open(clean=True)
        assert topic.log.last_stable_offset == 8

    def test_a_marker_goes_after_the_data_it_decided(self) -> None:
        topic = Topic()
        topic.send((b"a", b"1"), pid=1, txn=True)
        topic.end(1, ControlType.COMMIT)
        topic.send((b"a", b"2"), pid=1, txn=True)
        topic.end(1, ControlType.COMMIT)
        topic.seal()
        topic.compact(NOW)
        assert topic.rows() == [(2, b"a", b"2")]
        assert [b.base_offset for b in topic.batches() if b.is_control] == [1, 3]
        topic.dirty = 0
        topic.compact(NOW + 1000)
        assert [b.base_offset for b in topic.batches() if b.is_control] == [3]


@pytest.mark.parametrize("clean", [True, False, None])
def test_an_emptied_batch_has_no_time(*, clean: bool | None) -> None:
    topic = Topic()
    topic.send((b"a", b"1"))
    topic.send((b"z", b"1"), (b"z", b"2"), (b"z", b"3"), pid=7)  # times up to 1002
    topic.seal()
    topic.send((b"z", b"4"))
    topic.seal()
    topic.compact()
    if clean is not None:
        topic.log.close(clean=clean)
        topic.open(clean=clean)
    assert [batch.record_count for batch in topic.batches()] == [1, 0, 1]
    assert topic.log.max_timestamp_offset() == (1000, 0, 0)
    assert topic.log.offset_for_timestamp(1001) is None
    assert topic.log.producers()[0].last_timestamp == 1002


def test_records_nobody_can_read_stay() -> None:
    topic = Topic()
    builder = BatchBuilder()
    builder.append(b"v", key=b"k", timestamp=5)
    batch = RecordBatch(memoryview(builder.build()))
    batch.data[61:] = bytes(len(batch.data) - 61)
    batch.set_max_timestamp(5, log_append_time=False)
    topic.put(batch)
    topic.send((b"k", b"v"))
    topic.seal()
    topic.compact()
    assert [b.base_offset for b in topic.batches()] == [0, 1]


def test_what_is_installed_stays_when_the_rest_is_discarded() -> None:
    """Fault: a log that was closed in the middle of an installation lost what was installed."""
    topic = Topic()
    for number in range(30):
        topic.send((b"%d" % number, b"v" * 50))
    topic.seal()
    before = topic.rows()
    plan = plan_compaction(topic.log, 0, NOW)
    assert plan is not None
    result = run_compaction(plan)
    assert len(result.groups) > 1
    assert topic.log.install(result.groups[0], NOW)
    result.discard(1)
    assert topic.rows() == before
    assert not [name for name in topic.storage.listdir(HOME) if name.endswith(".cleaned")]


def test_install_gives_way_to_retention() -> None:
    topic = Topic(replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1))
    for _ in range(12):
        topic.send((b"k", b"v" * 50))
    topic.seal()
    plan = plan_compaction(topic.log, 0, NOW)
    assert plan is not None
    result = run_compaction(plan)
    assert topic.log.apply_retention(NOW)
    assert not any(topic.log.install(group, NOW) for group in result.groups)
    assert not [name for name in topic.storage.listdir(HOME) if name.endswith(".cleaned")]


@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from([-1, 1, 2]),
            st.lists(
                st.tuples(
                    st.sampled_from([b"a", b"b", b"c", b"d"]), st.none() | st.binary(max_size=9)
                ),
                min_size=1,
                max_size=4,
            ),
            st.sampled_from(["plain", "commit", "abort"]),
            st.sampled_from(list(Codec)),
        ),
        min_size=1,
        max_size=25,
    ),
    rounds=st.lists(
        st.tuples(st.sampled_from([10, 600, 2000]), st.booleans()), min_size=1, max_size=3
    ),
    max_keys=st.sampled_from([1, 3, 100]),
)
@settings(max_examples=examples(150))
def test_the_table_is_the_same_before_and_after(
    batches: list[tuple[int, list[Row], str, Codec]],
    rounds: list[tuple[int, bool]],
    max_keys: int,
) -> None:
    topic = Topic()
    aborted: set[int] = set()
    for pid, rows, outcome, codec in batches:
        txn = pid >= 0 and outcome != "plain"
        base = topic.log.log_end_offset
        topic.send(*rows, pid=pid, txn=txn, codec=codec)
        if txn:
            commit = outcome == "commit"
            topic.end(pid, ControlType.COMMIT if commit else ControlType.ABORT)
            if not commit:
                aborted.update(range(base, base + len(rows)))
    topic.seal()
    original = {record.offset: record for record in topic.records()}

    def table(visible: list[Record]) -> dict[bytes | None, bytes]:
        latest = {record.key: record.value for record in visible}
        return {key: value for key, value in latest.items() if value is not None}

    def stays() -> None:
        visible = [record for record in topic.records() if record.offset not in aborted]
        assert table(visible) == before
        assert table(topic.committed()) == before

    before = table([record for record in topic.records() if record.offset not in aborted])
    end, now = topic.log.log_end_offset, NOW
    stays()
    for wait, again in rounds:
        now += wait
        if again:
            topic.dirty = 0  # as if new records had come
        topic.compact(now, max_keys)
        stays()
        assert all(original[record.offset] == record for record in topic.records())
        assert topic.log.log_end_offset == end
    stored = read_all(topic.log)
    for clean in (True, False):
        topic.log.close(clean=clean)
        topic.open(clean=clean)
        assert read_all(topic.log) == stored
        assert topic.log.last_stable_offset == end
        stays()
    for pid in (1, 2):
        if topic.sequences.get(pid):
            topic.send((b"next", b"v"), pid=pid)
    if max_keys == 100:
        keys = [record.key for record in topic.records() if record.offset < end]
        assert len(keys) == len(set(keys))


def scripted(storage: MemoryStorage) -> Topic:
    topic = Topic(storage=storage)
    for number in range(12):
        topic.send((b"k%d" % (number % 3), b"v%d" % number * 12), pid=1)
    topic.seal()
    topic.send((b"k0", b"tail"), pid=1)
    topic.log.flush()
    return topic


@pytest.mark.sampled
@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.TORN_CRASH, Fault.EIO, Fault.SHORT_WRITE])
def test_a_fault_at_every_step_leaves_old_or_new(fault: Fault, survival: Survival) -> None:
    whole = MemoryStorage()
    topic = scripted(whole)
    before = whole.calls
    old = topic.rows()
    topic.compact()
    new = topic.rows()
    topic.log.purge(NOW + 1000)
    after = whole.calls
    assert after - before > 20
    outcomes = set()
    for number in some(range(before, after), fault.value + survival.value):
        storage = MemoryStorage({number: fault})
        topic = scripted(storage)
        flushed = topic.log.recovery_point
        try:
            topic.compact()
            topic.log.purge(NOW + 1000)
        except PowerLoss:
            assert fault in (Fault.CRASH, Fault.TORN_CRASH)
        except (StorageFailure, OSError):
            assert fault is Fault.EIO
        topic.storage = storage.crash(survival)
        topic.open(clean=False, recovery_point=flushed)
        # Each group is old or new by itself; together they hold every key's last value.
        rows = topic.rows()
        assert set(new) <= set(rows) <= set(old)
        assert rows == sorted(rows)
        assert topic.log.log_end_offset == 13
        assert topic.log.producers()[0].last_sequence == 12
        bases = [segment.base_offset for segment in topic.log.segments]
        ends = [segment.next_offset for segment in topic.log.segments]
        assert ends[:-1] == bases[1:]
        leftovers = (".cleaned", ".swap", ".deleted")
        assert not [name for name in topic.storage.listdir(HOME) if name.endswith(leftovers)]
        outcomes.add(tuple(rows) == tuple(new))
    if fault is not Fault.SHORT_WRITE and survival is Survival.EVERYTHING:
        assert outcomes == {True, False}
