"""What goes, when, and who can still read it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.log.config import LogConfig
from ottla.log.errors import OffsetMovedToTieredStorage, OffsetOutOfRange, PolicyViolation
from ottla.log.partition import PartitionLog
from ottla.log.retention import Hold
from ottla.log.sealed import shared
from ottla.log.tail import TailCache
from tests.support.log_batches import batch_of, batches_in, read_all
from tests.support.log_faults import MemoryStorage

HOME = Path("/data/t-0")
SIZE = batch_of(b"x").size
TWO_EACH = LogConfig(segment_bytes=2 * SIZE, retention_ms=-1, file_delete_delay_ms=50)


def filled(
    config: LogConfig,
    *,
    batches: int = 9,
    start_ms: int = 1000,
    timestamps: bool = True,
    storage: MemoryStorage | None = None,
) -> PartitionLog:
    """Batch n has the time start + 10 n; two batches fill a segment."""
    log = PartitionLog.open(HOME, config, now_ms=0, storage=storage or MemoryStorage())
    for number in range(batches):
        batch = batch_of(b"x", timestamps=[start_ms + 10 * number if timestamps else -1])
        log.append(batch, leader_epoch=number // 4, now_ms=0)
    log.advance_high_watermark(batches)
    return log


def gone(log: PartitionLog, now_ms: int = 5000) -> list[int]:
    return [segment.base_offset for segment in log.apply_retention(now_ms)]


def test_minus_one_keeps_all() -> None:
    assert gone(filled(TWO_EACH), now_ms=1 << 50) == []


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [(1110, []), (1111, [0]), (1130, [0]), (1131, [0, 2]), (1171, [0, 2, 4, 6])],
)
def test_by_time(now_ms: int, expected: list[int]) -> None:
    log = filled(replace(TWO_EACH, retention_ms=100))
    assert gone(log, now_ms) == expected
    assert log.log_start_offset == len(expected) * 2


def test_the_active_segment_goes_too_after_a_roll() -> None:
    log = filled(replace(TWO_EACH, retention_ms=100))
    assert gone(log, now_ms=9999) == [0, 2, 4, 6, 8]
    assert [(s.base_offset, s.size) for s in log.segments] == [(9, 0)]
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert gone(log, now_ms=99999) == []
    assert log.append(batch_of(b"x"), leader_epoch=9, now_ms=0).base_offset == 9


def test_records_without_time_are_as_old_as_their_file() -> None:
    storage = MemoryStorage()
    storage.clock_ms = 3000
    log = filled(replace(TWO_EACH, retention_ms=100), timestamps=False, storage=storage)
    assert gone(log, now_ms=3100) == []
    assert gone(log, now_ms=3101) == [0, 2, 4, 6, 8]


def test_the_age_of_a_real_file(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, replace(TWO_EACH, retention_ms=100), now_ms=0)
    log.append(batch_of(b"x", timestamps=[-1]), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(1)
    os.utime(tmp_path / f"{0:020d}.log", ns=(0, 5_000_000_000))
    assert gone(log, now_ms=5100) == []
    assert gone(log, now_ms=5101) == [0]


@pytest.mark.parametrize(
    ("keep", "expected"), [(9, []), (8, []), (7, [0]), (6, [0]), (5, [0, 2]), (1, [0, 2, 4, 6])]
)
def test_by_size(keep: int, expected: list[int]) -> None:
    assert gone(filled(replace(TWO_EACH, retention_bytes=keep * SIZE))) == expected


@pytest.mark.parametrize(
    ("offset", "size", "expected"),
    [
        (9, 0, [0, 2, 4, 6, 8]),
        (5, 9, [0, 2]),
        (4, 9, [0, 2]),
        (0, 9, []),
        (0, 8, [0]),
        (0, 5, [0, 2]),
        (5, 3, [0, 2, 4]),
    ],
)
def test_case_66_held_records_stay_while_they_fit(
    offset: int, size: int, expected: list[int]
) -> None:
    log = filled(replace(TWO_EACH, retention_ms=100))
    found = log.apply_retention(9999, hold=Hold(offset, size * SIZE))
    assert [one.base_offset for one in found] == expected
    assert log.log_start_offset == min(9, 2 * len(expected))


def test_deleted_records_go_although_they_were_held() -> None:
    log = filled(TWO_EACH)
    log.raise_log_start(5)
    assert [one.base_offset for one in log.apply_retention(0, hold=Hold(0, 1 << 40))] == [0, 2]


def test_nothing_goes_past_the_high_watermark() -> None:
    log = filled(replace(TWO_EACH, retention_ms=100))
    log.high_watermark = 5
    assert gone(log, now_ms=9999) == [0, 2]


def test_compacted_topics_ignore_time_and_size() -> None:
    policy = frozenset({"compact"})
    assert gone(filled(replace(TWO_EACH, retention_ms=1, cleanup_policy=policy))) == []


def test_epochs_follow_the_log_start() -> None:
    log = filled(replace(TWO_EACH, retention_ms=100))
    assert log.epochs.entries == [(0, 0), (1, 4), (2, 8)]
    gone(log, now_ms=1151)
    assert log.epochs.entries == [(1, 6), (2, 8)]
    assert log.end_offset_for_epoch(0) == (0, 6)
    assert log.end_offset_for_epoch(1) == (1, 8)
    assert log.end_offset_for_epoch(2) == (2, 9)
    assert log.end_offset_for_epoch(3) is None


def test_a_reader_holds_on_to_a_deleted_segment(tmp_path: Path) -> None:
    log = PartitionLog.open(
        tmp_path, replace(TWO_EACH, retention_ms=1), now_ms=0, tail=TailCache(0)
    )
    for _ in range(4):
        log.append(batch_of(b"x"), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(4)
    with log.lease():
        held = log.segments[0]
        before = held.read(0, 1000, 4, at_least_one=True)
        log.apply_retention(9999)
        assert log.purge(9999 + 50) == 0, "whoever was inside when it left may still read it"
        shared().files.clear()
        assert held.read(0, 1000, 4, at_least_one=True) == before
    with log.lease():
        assert log.purge(9999 + 49) == 0
        assert log.purge(9999 + 50) == 2, "those who came later never saw it"
    assert [p.suffix for p in tmp_path.iterdir() if p.suffix == ".deleted"] == []


def test_files_are_renamed_then_unlinked() -> None:
    storage = MemoryStorage()
    log = filled(replace(TWO_EACH, retention_ms=100), storage=storage)
    assert gone(log, now_ms=1131) == [0, 2]
    deleted = [name for name in storage.listdir(HOME) if name.endswith(".deleted")]
    assert len(deleted) == 6
    assert f"{2:020d}.snapshot" not in storage.listdir(HOME)
    assert f"{4:020d}.snapshot" in storage.listdir(HOME)
    assert log.purge(1131 + 50) == 2
    assert not [name for name in storage.listdir(HOME) if name.endswith(".deleted")]


class TestDeleteRecords:
    def test_in_the_middle_of_a_batch(self) -> None:
        log = PartitionLog.open(HOME, LogConfig(), now_ms=0, storage=MemoryStorage())
        log.append(batch_of(b"a", b"b", b"c"), leader_epoch=0, now_ms=0)
        log.advance_high_watermark(3)
        assert log.delete_records_before(1) == 1
        with pytest.raises(OffsetOutOfRange):
            log.read(0, 100, upper_bound_offset=3, min_one_message=True)
        result = log.read(1, 100, upper_bound_offset=3, min_one_message=True)
        assert [batch.base_offset for batch in batches_in(result)] == [0]

    def test_whole_segments_go(self) -> None:
        log = filled(TWO_EACH)
        assert log.delete_records_before(5) == 5
        assert gone(log) == [0, 2]
        assert log.log_start_offset == 5

    def test_to_the_high_watermark(self) -> None:
        log = filled(TWO_EACH)
        log.high_watermark = 7
        assert log.delete_records_before(-1) == 7
        for offset in (8, -2):
            with pytest.raises(OffsetOutOfRange):
                log.delete_records_before(offset)
        assert log.delete_records_before(3) == 7

    def test_what_is_sent_again_is_still_a_duplicate(self) -> None:
        log = PartitionLog.open(HOME, LogConfig(), now_ms=0, storage=MemoryStorage())
        for duplicate in (False, True):
            batch = batch_of(b"a", producer_id=1, epoch=0, sequence=0)
            assert log.append(batch, leader_epoch=0, now_ms=0).duplicate is duplicate
            log.advance_high_watermark(1)
            log.delete_records_before(1)

    def test_not_on_topics_that_are_only_compacted(self) -> None:
        log = filled(replace(TWO_EACH, cleanup_policy=frozenset({"compact"})))
        with pytest.raises(PolicyViolation):
            log.delete_records_before(1)

    def test_the_log_start_survives_by_its_checkpoint(self) -> None:
        storage = MemoryStorage()
        log = filled(TWO_EACH, storage=storage)
        log.delete_records_before(5)
        log.close()
        again = PartitionLog.open(
            HOME, TWO_EACH, now_ms=0, clean=True, log_start_offset=5, storage=storage
        )
        assert again.log_start_offset == 5
        assert len(read_all(again)) == 4 * SIZE


TIERED = replace(TWO_EACH, remote_storage_enable=True)


def test_what_leaves_a_tiered_log_locally_is_still_of_the_log() -> None:
    log = filled(TIERED)
    assert [one.base_offset for one in log.drop_local_segments(2, 5000)] == [0, 2]
    assert (log.log_start_offset, log.local_start_offset) == (0, 4)
    assert log.epochs.epoch_at(0) == 0
    with pytest.raises(OffsetMovedToTieredStorage):
        log.read(3, 1000, upper_bound_offset=9, min_one_message=True)
    assert batches_in(log.read(4, 1, upper_bound_offset=9, min_one_message=True))
    log.raise_log_start(3)
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 1000, upper_bound_offset=9, min_one_message=True)


def test_the_active_segment_never_leaves_locally() -> None:
    log = filled(TIERED)
    assert len(log.drop_local_segments(99, 5000)) == 4
    assert (log.local_start_offset, log.log_end_offset) == (8, 9)
    log.roll(5000)
    log.roll(5000)
    assert [one.base_offset for one in log.segments] == [8, 9]


@pytest.mark.parametrize(("config", "start"), [(TIERED, 1), (TWO_EACH, 4)])
def test_a_log_that_is_opened_again_starts_where_its_tier_does(
    config: LogConfig, start: int
) -> None:
    """One that is not tiered has nothing before its files."""
    storage = MemoryStorage()
    log = filled(TIERED, storage=storage)
    log.drop_local_segments(2, 5000)
    assert log.close()
    log = PartitionLog.open(HOME, config, now_ms=0, clean=True, log_start_offset=1, storage=storage)
    assert (log.log_start_offset, log.local_start_offset) == (start, 4)


def test_retention_of_a_tier_that_takes_no_more_copies_moves_the_log_start() -> None:
    log = filled(replace(TIERED, remote_log_copy_disable=True, retention_bytes=3 * SIZE))
    log.drop_local_segments(1, 5000)
    assert log.log_start_offset == 0
    assert gone(log) == [2, 4]
    assert log.log_start_offset == log.local_start_offset == 6


def test_local_retention_is_that_of_the_log_unless_it_says_otherwise() -> None:
    config = LogConfig.from_topic_configs(
        {"retention.ms": "70", "retention.bytes": "9", "local.retention.bytes": "5"}
    )
    assert config.local_retention == (70, 5)
    assert not config.remote_storage_enable
    assert LogConfig.from_topic_configs({"remote.storage.enable": "true"}).remote_storage_enable
