"""Retention of closed logs: they are looked at from outside, and shrink without being opened."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log import closed as closed_logs
from ottla.log.closed import look_at
from ottla.log.config import LONG_MAX, LogConfig
from ottla.log.os_storage import OsStorage
from ottla.log.partition import PartitionLog
from ottla.log.retention import expired_segments
from ottla.log.segment import LOG, SNAPSHOT, TIME_INDEX, segment_path
from tests.support.log_batches import batch_of

HOUR: Final = 3_600_000
NOW: Final = 1_700_000_000_000
SOME: Final = LogConfig.from_topic_configs({})
COMPACTED: Final = replace(SOME, cleanup_policy=frozenset({"compact"}))


@given(
    ages=st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=5),
    hours=st.integers(-1, 20),
    kept=st.sampled_from([-1, 0, 100, 300]),
    start=st.integers(0, 6),
    policy=st.sampled_from(["delete", "compact,delete", "compact"]),
    damaged=st.sampled_from([None, TIME_INDEX, SNAPSHOT]),
)
def test_a_closed_log_gives_what_an_open_one_would(
    ages: list[list[int]], hours: int, kept: int, start: int, policy: str, damaged: str | None
) -> None:
    retention = hours * HOUR if hours >= 0 else -1
    config = LogConfig.from_topic_configs(
        {
            "cleanup.policy": policy,
            "retention.ms": str(retention),
            "retention.bytes": str(kept),
        }
    )
    directory = Path(tempfile.mkdtemp()) / "t-0"
    try:
        log = PartitionLog.open(directory, config, now_ms=NOW)
        for number, segment in enumerate(ages):
            if number:
                log.roll(NOW)
            for age in segment:
                batch = batch_of(b"v" * 20, timestamps=[NOW - age * HOUR])
                log.append(batch, leader_epoch=0, now_ms=NOW)
        log.advance_high_watermark(log.flush())
        begin, end = min(start, log.log_end_offset), log.log_end_offset
        count = expired_segments(
            log.segments,
            config,
            total=log.size_bytes,
            now_ms=NOW,
            log_start_offset=begin,
            high_watermark=log.high_watermark,
        )
        bases = [segment.base_offset for segment in log.segments]
        log.close()
        if damaged is not None:
            for file in directory.glob(f"*{damaged}"):
                file.write_bytes(file.read_bytes() + bytes(12))
        closed = look_at(directory)
        due = closed.may_shrink(config, log_start=begin, now_ms=NOW)
        assert due or not count
        if all(len(segment) == 1 for segment in ages):
            assert bool(count) == due or damaged, "where each segment has one time, exactly"
        dropped = drop_expired(directory=directory, config=config, log_start=begin, now_ms=NOW)
        left = [base for base in bases[dropped:] if segment_path(directory, base, LOG).exists()]
        assert left == bases[dropped:]
        assert sorted(int(file.stem) for file in directory.glob("*.log")) == left
        again = PartitionLog.open(
            directory,
            config,
            now_ms=NOW,
            clean=True,
            recovery_point=end,
            high_watermark=end,
            log_start_offset=begin,
        )
        assert again.log_end_offset == end
        assert again.log_start_offset == max(begin, bases[dropped])
        if damaged is None:
            assert dropped == min(count, len(bases) - 1), "all but the last"
            assert len(again.apply_retention(NOW)) == count - dropped
        else:
            assert dropped <= count, "what is left the open log lets go"
        again.close()
    finally:
        shutil.rmtree(directory.parent)


def drop_expired(*, directory: Path, config: LogConfig, log_start: int, now_ms: int) -> int:
    return closed_logs.drop_expired(
        OsStorage(), directory, config, log_start=log_start, now_ms=now_ms
    )


def test_a_log_that_was_made_and_never_written_has_nothing_to_give(tmp_path: Path) -> None:
    PartitionLog.open(tmp_path, SOME, now_ms=NOW).close()
    for directory in (tmp_path, tmp_path.parent):
        closed = look_at(directory)
        assert not closed.may_shrink(SOME, log_start=0, now_ms=NOW + 1000 * HOUR)
        assert not closed.may_be_compacted(COMPACTED, NOW)


@pytest.mark.parametrize(
    ("first_dirty", "ratio", "lag_ms", "is_wanted"),
    [
        (0, 1.0, LONG_MAX, True),
        (2, 0.5, LONG_MAX, True),
        (2, 0.6, LONG_MAX, False),
        (2, 0.6, HOUR, True),
        (4, 0.0, HOUR, False),
    ],
)
def test_a_closed_log_is_opened_for_compaction_only_where_it_is_dirty_enough(
    tmp_path: Path, first_dirty: int, ratio: float, lag_ms: int, is_wanted: bool
) -> None:
    log = PartitionLog.open(tmp_path, COMPACTED, now_ms=NOW)
    for _ in range(4):
        log.append(batch_of(b"v"), leader_epoch=0, now_ms=NOW)
        log.roll(NOW)
    log.close()
    config = replace(COMPACTED, min_cleanable_dirty_ratio=ratio, max_compaction_lag_ms=lag_ms)
    assert look_at(tmp_path, first_dirty).may_be_compacted(config, NOW) == is_wanted
    assert not look_at(tmp_path, first_dirty).may_be_compacted(SOME, NOW)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_log_lets_go_of_a_few_segments_at_a_time(tmp_path: Path, limit: int) -> None:
    config = LogConfig.from_topic_configs({"retention.ms": str(HOUR)})
    log = PartitionLog.open(tmp_path, config, now_ms=NOW)
    for _ in range(7):
        log.append(batch_of(b"v", timestamps=[NOW - 2 * HOUR]), leader_epoch=0, now_ms=NOW)
        log.roll(NOW)
    log.advance_high_watermark(log.flush())
    went = 0
    while gone := log.apply_retention(NOW, limit=limit):
        assert len(gone) <= limit
        went += len(gone)
        assert log.log_start_offset == went
    assert went == 7
    log.close()
