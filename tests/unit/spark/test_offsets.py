"""Offsets of a query: JSON, limits, pace."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.cluster.view import TopicPartition
from ottla.spark.errors import BadOption
from ottla.spark.offsets import (
    Given,
    Offsets,
    Pace,
    assigned,
    backlog,
    batch_start,
    capped,
    first_end,
    from_json,
    limited,
    limited_bytes,
    to_json,
)

places = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 12))
offsets = st.dictionaries(places, st.integers(0, 1 << 60), max_size=12)


def of(*ends: int) -> Offsets:
    return {TopicPartition("t", number): end for number, end in enumerate(ends)}


@given(offsets)
def test_case_22_the_json_of_equal_offsets_is_the_same_text(found: Offsets) -> None:
    text = json.dumps(to_json(found))
    shuffled = dict(sorted(found.items(), key=hash))
    assert json.dumps(to_json(shuffled)) == text
    assert from_json(json.loads(text)) == found


def test_partitions_are_in_the_order_of_numbers() -> None:
    found = {TopicPartition("t", number): 1 for number in (10, 9, 2)}
    assert json.dumps(to_json(found)) == '{"t": {"2": 1, "9": 1, "10": 1}}'


@pytest.mark.parametrize("wrong", [{"t": 5}, {"t": {"x": 5}}, {"t": {"0": "5"}}, {"t": {"-1": 5}}])
def test_what_is_no_offset_is_told_with_the_form(wrong: dict[str, object]) -> None:
    with pytest.raises(BadOption, match=r"startingOffsets: expected offsets as"):
        from_json(wrong, option="startingOffsets")


def test_the_first_end_carries_the_start() -> None:
    end = first_end(of(5, 0), of(9, 3))
    assert from_json(end) == of(9, 3)
    assert batch_start(to_json(of(7, 7)), json.loads(json.dumps(end))) == of(5, 0)
    assert batch_start(to_json(of(7, 7)), to_json(of(9, 9))) == of(7, 7)
    assert batch_start(end, end) == of(9, 3)


def test_case_12_a_limit_is_shared_in_proportion() -> None:
    assert limited(of(0, 0), of(100, 300), 40) == of(10, 30)
    # One that would get nothing gets one, however large the others are.
    assert limited(of(0, 0, 5), of(1_000_000, 3, 5), 100) == of(99, 1, 5)
    assert limited(of(0, 0, 0, 0), of(9, 9, 9, 9), 2) == of(1, 1, 1, 1)
    assert limited(of(0), of(10), 100) == of(10)


@given(offsets, offsets, st.integers(1, 1 << 40))
def test_case_12_a_limited_batch_moves_on_and_stays_in_the_log(
    start: Offsets, grown: Offsets, limit: int
) -> None:
    latest = {**start, **{place: start.get(place, 0) + more for place, more in grown.items()}}
    end = limited(start, latest, limit)
    assert end.keys() == latest.keys()
    assert all(start.get(place, 0) <= at <= latest[place] for place, at in end.items())
    assert (backlog(start, end) > 0) == (backlog(start, latest) > 0)
    # A float has 53 bits, so shares of very large limits are not exact.
    assert backlog(start, end) <= limit + len(end) + (limit >> 40)


def test_case_12_a_limit_in_bytes_is_shared_in_proportion_to_bytes() -> None:
    sizes = {TopicPartition("t", 0): 1000.0, TopicPartition("t", 1): 10.0}
    # 101,000 bytes wait, of which each partition gets a tenth.
    assert limited_bytes(of(0, 0), of(100, 100), 10_100, sizes) == of(10, 10)
    assert limited_bytes(of(0, 0), of(100, 100), 101_000, sizes) == of(100, 100)
    # One record, however large it is.
    assert limited_bytes(of(0, 0), of(100, 100), 1, sizes) == of(1, 1)
    # The third partition is taken for the mean of the others: 505 bytes.
    assert limited_bytes(of(0, 0, 0), of(10, 10, 10), 1515, sizes) == of(1, 1, 1)
    assert limited_bytes(of(0, 0, 0), of(10, 10, 10), 3030, sizes) == of(2, 2, 2)
    assert limited_bytes(of(0, 0), of(100, 100), 1, {}) == of(100, 100), "nobody knows"


@given(
    offsets,
    offsets,
    st.integers(1, 1 << 40),
    st.dictionaries(places, st.floats(0.01, 1e6), max_size=12),
)
def test_case_12_a_batch_limited_in_bytes_moves_on_and_stays_in_the_log(
    start: Offsets, grown: Offsets, limit: int, sizes: dict[TopicPartition, float]
) -> None:
    latest = {**start, **{place: start.get(place, 0) + more for place, more in grown.items()}}
    end = limited_bytes(start, latest, limit, sizes)
    assert end.keys() == latest.keys()
    for place, last in latest.items():
        first = start.get(place, 0)
        assert min(first + 1, last) <= end[place] <= last
    if sizes.keys() >= latest.keys():
        taken = {place: (at - start.get(place, 0)) * sizes[place] for place, at in end.items()}
        one_each = sum(sizes[place] for place in end)
        assert sum(taken.values()) <= (limit + one_each) * (1 + 1e-9)


def test_case_13_a_small_batch_waits_for_its_time() -> None:
    pace = Pace(least=10, longest=60)
    assert pace.is_due(1, now=0), "the first batch does not wait"
    assert not pace.is_due(9, now=59)
    assert not pace.is_due(0, now=61)
    assert pace.is_due(9, now=60)
    assert pace.is_due(10, now=61)
    assert not pace.is_due(9, now=120)


def test_case_14_what_is_fixed_at_the_start_is_the_end() -> None:
    assert capped(of(5, 9), None) == of(5, 9)
    assert capped(of(5, 9, 7), of(5, 8)) == of(5, 8)


def test_case_05_offsets_name_all_partitions() -> None:
    assigned(Given(of(1, 2)), set(of(0, 0)), "startingOffsets")
    with pytest.raises(BadOption, match="startingOffsets has to name all partitions"):
        assigned(Given(of(1)), set(of(0, 0)), "startingOffsets")
