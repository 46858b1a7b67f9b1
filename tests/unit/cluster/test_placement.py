"""Where new partitions go, and who leads those of a dead node."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.placement import (
    Place,
    candidates,
    decide_leaders,
    decide_placement,
    leaders,
    led_by,
)
from ottla.metadata.changes.apply import apply
from ottla.metadata.changes.topics import SetLeaders
from tests.support.cluster_images import fence, image_of, leaders_of, topic_id

FOUR = image_of(range(1, 5))


def test_a_topic_of_8_partitions_on_4_nodes_has_2_leaders_a_node() -> None:
    placed = decide_placement(FOUR, 8, 1, start=1)
    assert placed == ((1,), (2,), (3,), (4,), (1,), (2,), (3,), (4,))
    internal = Counter(replicas[0] for replicas in decide_placement(FOUR, 50, 1, start=3))
    assert sorted(internal.values()) == [12, 12, 13, 13]


def test_topics_of_one_partition_are_spread() -> None:
    image = image_of(range(1, 5), {"a": [(1,)], "b": [(2,)], "c": [(4,)]})
    assert decide_placement(image, 1, 1, start=1) == ((3,),)


def test_new_partitions_go_where_the_topic_has_the_fewest() -> None:
    image = image_of(range(1, 4), {"a": [(1,), (2,), (1,)]})
    existing = image.topics_by_name["a"].partitions
    assert decide_placement(image, 3, 1, start=1, existing=existing) == ((3,), (2,), (3,))


def test_the_second_choices_of_a_nodes_partitions_differ() -> None:
    placed = decide_placement(FOUR, 12, 2, start=1)
    seconds = Counter(second for first, second in placed if first == 1)
    assert seconds == {2: 1, 3: 1, 4: 1}


def test_fenced_and_draining_nodes_get_nothing() -> None:
    image = image_of(range(1, 5), fenced=[2], draining=[3])
    assert candidates(image) == (1, 4)
    assert {replicas[0] for replicas in decide_placement(image, 4, 1, start=2)} == {1, 4}


def test_where_all_are_draining_all_take_part() -> None:
    assert candidates(image_of([1, 2], draining=[1, 2])) == (1, 2)
    assert candidates(image_of([1, 2], fenced=[1, 2])) == ()


def test_replica_lists_go_on_with_nodes_that_are_down() -> None:
    image = image_of([1, 2, 3], fenced=[3])
    assert decide_placement(image, 1, 3, start=1) == ((1, 2, 3),)


def test_the_partitions_of_a_dead_node_go_to_its_siblings() -> None:
    image = image_of([1, 2, 3], {"a": [(2, 3), (2,), (2,), (1,)]})
    orphans = led_by(image, 2)
    assert orphans == [Place(topic_id("a"), index) for index in (0, 1, 2)]
    image = fence(image, 2)
    taken = apply(image, SetLeaders(decide_leaders(image, orphans)))
    assert leaders_of(taken, "a") == [3, 1, 3, 1]
    assert [one.replicas for one in taken.topics_by_name["a"].partitions] == [
        (2, 3),
        (2,),
        (2,),
        (1,),
    ]


def test_without_a_living_node_nobody_leads() -> None:
    image = image_of([1], {"a": [(1,)]}, fenced=[1])
    assert decide_leaders(image, [Place(topic_id("a"), 0)]) == ()


def test_a_deleted_partition_needs_no_leader() -> None:
    image = image_of([1], {"a": [(1,)]})
    gone = [Place(topic_id("b"), 0), Place(topic_id("a"), 1)]
    assert decide_leaders(image, gone) == ()


@given(
    nodes=st.integers(1, 6),
    counts=st.lists(st.integers(1, 20), max_size=5),
    factor=st.integers(1, 6),
    start=st.integers(0, 7),
)
def test_every_topic_and_all_topics_are_even(
    nodes: int, counts: list[int], factor: int, start: int
) -> None:
    factor = min(factor, nodes)
    topics: dict[str, tuple[tuple[int, ...], ...]] = {}
    for index, count in enumerate(counts):
        image = image_of(range(1, nodes + 1), topics)
        placed = decide_placement(image, count, factor, start)
        assert all(len(set(replicas)) == factor for replicas in placed)
        in_topic = Counter(replicas[0] for replicas in placed)
        spread = [in_topic[node] for node in range(1, nodes + 1)]
        assert max(spread) - min(spread) <= 1
        topics[f"t{index}"] = placed
    led = leaders(image_of(range(1, nodes + 1), topics))
    everywhere = [led[node] for node in range(1, nodes + 1)]
    assert max(everywhere) - min(everywhere) <= 1
