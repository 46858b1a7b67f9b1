"""T78: who reads what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.offsets import assign_range, assign_round_robin, assign_sticky

WORKERS = ["w1", "w2", "w3"]
items = st.sets(st.integers(0, 50))
workers = st.sets(st.sampled_from("abcdef"), min_size=1)


def test_t78_the_vectors() -> None:
    assert assign_round_robin(range(1, 7), WORKERS) == {"w1": [1, 4], "w2": [2, 5], "w3": [3, 6]}
    assert assign_range(range(1, 8), WORKERS) == {"w1": [1, 2, 3], "w2": [4, 5], "w3": [6, 7]}
    owned = {"w1": [1, 4], "w2": [2, 5], "w3": [3]}
    assert assign_sticky(range(1, 7), WORKERS, owned) == {
        "w1": [1, 4],
        "w2": [2, 5],
        "w3": [3, 6],
    }


def test_t78_what_a_dead_worker_had_moves_at_once() -> None:
    owned = {"w1": [1, 4], "w2": [2, 5], "w3": [3, 6]}
    assert assign_sticky(range(1, 7), ["w1", "w3"], owned) == {"w1": [1, 2, 4], "w3": [3, 5, 6]}
    assert assign_round_robin(range(1, 7), ["w1", "w3"]) == {"w1": [1, 3, 5], "w3": [2, 4, 6]}


def test_t78_sticky_ignores_what_is_gone_and_ties_go_to_the_first_name() -> None:
    owned = {"w1": [9, 1], "w2": [1, 2], "gone": [3]}
    assert assign_sticky([1, 2, 3, 4], ["w2", "w1"], owned) == {"w1": [1, 3], "w2": [2, 4]}


def test_nobody_to_assign_to() -> None:
    for assign in (assign_round_robin, assign_range):
        with pytest.raises(ValueError, match="workers is empty"):
            assign([1], [])
    with pytest.raises(ValueError, match="workers is empty"):
        assign_sticky([1], [], {})


@given(items, workers)
def test_everything_is_assigned_once_and_evenly(what: set[int], who: set[str]) -> None:
    for assign in (assign_round_robin, assign_range):
        assignment = assign(what, who)
        assert assignment.keys() == who
        assert sorted(item for mine in assignment.values() for item in mine) == sorted(what)
        sizes = [len(mine) for mine in assignment.values()]
        assert max(sizes) - min(sizes) <= 1


@given(items, workers, workers, items)
def test_sticky_moves_only_what_it_must(
    before: set[int], old: set[str], new: set[str], after: set[int]
) -> None:
    owned = assign_range(before, old)
    assignment = assign_sticky(after, new, owned)
    assert sorted(item for mine in assignment.values() for item in mine) == sorted(after)
    for worker in old & new:
        assert set(owned[worker]) & after <= set(assignment[worker])
