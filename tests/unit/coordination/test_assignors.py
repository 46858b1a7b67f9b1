"""The server-side assignors against their promises, and the even spread against brute force."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.groups.assignors import (
    ASSIGNORS,
    Subscriber,
    assign_range,
    assign_uniform,
)
from tests.support.groups_consumer import of, topic_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from ottla.coordination.groups.assignors import Assignment
    from ottla.coordination.groups.partitions import Partitions

TOPICS = [topic_id(name) for name in "tuv"]
counts_of_topics = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in TOPICS})
some_partitions = st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 7)))


@st.composite
def groups(draw: st.DrawFn, *, equal: bool | None = None) -> dict[str, Subscriber]:
    """Members with any current assignment, also overlapping and outdated ones."""
    names = [f"m{n}" for n in range(draw(st.integers(1, 5)))]
    subscription = st.frozensets(st.sampled_from(TOPICS))
    shared = draw(subscription)
    same = draw(st.booleans()) if equal is None else equal
    return {
        name: Subscriber(shared if same else draw(subscription), draw(some_partitions))
        for name in names
    }


def check_complete(
    members: Mapping[str, Subscriber], counts: Mapping[UUID, int], result: Assignment
) -> None:
    assert result.keys() == members.keys()
    given_out = [partition for share in result.values() for partition in share]
    read = frozenset().union(*(member.topics for member in members.values()))
    expected = {(t, n) for t in read for n in range(counts.get(t, 0))}
    assert sorted(given_out) == sorted(expected), "each partition that is read has one owner"
    for name, share in result.items():
        assert {topic for topic, _ in share} <= members[name].topics


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@given(members=groups(), counts=counts_of_topics)
def test_every_partition_that_is_read_has_one_reader_as_owner(
    assignor: str, members: dict[str, Subscriber], counts: dict[UUID, int]
) -> None:
    check_complete(members, counts, ASSIGNORS[assignor](members, counts))


@given(groups(equal=True), counts_of_topics)
def test_equal_subscriptions_are_spread_to_within_one(
    members: dict[str, Subscriber], counts: dict[UUID, int]
) -> None:
    loads = [len(share) for share in assign_uniform(members, counts).values()]
    assert max(loads) - min(loads) <= 1


@given(groups(), counts_of_topics)
def test_uniform_is_its_own_fixed_point(
    members: dict[str, Subscriber], counts: dict[UUID, int]
) -> None:
    once = assign_uniform(members, counts)
    again = {name: member._replace(current=once[name]) for name, member in members.items()}
    assert assign_uniform(again, counts) == once


@given(st.integers(1, 5), counts_of_topics)
def test_a_newcomer_moves_no_more_than_its_own_share(size: int, counts: dict[UUID, int]) -> None:
    topics = frozenset(TOPICS)
    members = {f"m{n}": Subscriber(topics) for n in range(size)}
    before = assign_uniform(members, counts)
    grown = {name: Subscriber(topics, before[name]) for name in members}
    after = assign_uniform({**grown, "new": Subscriber(topics)}, counts)
    assert all(after[name] <= before[name] for name in members)


@given(st.integers(2, 5), counts_of_topics)
def test_a_loss_moves_nothing_of_the_others(size: int, counts: dict[UUID, int]) -> None:
    topics = frozenset(TOPICS)
    before = assign_uniform({f"m{n}": Subscriber(topics) for n in range(size)}, counts)
    left = {name: Subscriber(topics, before[name]) for name in list(before)[1:]}
    after = assign_uniform(left, counts)
    assert all(before[name] <= after[name] for name in left)


@given(
    st.lists(st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=2, max_size=4),
    st.fixed_dictionaries({topic: st.integers(0, 2) for topic in TOPICS}),
    some_partitions,
)
def test_unequal_subscriptions_are_spread_as_evenly_as_possible(
    subscriptions: list[frozenset[UUID]], counts: dict[UUID, int], current: Partitions
) -> None:
    """No assignment at all has a smaller sum of squared loads."""
    members = {f"m{n}": Subscriber(topics) for n, topics in enumerate(subscriptions)}
    members["m0"] = members["m0"]._replace(current=current)
    result = assign_uniform(members, counts)
    choices = [
        [name for name, member in members.items() if topic in member.topics]
        for topic, count in counts.items()
        for _ in range(count)
        if any(topic in member.topics for member in members.values())
    ]
    best = min(
        sum(owners.count(name) ** 2 for name in members) for owners in itertools.product(*choices)
    )
    assert sum(len(share) ** 2 for share in result.values()) == best


def test_a_chain_of_moves_reaches_who_could_not_be_reached_directly() -> None:
    t, u = topic_id("t"), topic_id("u")
    members = {
        "a": Subscriber(frozenset({t}), of("t", 0, 1, 2)),
        "b": Subscriber(frozenset({t, u}), of("u", 0, 1)),
        "c": Subscriber(frozenset({u})),
    }
    result = assign_uniform(members, {t: 3, u: 2})
    assert sorted(len(share) for share in result.values()) == [1, 2, 2]
    assert len(result["a"]) == 2


def test_many_partitions_move_at_once_between_those_with_different_subscriptions() -> None:
    t, u = topic_id("t"), topic_id("u")
    both, one = frozenset({t, u}), frozenset({u})
    everything = of("t", *range(100)) | of("u", *range(100))
    members = {"a": Subscriber(both, everything)}
    members |= {f"b{n}": Subscriber(both) for n in range(4)}
    members |= {f"c{n}": Subscriber(one) for n in range(5)}
    result = assign_uniform(members, {t: 100, u: 100})
    check_complete(members, {t: 100, u: 100}, result)
    assert {len(share) for share in result.values()} == {20}
    assert result["a"] <= everything


def test_range_gives_contiguous_and_co_partitioned_runs() -> None:
    topics = frozenset({topic_id("t"), topic_id("u")})
    members = {
        "z": Subscriber(topics, instance_id="a"),
        "x": Subscriber(topics),
        "y": Subscriber(frozenset({topic_id("u")})),
    }
    result = assign_range(members, {topic_id("t"): 5, topic_id("u"): 5})
    assert result["z"] == of("t", 0, 1, 2) | of("u", 0, 1)
    assert result["x"] == of("t", 3, 4) | of("u", 2, 3)
    assert result["y"] == of("u", 4)
