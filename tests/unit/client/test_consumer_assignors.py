"""The assignors of classic groups, and the bytes in which leader and members tell each other."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.cluster.view import TopicPartition
from ottla.client.consumer.assignors import ASSIGNORS, assign_cooperative_sticky
from ottla.client.consumer.protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPICS = ("a", "b", "c")
names = st.text(st.sampled_from("mnop"), min_size=1, max_size=3)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 5))
partitions = st.lists(
    st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 6)), unique=True, max_size=8
)
subscriptions = st.builds(
    Subscription,
    st.lists(st.sampled_from(TOPICS), unique=True),
    partitions,
    st.integers(-1, 3),
)
groups = st.dictionaries(names, subscriptions, min_size=1, max_size=5)


def given_out(found: Mapping[str, list[TopicPartition]]) -> list[TopicPartition]:
    return [one for partitions in found.values() for one in partitions]


def readable(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> set[TopicPartition]:
    wanted = {topic for one in members.values() for topic in one.topics}
    return {
        TopicPartition(topic, number)
        for topic, count in counts.items()
        if topic in wanted
        for number in range(count)
    }


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(members=groups, counts=counts)
def test_eager_assignors_give_each_partition_to_one_member_that_wants_it(
    name: str, members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> None:
    found = ASSIGNORS[name].assign(members, counts)
    assert found.keys() == members.keys()
    assert sorted(given_out(found)) == sorted(readable(members, counts))
    for member, partitions in found.items():
        assert all(one.topic in members[member].topics for one in partitions)


@given(members=groups, counts=counts)
def test_cooperative_rounds_end_with_everything_given_out_and_take_nothing_from_an_owner(
    members: dict[str, Subscription], counts: Mapping[str, int]
) -> None:
    for generation in range(10, 20):
        found = assign_cooperative_sticky(members, counts)
        out = given_out(found)
        assert len(out) == len(set(out))
        owners = {one: member for member, of in members.items() for one in of.owned}
        if generation > 10:
            # From the second round on members own what they were given, so owners are unique.
            for member, partitions in found.items():
                assert all(owners.get(one, member) == member for one in partitions)
        settled = all(set(found[member]) == set(of.owned) for member, of in members.items())
        members = {
            member: Subscription(of.topics, found[member], generation)
            for member, of in members.items()
        }
        if settled:
            break
    else:
        raise AssertionError("no end of rounds")
    assert set(out) == readable(members, counts)
    for giver, partitions in found.items():
        for one in partitions:
            takers = [m for m, of in members.items() if one.topic in of.topics]
            assert all(len(found[giver]) - len(found[m]) < 2 for m in takers)


@given(size=st.integers(1, 4), count=st.integers(0, 20))
def test_a_balanced_group_stays_as_it_is(size: int, count: int) -> None:
    members = {str(number): Subscription(["a"]) for number in range(size)}
    first = assign_cooperative_sticky(members, {"a": count})
    members = {member: Subscription(["a"], given, 1) for member, given in first.items()}
    assert assign_cooperative_sticky(members, {"a": count}) == first


@given(subscriptions)
def test_subscriptions_come_back_and_others_read_them(subscription: Subscription) -> None:
    data = write_subscription(subscription)
    found = read_subscription(data)
    assert list(found.topics) == list(subscription.topics)
    assert sorted(found.owned) == sorted(subscription.owned)
    assert found.generation == subscription.generation
    theirs = ConsumerProtocolMemberMetadata.decode(data)
    assert list(theirs.subscription) == list(subscription.topics)


@given(partitions)
def test_assignments_come_back_and_others_read_them(wanted: list[TopicPartition]) -> None:
    data = write_assignment(wanted)
    assert sorted(read_assignment(data)) == sorted(wanted)
    theirs = ConsumerProtocolMemberAssignment.decode(data)
    assert sorted(theirs.partitions()) == sorted(wanted)


def test_subscriptions_of_others_are_read() -> None:
    theirs = ConsumerProtocolMemberMetadata(0, ["a", "b"], b"notes").encode()
    assert read_subscription(theirs) == Subscription(["a", "b"])


@given(st.binary(max_size=60))
def test_bytes_that_are_no_subscription_are_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_subscription(data)
    assert isinstance(read_assignment(data), list)
