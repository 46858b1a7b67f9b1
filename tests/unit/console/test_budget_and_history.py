"""What the sampler may ask for, and what is remembered."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from ottla.console.budget import (
    LEAST_GROUPS,
    LEAST_PARTITIONS,
    MOST_GROUPS,
    MOST_PARTITIONS,
    START,
    Budget,
    choose,
)
from ottla.console.history import COARSE_MS, FINE_MS, FINE_SLOTS, MOST_RINGS, History
from ottla.console.missing import NOT_KEPT

NAME = ("topic", "orders", "records_per_s")


def test_case_14_a_slow_cluster_is_asked_for_little() -> None:
    budget = Budget()
    for _ in range(10):
        budget = budget.after(2.0)
    assert budget == Budget(LEAST_PARTITIONS, LEAST_GROUPS)
    for _ in range(100):
        budget = budget.after(0.001)
    assert budget == Budget(MOST_PARTITIONS, MOST_GROUPS)
    assert budget.after(0.05) == budget, "between the two it stays"


@given(
    st.sets(st.integers(0, 49), max_size=30),
    st.sets(st.integers(0, 49)),
    st.sets(st.integers(0, 49)),
    st.integers(1, 40),
)
def test_everything_has_its_turn(
    first: set[int], then: set[int], rest: set[int], most: int
) -> None:
    cursors = START
    seen: set[int] = set()
    for _ in range(200):
        chosen, cursors = choose(sorted(first), sorted(then), sorted(rest), cursors, most)
        assert len(chosen) == len(set(chosen)) <= most
        assert set(chosen[: len(first)]) <= first
        seen |= set(chosen)
    assert first <= seen
    if len(first) + 4 <= most:
        assert seen == first | then | rest


def test_case_13_a_thousand_groups_in_five_ticks() -> None:
    names = [f"g{n}" for n in range(1_000)]
    cursors = START
    seen: set[str] = set()
    for _ in range(5):
        chosen, cursors = choose([], [], names, cursors, MOST_GROUPS)
        assert len(chosen) == MOST_GROUPS
        seen |= set(chosen)
    assert len(seen) == 1_000


# -- history --------------------------------------------------------------------------------------


def points(history: History, now: int, count: int) -> list[float | None]:
    found = history.fine(NAME, now, count)
    assert isinstance(found, list)
    return found


def test_case_66_a_gap_is_a_gap() -> None:
    history = History()
    for slot in (0, 1, 2, 30, 31):
        history.add(NAME, float(slot), slot * FINE_MS)
    found = points(history, 31 * FINE_MS, 32)
    assert found[:3] == [0.0, 1.0, 2.0]
    assert found[3:30] == [None] * 27
    assert found[30:] == [30.0, 31.0]


def test_case_66_slots_within_a_turn_of_the_sampler_are_filled() -> None:
    history = History()
    history.add(NAME, 1.0, 0)
    history.add(NAME, 2.0, 5 * FINE_MS)
    assert points(history, 5 * FINE_MS, 6) == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0]


def test_case_66_a_counter_that_goes_back_makes_no_negative_rate() -> None:
    history = History()
    assert history.add_counter(NAME, 1_000, 0) is None
    assert history.add_counter(NAME, 2_000, 10_000) == 100.0
    assert history.add_counter(NAME, 5, 20_000) is None
    assert history.add_counter(NAME, 105, 30_000) == 10.0
    assert history.add_counter(NAME, 105, 30_000) is None, "no time has passed"
    found = points(history, 30_000, 4)
    assert all(one is None or one >= 0 for one in found)


def test_case_66_time_that_goes_back_changes_nothing() -> None:
    history = History()
    for slot in range(10):
        history.add(NAME, float(slot), slot * FINE_MS)
    history.add(NAME, 77.0, 0)
    assert points(history, 9 * FINE_MS, 10) == [float(slot) for slot in range(10)]


def test_an_hour_is_kept_and_coarse_steps_have_mean_and_maximum() -> None:
    history = History()
    last = 0
    for slot in range(2 * FINE_SLOTS):
        last = slot * FINE_MS
        history.add(NAME, float(slot % 12), last)
    found = points(history, last, 10_000)
    assert len(found) == FINE_SLOTS
    assert None not in found
    coarse = history.coarse(NAME, last, 10)
    assert isinstance(coarse, tuple)
    mean, most = coarse
    assert mean[-2] == 5.5
    assert most[-2] == 11.0
    assert last // COARSE_MS > 50


def test_a_series_that_rests_has_no_ring_and_keeps_its_past_when_it_moves() -> None:
    history = History()
    for slot in range(20):
        history.add(NAME, 5.0, slot * FINE_MS)
    assert history.rings == 0
    assert points(history, 19 * FINE_MS, 20) == [5.0] * 20
    history.add(NAME, 6.0, 20 * FINE_MS)
    assert history.rings == 1
    assert points(history, 20 * FINE_MS, 22) == [None, *[5.0] * 20, 6.0]
    history.forget([NAME])
    assert (len(history), history.rings) == (0, 0)


def test_a_series_that_rests_has_gaps_too() -> None:
    history = History()
    history.add(NAME, 5.0, 0)
    history.add(NAME, 5.0, 100 * FINE_MS)
    assert points(history, 100 * FINE_MS, 3) == [None, None, 5.0]


def test_the_last_value_grows_old() -> None:
    history = History()
    history.add(NAME, 5.0, 0)
    assert history.last(NAME, 50_000) == 5.0
    assert history.last(NAME, 500_000) is None
    assert history.last(("no", "such"), 0) is None
    assert history.timed(NAME, 10_000, 3) == [(0, 5.0)]


def test_case_67_fifty_thousand_series_five_thousand_rings() -> None:
    history = History(most_rings=500, most_series=5_000)
    names = [("topic", str(number), "x") for number in range(5_500)]
    for now in (0, FINE_MS):
        for name in names:
            history.add(name, float(now), now)
    assert (len(history), history.rings) == (5_000, 500)
    assert history.not_kept == 4_500
    assert history.fine(names[0], FINE_MS) is NOT_KEPT
    assert isinstance(history.fine(names[4_999], FINE_MS), list)
    history.add(names[0], 99.0, 2 * FINE_MS)  # it moves again, and the quietest loses its ring
    assert isinstance(history.fine(names[0], 2 * FINE_MS), list)
    assert history.rings == 500


def test_case_67_a_ring_weighs_what_the_bound_says() -> None:
    history = History()
    history.add(NAME, 0.0, 0)
    history.add(NAME, 1.0, FINE_MS)
    rings = history._series[NAME].rings
    assert rings is not None
    weight = sum(sys.getsizeof(one._values) for one in (rings.fine, rings.mean, rings.most))
    assert weight * MOST_RINGS < 40_000_000
