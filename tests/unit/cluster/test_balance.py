"""Rounds of balancing: what moves, what waits, and that it comes to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.balance import (
    DRAIN_MOVES,
    MOVES,
    REST_SECONDS,
    SETTLED_SECONDS,
    History,
    Limits,
    decide_balance,
    is_balancer,
)
from ottla.cluster.placement import leaders
from ottla.metadata.changes.apply import apply, apply_all
from ottla.metadata.changes.nodes import RegisterBroker
from ottla.metadata.changes.topics import Leadership, SetLeaders
from ottla.metadata.image import NO_LEADER
from tests.support.cluster_images import (
    LISTENERS,
    drain,
    fence,
    image_of,
    leaders_of,
    topic_id,
)

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage

LONG = SETTLED_SECONDS + 1
DEFAULT = Limits()


def settled(image: MetadataImage) -> History:
    return History().looked(image, 0.0)


def moves_of(image: MetadataImage, limits: Limits = DEFAULT) -> tuple[Leadership, ...]:
    return decide_balance(image, settled(image), limits, LONG)


def balanced(image: MetadataImage, limits: Limits = DEFAULT) -> MetadataImage:
    return apply(image, SetLeaders(moves_of(image, limits)))


def test_the_lowest_living_node_balances() -> None:
    image = image_of([1, 2, 3], fenced=[1])
    assert [is_balancer(image, node) for node in (1, 2, 3)] == [False, True, False]
    assert not is_balancer(image_of([1], fenced=[1]), 1)


def test_a_partition_returns_to_its_preferred_leader() -> None:
    image = image_of([1, 2], {"a": [(1,), (2,)]})
    image = apply(image, SetLeaders((Leadership(topic_id("a"), 0, 2),)))
    assert leaders_of(balanced(image), "a") == [1, 2]
    assert moves_of(image, Limits(rebalance=False)) == ()


def test_nothing_moves_until_the_nodes_are_settled() -> None:
    image = apply(
        image_of([1, 2], {"a": [(1,), (2,)]}), SetLeaders((Leadership(topic_id("a"), 0, 2),))
    )
    history = settled(image)
    assert decide_balance(image, history, DEFAULT, SETTLED_SECONDS - 1) == ()
    image = fence(image, 2)
    history = history.looked(image, 100.0)
    assert history.since == 100.0
    assert decide_balance(image, history, DEFAULT, 100.0 + SETTLED_SECONDS - 1) == ()


def test_a_partition_that_was_moved_rests() -> None:
    image = apply(
        image_of([1, 2], {"a": [(1,), (2,), (1,)]}), SetLeaders((Leadership(topic_id("a"), 0, 2),))
    )
    history = settled(image).with_moves([Leadership(topic_id("a"), 0, 2)], LONG)
    soon = LONG + REST_SECONDS - 1
    assert decide_balance(image, history.looked(image, soon), DEFAULT, soon) == ()
    late = LONG + REST_SECONDS
    assert len(decide_balance(image, history.looked(image, late), DEFAULT, late)) == 1


def test_new_nodes_get_partitions() -> None:
    image = image_of([1], {"a": [(1,)] * 8})
    image = apply_all(image, [RegisterBroker(node, LISTENERS) for node in (2, 3, 4)])
    spread = balanced(image)
    assert sorted(leaders_of(spread, "a")) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert all(one.replicas == (one.leader,) for one in spread.topics_by_name["a"].partitions)
    assert moves_of(spread) == ()


def test_small_differences_stay() -> None:
    image = image_of([1, 2], {"a": [(1,)] * 21 + [(2,)] * 19})
    assert moves_of(image) == ()
    assert len(moves_of(image, Limits(percentage=0))) == 1


def test_a_round_has_at_most_ten_moves() -> None:
    image = image_of([1, 2], {"a": [(1,)] * 100})
    assert len(moves_of(image)) == MOVES


def test_a_draining_node_is_emptied_at_once() -> None:
    image = apply(image_of([1, 2, 3], {"a": [(1,), (2, 3), (3,)]}), drain(2))
    moves = decide_balance(image, settled(image), DEFAULT, 0.0)
    after = apply(image, SetLeaders(moves))
    assert leaders_of(after, "a") == [1, 3, 3]
    assert after.topics_by_name["a"].partitions[1].replicas == (3, 2)
    assert moves_of(after) == ()


def test_draining_is_bounded_by_round() -> None:
    image = apply(image_of([1, 2], {"a": [(2,)] * 250}), drain(2))
    assert len(decide_balance(image, settled(image), DEFAULT, 0.0)) == DRAIN_MOVES


def test_a_node_that_no_longer_drains_gets_partitions_again() -> None:
    image = apply(image_of([1, 2], {"a": [(1,), (2,)] * 4}), drain(2))
    empty = apply(image, SetLeaders(moves_of(image)))
    assert set(leaders_of(empty, "a")) == {1}
    back = balanced(apply(empty, drain(2, None)))
    assert sorted(leaders_of(back, "a")) == [1] * 4 + [2] * 4


def test_leaderless_partitions_get_a_leader() -> None:
    image = image_of([1, 2], {"a": [(1,), (2,)]}, fenced=[2])
    assert leaders_of(image, "a") == [1, NO_LEADER]
    assert leaders_of(balanced(image, Limits(rebalance=False)), "a") == [1, 1]


def test_without_a_living_node_nothing_moves() -> None:
    assert moves_of(image_of([1], {"a": [(1,)]}, fenced=[1])) == ()


@given(st.data())
def test_rounds_come_to_rest_with_even_counts(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 5))
    some = st.lists(st.integers(1, nodes), min_size=1, max_size=3, unique=True).map(tuple)
    names = ("a", "b", "c")[: data.draw(st.integers(1, 3))]
    topics = {name: data.draw(st.lists(some, min_size=1, max_size=12)) for name in names}
    image = image_of(range(1, nodes + 1), topics)
    for node in data.draw(st.sets(st.integers(1, nodes))):
        image = apply(image, drain(node))
    for node in data.draw(st.sets(st.integers(1, nodes))):
        image = fence(image, node)
    for _ in range(50):
        moves = moves_of(image)
        places = [(one.topic_id, one.partition) for one in moves]
        assert len(set(places)) == len(places)
        if not moves:
            break
        image = apply(image, SetLeaders(moves))
    else:
        raise AssertionError("it never comes to rest")
    able = [node for node in image.alive if not image.broker_configs.get(str(node))] or list(
        image.alive
    )
    if able:
        counts = [leaders(image)[node] for node in able]
        total = sum(map(len, topics.values()))
        assert sum(counts) == total
        assert max(counts) - min(counts) < 2 or max(counts) <= total / len(able) * 1.1
