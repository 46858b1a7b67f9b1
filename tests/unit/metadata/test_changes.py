"""Each change and what it refuses; properties of the fold."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.changes.apply import Change, apply, apply_all
from ottla.metadata.changes.configs import SetConfigs, SetFeature
from ottla.metadata.changes.nodes import (
    MAX_PRODUCER_ID,
    AllocateProducerIds,
    RegisterBroker,
    SetBrokerFenced,
    SetClusterId,
    UnregisterBroker,
)
from ottla.metadata.changes.topics import (
    MAX_PARTITIONS_PER_TOPIC,
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    Leadership,
    SetLeaders,
)
from ottla.metadata.codec import decode_change, decode_image, encode_change, encode_image
from ottla.metadata.delta import delta
from ottla.metadata.errors import (
    ChangeRefused,
    ClusterIdFixed,
    InvalidFeatureLevel,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidTopicName,
    ProducerIdsExhausted,
    StaleBrokerEpoch,
    StalePartitionEpoch,
    TopicExists,
    TopicNameCollision,
    UnknownBroker,
    UnknownPartition,
    UnknownTopic,
)
from ottla.metadata.image import (
    CLUSTER_DEFAULT,
    NO_LEADER,
    Endpoint,
    Leader,
    MetadataImage,
    Partition,
    ResourceType,
)
from tests.support.metadata_changes import changes

ORDERS = UUID(int=100)
OTHER = UUID(int=101)
LISTENERS = {"PLAINTEXT": Endpoint("127.0.0.1", 9092)}
BASE = apply_all(
    MetadataImage(),
    [
        SetClusterId("c"),
        RegisterBroker(1, LISTENERS),
        RegisterBroker(2, LISTENERS, rack="r"),
        CreateTopic("orders", ORDERS, ((1,), (2,), (1,)), {"retention.ms": "5"}),
    ],
)


def set_leader(
    topic_id: UUID,
    partition: int,
    leader: int | None,
    replicas: tuple[int, ...] | None = None,
    epoch: int | None = None,
) -> SetLeaders:
    return SetLeaders((Leadership(topic_id, partition, leader, replicas, epoch),))


def leaders(image: MetadataImage) -> list[tuple[int, int]]:
    topic = image.topics_by_name["orders"]
    return [(partition.leader, partition.leader_epoch) for partition in topic.partitions]


def test_queries() -> None:
    topic = BASE.topic("orders")
    assert topic is not None
    assert BASE.topic_by_id(ORDERS) is topic
    assert not topic.internal
    assert topic.partitions[1] == Partition(2, 0, 0, (2,))
    assert BASE.leader_of("orders", 1) == Leader(2, 0)
    assert BASE.leader_of("orders", 3) is None
    assert BASE.leader_of("orders", -1) is None
    assert BASE.leader_of("nothing", 0) is None
    assert BASE.topic("nothing") is None
    assert BASE.topic_by_id(OTHER) is None
    assert BASE.version == 4
    assert BASE.brokers[2].epoch == 3
    assert BASE.brokers[2].rack == "r"
    assert BASE.configs_of(ResourceType.TOPIC, "orders") == {"retention.ms": "5"}
    assert BASE.configs_of(ResourceType.GROUP, "orders") == {}


def test_a_broker_that_comes_back_leads_in_a_new_epoch() -> None:
    again = apply(BASE, RegisterBroker(1, LISTENERS))
    assert leaders(again) == [(1, 1), (2, 0), (1, 1)]
    assert again.brokers[1].epoch == again.version


def test_a_fenced_broker_leads_nothing_until_it_is_unfenced() -> None:
    fenced = apply(BASE, SetBrokerFenced(1, 2, fenced=True))
    assert leaders(fenced) == [(NO_LEADER, 1), (2, 0), (NO_LEADER, 1)]
    assert fenced.leader_of("orders", 0) is None
    assert fenced.brokers[1].fenced
    assert leaders(apply(fenced, SetBrokerFenced(1, 2, fenced=False))) == [(1, 2), (2, 0), (1, 2)]
    unchanged = apply(fenced, SetBrokerFenced(1, 2, fenced=True))
    assert unchanged.topics_by_name is fenced.topics_by_name


def test_a_broker_that_registers_fenced_leads_nothing() -> None:
    assert leaders(apply(BASE, RegisterBroker(2, LISTENERS, fenced=True)))[1] == (NO_LEADER, 1)


def test_an_unregistered_broker_is_gone_and_its_partitions_wait_for_it() -> None:
    gone = apply(BASE, UnregisterBroker(2))
    assert sorted(gone.brokers) == [1]
    assert leaders(gone) == [(1, 0), (NO_LEADER, 1), (1, 0)]
    assert leaders(apply(gone, RegisterBroker(3, LISTENERS)))[1] == (NO_LEADER, 1)
    assert leaders(apply(gone, RegisterBroker(2, LISTENERS)))[1] == (2, 2)


def test_a_partition_moves_to_another_node() -> None:
    moved = apply(BASE, set_leader(ORDERS, 0, 2, (2,), 0))
    assert moved.partition("orders", 0) == Partition(2, 1, 1, (2,))
    assert moved.partition("orders", 1) is BASE.partition("orders", 1)


def test_a_node_stands_in_for_the_replicas() -> None:
    taken = apply_all(BASE, [SetBrokerFenced(1, 2, fenced=True), set_leader(ORDERS, 0, 2)])
    assert taken.partition("orders", 0) == Partition(2, 2, 2, (1,))
    back = apply(taken, RegisterBroker(1, LISTENERS))
    assert leaders(back) == [(2, 2), (2, 0), (1, 2)]


def test_replicas_change_without_a_new_leadership() -> None:
    changed = apply(BASE, set_leader(ORDERS, 0, None, (2, 1)))
    assert changed.partition("orders", 0) == Partition(1, 0, 1, (2, 1))


def test_many_partitions_move_at_once_or_none() -> None:
    both = (Leadership(ORDERS, 0, 2), Leadership(ORDERS, 2, 2, None, 0))
    assert leaders(apply(BASE, SetLeaders(both))) == [(2, 1), (2, 0), (2, 1)]
    with pytest.raises(StalePartitionEpoch):
        apply(BASE, SetLeaders((*both, Leadership(ORDERS, 1, 1, None, 7))))


def test_a_new_partition_is_led_by_the_first_replica_that_is_alive() -> None:
    fenced = apply(BASE, SetBrokerFenced(1, 2, fenced=True))
    made = apply(fenced, CreateTopic("other", OTHER, ((1, 2), (1,))))
    assert [one.leader for one in made.topics_by_name["other"].partitions] == [2, NO_LEADER]


def test_an_image_of_an_older_broker_is_read() -> None:
    text = encode_image(BASE)
    older = text.replace('"replicas":[1]}', '"replicas":[1],"isr":[1]}')
    assert older != text
    assert decode_image(older) == BASE


def test_partitions_are_added_at_the_end() -> None:
    more = apply(BASE, AddPartitions(ORDERS, ((2, 1),)))
    assert more.partition("orders", 3) == Partition(2, 0, 0, (2, 1))


def test_a_deleted_topic_takes_its_configs_along() -> None:
    deleted = apply(BASE, DeleteTopic(ORDERS))
    assert (deleted.topics_by_name, deleted.topic_names, deleted.topic_configs) == ({}, {}, {})
    again = apply(deleted, CreateTopic("orders", OTHER, ((1,),)))
    assert again.configs_of(ResourceType.TOPIC, "orders") == {}


@pytest.mark.parametrize("resource_type", ResourceType)
def test_configs_are_merged_and_removed(resource_type: ResourceType) -> None:
    image = apply_all(
        BASE,
        [
            SetConfigs(resource_type, "orders", {"a": "1", "b": "2", "retention.ms": None}),
            SetConfigs(resource_type, "orders", {"b": None, "c": "3"}),
        ],
    )
    assert image.configs_of(resource_type, "orders") == {"a": "1", "c": "3"}
    emptied = apply(image, SetConfigs(resource_type, "orders", {"a": None, "c": None}))
    assert "orders" not in emptied.configs_by_type(resource_type)


def test_features_and_producer_ids() -> None:
    image = apply_all(BASE, [SetFeature("share.version", 1), AllocateProducerIds(1, 1000)])
    assert image.features == {"share.version": 1}
    assert image.next_producer_id == 1000
    assert apply(image, SetFeature("share.version", 0)).features == {}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (SetClusterId("d"), ClusterIdFixed),
        (RegisterBroker(-1, LISTENERS), ChangeRefused),
        (SetBrokerFenced(3, 1, fenced=True), UnknownBroker),
        (SetBrokerFenced(1, 1, fenced=True), StaleBrokerEpoch),
        (UnregisterBroker(3), UnknownBroker),
        (CreateTopic("orders", OTHER, ((1,),)), TopicExists),
        (CreateTopic("other", ORDERS, ((1,),)), TopicExists),
        (CreateTopic("other", UUID(int=0), ((1,),)), TopicExists),
        (CreateTopic("..", OTHER, ((1,),)), InvalidTopicName),
        (CreateTopic("other", OTHER, ()), InvalidPartitions),
        (CreateTopic("other", OTHER, ((1,),) * (MAX_PARTITIONS_PER_TOPIC + 1)), InvalidPartitions),
        (CreateTopic("other", OTHER, ((),)), InvalidReplicaAssignment),
        (CreateTopic("other", OTHER, ((1, 1),)), InvalidReplicaAssignment),
        (CreateTopic("other", OTHER, ((-1,),)), InvalidReplicaAssignment),
        (DeleteTopic(OTHER), UnknownTopic),
        (AddPartitions(OTHER, ((1,),)), UnknownTopic),
        (AddPartitions(ORDERS, ()), InvalidPartitions),
        (AddPartitions(ORDERS, ((1,),) * MAX_PARTITIONS_PER_TOPIC), InvalidPartitions),
        (set_leader(OTHER, 0, 1), UnknownTopic),
        (set_leader(ORDERS, 3, 1), UnknownPartition),
        (set_leader(ORDERS, -1, 1), UnknownPartition),
        (set_leader(ORDERS, 0, 3), InvalidReplicaAssignment),
        (set_leader(ORDERS, 0, 1, (1, 1)), InvalidReplicaAssignment),
        (set_leader(ORDERS, 0, NO_LEADER, ()), InvalidReplicaAssignment),
        (set_leader(ORDERS, 0, 1, None, 1), StalePartitionEpoch),
        (SetConfigs(ResourceType.TOPIC, "other", {"a": "1"}), UnknownTopic),
        (SetFeature("f", -1), InvalidFeatureLevel),
        (AllocateProducerIds(1, 0), ProducerIdsExhausted),
        (AllocateProducerIds(1, MAX_PRODUCER_ID + 1), ProducerIdsExhausted),
    ],
)
def test_refusals(change: Change, error: type[ChangeRefused]) -> None:
    with pytest.raises(error) as refused:
        apply(BASE, change)
    assert type(refused.value) is error
    assert ": expected " in str(refused.value)


def test_names_that_metrics_cannot_tell_apart_collide() -> None:
    image = apply(BASE, CreateTopic("a.b_c", OTHER, ((1,),)))
    with pytest.raises(TopicNameCollision, match=r"'a_b\.c' beside 'a\.b_c'"):
        apply(image, CreateTopic("a_b.c", UUID(int=102), ((1,),)))


def test_adding_a_topic_leaves_the_others_as_they_are() -> None:
    image = apply(BASE, CreateTopic("other", OTHER, ((1,),)))
    assert image.topics_by_name["orders"] is BASE.topics_by_name["orders"]
    assert "other" not in BASE.topics_by_name


def test_the_default_of_all_brokers_is_a_resource() -> None:
    image = apply(BASE, SetConfigs(ResourceType.BROKER, CLUSTER_DEFAULT, {"a": "1"}))
    assert image.configs_of(ResourceType.BROKER, CLUSTER_DEFAULT) == {"a": "1"}


def fold(steps: list[Change]) -> MetadataImage:
    """Folds what fits."""
    image = BASE
    for step in steps:
        try:
            image = apply(image, step)
        except ChangeRefused:
            continue
    return image


@given(st.lists(changes(), max_size=12))
def test_what_holds_in_every_image(steps: list[Change]) -> None:
    image = fold(steps)
    by_id = {topic.topic_id: name for name, topic in image.topics_by_name.items()}
    assert by_id == image.topic_names
    assert image.topic_configs.keys() <= image.topics_by_name.keys()
    for name, topic in image.topics_by_name.items():
        assert topic.name == name
        for index, partition in enumerate(topic.partitions):
            assert len(set(partition.replicas)) == len(partition.replicas) > 0
            assert partition.partition_epoch >= partition.leader_epoch
            leader = image.leader_of(name, index)
            assert partition.leader == (NO_LEADER if leader is None else leader.node_id)
            if leader is not None:
                assert leader.node_id in image.alive
    for by_name in map(image.configs_by_type, ResourceType):
        assert all(by_name.values())


@given(changes())
def test_a_change_survives_the_codec(change: Change) -> None:
    assert decode_change(encode_change(change)) == change


@given(st.lists(changes(), max_size=12))
def test_an_image_survives_the_codec(steps: list[Change]) -> None:
    image = fold(steps)
    assert decode_image(encode_image(image)) == image


def test_a_topic_made_anew_under_its_name_is_another() -> None:
    after = apply_all(BASE, [DeleteTopic(ORDERS), CreateTopic("orders", OTHER, ((1,),))])
    found = delta(BASE, after)
    assert [topic.topic_id for topic in found.deleted] == [ORDERS]
    assert [topic.topic_id for topic in found.created] == [OTHER]
    assert found.changed == ()


@given(st.lists(changes(), max_size=8), st.booleans())
def test_a_delta_turns_the_old_topics_into_the_new(steps: list[Change], copied: bool) -> None:
    after = fold(steps)
    # A node that fell behind compares with an image that shares nothing.
    found = delta(BASE, decode_image(encode_image(after)) if copied else after)
    topics = {topic.topic_id: topic for topic in BASE.topics_by_name.values()}
    for topic in found.deleted:
        del topics[topic.topic_id]
    for old, new in found.changed:
        assert topics[old.topic_id] == old != new
        topics[new.topic_id] = new
    for topic in found.created:
        assert topic.topic_id not in topics
        topics[topic.topic_id] = topic
    assert {topic.name: topic for topic in topics.values()} == after.topics_by_name
    for resource_type in ResourceType:
        old_configs, new_configs = (image.configs_by_type(resource_type) for image in (BASE, after))
        differing = {
            name
            for name in {**old_configs, **new_configs}
            if old_configs.get(name) != new_configs.get(name)
        }
        assert {name for kind, name in found.configs if kind is resource_type} == differing
