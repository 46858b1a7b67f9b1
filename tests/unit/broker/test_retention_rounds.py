"""Retention over all logs: closed ones are looked at from outside, and only due ones are opened."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.hosting.retention import look_at
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.retention import expired_segments
from tests.support.log_batches import batch_of

HOUR: Final = 3_600_000
NOW: Final = 1_700_000_000_000
SOME: Final = LogConfig.from_topic_configs({})


@given(
    ages=st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=4),
    hours=st.integers(-1, 20),
    kept=st.sampled_from([-1, 0, 100, 300]),
    start=st.integers(0, 6),
    policy=st.sampled_from(["delete", "compact,delete"]),
)
def test_a_closed_log_is_due_whenever_it_would_give_something(
    ages: list[list[int]], hours: int, kept: int, start: int, policy: str
) -> None:
    """Whatever the open log would let go of is seen from outside, for one round or another."""
    retention = hours * HOUR if hours >= 0 else -1
    config = LogConfig.from_topic_configs(
        {
            "cleanup.policy": policy,
            "retention.ms": str(retention),
            "retention.bytes": str(kept),
        }
    )
    directory = Path(tempfile.mkdtemp())
    try:
        log = PartitionLog.open(directory, config, now_ms=NOW)
        for number, segment in enumerate(ages):
            if number:
                log.roll(NOW)
            for age in segment:
                batch = batch_of(b"v" * 20, timestamps=[NOW - age * HOUR])
                log.append(batch, leader_epoch=0, now_ms=NOW)
        log.advance_high_watermark(log.flush())
        begin = min(start, log.log_end_offset)
        count = expired_segments(
            log.segments,
            config,
            total=log.size_bytes,
            now_ms=NOW,
            log_start_offset=begin,
            high_watermark=log.high_watermark,
        )
        sealed = len(log.segments) > 1
        log.close()
        closed = look_at(directory)
    finally:
        shutil.rmtree(directory)
    due = closed.is_due(config, log_start=begin, first_dirty=1 << 40, now_ms=NOW)
    assert due or not count
    if all(len(segment) == 1 for segment in ages):
        assert bool(count) == due, "where each segment has one time, exactly"
    dirty = closed.is_due(config, log_start=begin, first_dirty=0, now_ms=NOW)
    assert dirty == (due or (sealed and "compact" in policy))


def test_a_log_that_was_made_and_never_written_has_nothing_to_give(tmp_path: Path) -> None:
    PartitionLog.open(tmp_path, SOME, now_ms=NOW).close()
    assert not look_at(tmp_path).is_due(SOME, log_start=0, first_dirty=0, now_ms=NOW + 1000 * HOUR)
    assert not look_at(tmp_path.parent).is_due(SOME, log_start=0, first_dirty=0, now_ms=NOW)


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
