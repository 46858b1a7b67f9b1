"""Lag in seconds, trends, and what is said of what is not known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.console.lag import (
    MOST_SAMPLES,
    Behind,
    EndSamples,
    behind,
    course,
    exactly,
    worst,
)

MINUTE = 60_000


def samples(*points: tuple[int, int]) -> EndSamples:
    found = EndSamples()
    for ms, end in points:
        found.add(ms, end)
    return found


def test_case_46_seconds_are_those_of_the_first_record_not_taken() -> None:
    # 100 records a second: record 500 came at 5 s.
    ends = samples(*((ms, ms // 10) for ms in range(0, 20_000, 1_000)))
    found = behind(500, 1_900, 0, ends, now_ms=19_000)
    assert found.records == 1_400
    assert found.seconds is not None
    assert abs(found.seconds - 14.0) < 0.02


def test_case_46_an_idle_producer_lets_the_seconds_grow() -> None:
    ends = samples((0, 0), (1_000, 10), (2_000, 10), (600_000, 10))
    first = behind(9, 10, 0, ends, now_ms=2_000)
    later = behind(9, 10, 0, ends, now_ms=600_000)
    assert (first.records, later.records) == (1, 1)
    assert first.seconds is not None
    assert later.seconds is not None
    assert later.seconds - first.seconds == 598


def test_a_group_that_has_all_is_not_behind() -> None:
    assert behind(10, 10, 0, samples((0, 10)), 5_000) == Behind(0, 0.0)
    assert behind(12, 10, 0, samples((0, 10)), 5_000) == Behind(0, 0.0)


def test_case_47_older_than_the_samples_is_at_least_never_extrapolated() -> None:
    ends = samples((0, 100), (55 * MINUTE, 200))
    assert behind(50, 200, 0, ends, 55 * MINUTE) == Behind(150, 55 * 60.0, at_least=True)
    assert behind(50, 200, 0, None, 55 * MINUTE) == Behind(150, None)
    assert exactly(50, 200, 0, timestamp_ms=1_000, wall_ms=4_001_000) == Behind(150, 4_000.0)


def test_case_47_a_record_from_the_future_counts_as_zero_and_is_marked() -> None:
    found = exactly(5, 10, 0, timestamp_ms=9_000, wall_ms=1_000)
    assert found == Behind(5, 0.0, from_future=True)


def test_case_47_below_the_log_start_records_are_lost() -> None:
    ends = samples((0, 100), (1_000, 200))
    found = behind(50, 200, 120, ends, 1_000)
    assert found.lost == 70
    assert found.records == 80
    assert exactly(50, 200, 200, 0, 1_000) == Behind(0, 0.0, lost=150)


def test_a_recreated_topic_begins_anew() -> None:
    ends = samples((0, 100), (1_000, 200), (2_000, 5))
    assert len(ends) == 1
    assert behind(3, 5, 0, ends, 3_000) == Behind(2, 1.0, at_least=True)


def test_time_that_does_not_go_on_adds_no_sample() -> None:
    ends = samples((1_000, 5), (1_000, 6), (500, 7))
    assert (len(ends), ends.last_end, ends.first_ms) == (1, 5, 1_000)


def test_while_the_end_rests_two_samples_are_enough() -> None:
    ends = samples((0, 5), *((ms, 9) for ms in range(1_000, 1_000_000, 1_000)))
    assert len(ends) == 3
    assert ends.passed(8) == (875.0, True)


def test_samples_are_bounded() -> None:
    ends = samples(*((ms, ms) for ms in range(1, 5_000)))
    assert len(ends) == MOST_SAMPLES


@given(st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 1_000)), min_size=2, max_size=50))
def test_a_moment_lies_between_the_samples_around_it(steps: list[tuple[int, int]]) -> None:
    now = end = 0
    ends = EndSamples()
    points = []
    for step, more in steps:
        now, end = now + step, end + more
        ends.add(now, end)
        points.append((now, end))
    for offset in range(0, end, max(1, end // 20)):
        found = ends.passed(offset)
        assert found is not None
        moment, is_known = found
        after = min(ms for ms, reached in points if reached > offset)
        before = [ms for ms, reached in points if reached <= offset]
        assert moment <= after
        assert is_known == bool(before)
        if before:
            assert moment >= max(before)
    assert ends.passed(end) is None


def test_the_worst_of_partitions() -> None:
    assert worst([]) == Behind(0, None)
    found = worst([Behind(3, 2.0), Behind(4, None), Behind(1, 9.0, lost=2)])
    assert found == Behind(8, 9.0, at_least=True, lost=2)


def test_trends() -> None:
    def over(values: list[float]) -> list[tuple[int, float]]:
        return [(index * 10_000, value) for index, value in enumerate(values)]

    now = 590_000
    growing = course(over([10.0 * n for n in range(60)]), now)
    assert growing.trend == "growing"
    assert abs(growing.per_s - 1.0) < 1e-9
    falling = course(over([590.0 - 10 * n for n in range(59)]), now)
    assert falling.trend == "falling"
    assert falling.zero_in is not None
    assert abs(falling.zero_in - 10.0) < 1e-6
    assert course(over([1000.0, 1001.0] * 30), now).trend == "steady"
    assert course(over([0.0] * 60), now).trend == "steady"
    assert course(over([5.0, 9.0]), now).trend == "unknown"
    assert course(over([1.0, 50.0, 900.0]), now + 3_600_000).trend == "unknown"
