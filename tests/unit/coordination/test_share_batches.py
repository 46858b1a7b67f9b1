"""Combining ranges, against a model that looks at every offset (case 56)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.share_state.batches import DeliveryState, StateBatch, StateBatches, combine
from tests.support.share_state import as_batches

AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState


def ranges(end: int = 30) -> st.SearchStrategy[StateBatch]:
    def batch(bounds: tuple[int, int], state: int, count: int) -> StateBatch:
        return StateBatch(min(bounds), max(bounds), state, count)

    offsets = st.integers(0, end)
    return st.builds(
        batch, st.tuples(offsets, offsets), st.sampled_from(DeliveryState), st.integers(1, 3)
    )


def model(batches: list[StateBatch], start: int) -> StateBatches:
    ranks: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first, start), batch.last + 1):
            ranks[offset] = max(ranks.get(offset, batch.rank), batch.rank)
    return as_batches(ranks)


@given(st.lists(ranges()), st.lists(ranges()), st.integers(-1, 35))
def test_56_combining_is_the_maximum_of_each_offset(
    old: list[StateBatch], new: list[StateBatch], start: int
) -> None:
    stored = combine((), old, -1)
    assert stored == model(old, -1)
    assert combine(stored, new, start) == model([*old, *new], start)


@given(st.lists(ranges()), st.integers(-1, 35))
def test_combining_again_changes_nothing(batches: list[StateBatch], start: int) -> None:
    once = combine((), batches, start)
    assert combine(once, batches, start) == once
    assert combine(once, once, start) == once


def test_every_pair_of_small_ranges() -> None:
    """Offsets 0 to 3, two ranks, every start: nothing left to chance."""
    kinds = [(AVAILABLE, 1), (ARCHIVED, 1), (AVAILABLE, 2)]
    small = [
        StateBatch(first, last, *kind)
        for first, last in itertools.combinations_with_replacement(range(4), 2)
        for kind in kinds
    ]
    for old, new, start in itertools.product(small, small, range(-1, 5)):
        assert combine((old,), [new], start) == model([old, new], start)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            [(0, 9, AVAILABLE, 1)],
            [(3, 5, ACKNOWLEDGED, 1)],
            [(0, 2, AVAILABLE, 1), (3, 5, ACKNOWLEDGED, 1), (6, 9, AVAILABLE, 1)],
            id="a hole of a higher state",
        ),
        pytest.param(
            [(0, 9, AVAILABLE, 2)],
            [(3, 5, ARCHIVED, 1)],
            [(0, 9, AVAILABLE, 2)],
            id="a stale write with a lower count",
        ),
        pytest.param(
            [(0, 4, ACKNOWLEDGED, 1), (6, 9, ACKNOWLEDGED, 1)],
            [(5, 5, ACKNOWLEDGED, 1)],
            [(0, 9, ACKNOWLEDGED, 1)],
            id="a gap that closes",
        ),
    ],
)
def test_examples(
    old: list[tuple[int, int, int, int]],
    new: list[tuple[int, int, int, int]],
    expected: list[tuple[int, int, int, int]],
) -> None:
    stored = tuple(StateBatch(*batch) for batch in old)
    assert combine(stored, [StateBatch(*batch) for batch in new], -1) == tuple(
        StateBatch(*batch) for batch in expected
    )


def test_the_start_cuts_what_straddles_it() -> None:
    stored = (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, ARCHIVED, 1))
    new = [StateBatch(2, 3, ARCHIVED, 3), StateBatch(10, 12, AVAILABLE, 1)]
    assert combine(stored, new, 7) == (
        StateBatch(7, 9, ARCHIVED, 1),
        StateBatch(10, 12, AVAILABLE, 1),
    )
