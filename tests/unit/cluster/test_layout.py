"""Directories below one root, and starts with another number of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.layout import (
    MAX_NAME_LENGTH,
    decide_retirement,
    handover_name,
    node_directory,
    node_of_directory,
    parse_handover_name,
)
from ottla.cluster.placement import Place
from ottla.metadata.changes.apply import apply
from ottla.metadata.changes.nodes import UnregisterBroker
from ottla.metadata.changes.topics import SetLeaders
from ottla.metadata.image import NO_LEADER
from tests.support.cluster_images import image_of, leaders_of

if TYPE_CHECKING:
    from uuid import UUID


def test_names_of_directories() -> None:
    assert [node_directory(node) for node in (1, 2, 12)] == ["", "node.2", "node.12"]
    assert [node_of_directory(name) for name in ("node.2", "node.12")] == [2, 12]


@pytest.mark.parametrize("name", ["node.1", "node.0", "node.02", "node.", "node.2x", "node-2"])
def test_other_directories_are_no_nodes(name: str) -> None:
    assert node_of_directory(name) is None


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.uuids(),
)
def test_a_name_in_handover_tells_the_partition(topic: str, partition: int, topic_id: UUID) -> None:
    name = handover_name(topic, partition, topic_id)
    assert len(name) <= MAX_NAME_LENGTH
    assert parse_handover_name(name) == Place(topic_id, partition)


@pytest.mark.parametrize("name", ["", "a-0", "a-0.short", "a-00." + "A" * 22, ".lock"])
def test_other_names_in_handover_tell_nothing(name: str) -> None:
    assert parse_handover_name(name) is None


def test_four_nodes_become_one() -> None:
    image = image_of([1, 2, 3], {"a": [(1,), (2,), (3,), (3, 1)]})
    for retired in (2, 3):
        image = apply(image, SetLeaders(decide_retirement(image, {2, 3})))
        image = apply(image, UnregisterBroker(retired))
    assert leaders_of(image, "a") == [1, 1, 1, 1]
    assert {one.replicas for one in image.topics_by_name["a"].partitions} == {(1,)}


def test_after_a_clean_stop_the_node_that_stays_leads_when_it_registers() -> None:
    image = image_of([1, 2], {"a": [(1,), (2,)]}, fenced=[1, 2])
    image = apply(image, SetLeaders(decide_retirement(image, {2})))
    assert leaders_of(image, "a") == [NO_LEADER, NO_LEADER]
    assert [one.replicas for one in image.topics_by_name["a"].partitions] == [(1,), (1,)]


def test_retired_partitions_are_spread_over_those_that_stay() -> None:
    image = image_of([1, 2, 3], {"a": [(3,)] * 6})
    image = apply(image, SetLeaders(decide_retirement(image, {3})))
    assert sorted(leaders_of(image, "a")) == [1, 1, 1, 2, 2, 2]


def test_a_leader_that_stays_is_kept() -> None:
    image = image_of([1, 2], {"a": [(1, 2)]})
    (only,) = decide_retirement(image, {2})
    assert only.leader is None
    assert only.replicas == (1,)


def test_all_cannot_retire() -> None:
    assert decide_retirement(image_of([2], {"a": [(2,)]}), {2}) == ()


@given(st.data())
def test_nothing_names_a_retired_node_afterwards(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    replicas = st.lists(st.integers(1, count), min_size=1, max_size=3, unique=True).map(tuple)
    image = image_of(
        range(1, count + 1),
        {"a": data.draw(st.lists(replicas, min_size=1, max_size=10))},
        fenced=data.draw(st.sets(st.integers(1, count))),
    )
    wanted = data.draw(st.integers(1, count))
    retired = set(range(wanted + 1, count + 1))
    after = apply(image, SetLeaders(decide_retirement(image, retired)))
    for partition in after.topics_by_name["a"].partitions:
        assert not {partition.leader, *partition.replicas} & retired
