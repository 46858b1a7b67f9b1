"""confluent-kafka's admin client: topics, configs, groups, records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.conformance.test_confluent_consumer import consumer_of, produce
from tests.support.python_clients import SECONDS, take_confluent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla import EmbeddedBroker


@pytest.fixture
def admin(ottla_broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": ottla_broker.bootstrap})


def result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(SECONDS)


def code_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as raised:
        result(futures)
    code: int = raised.value.args[0].code()
    return code


def test_topics(admin: AdminClient, group: str) -> None:
    name = f"admin-{group}"
    new = NewTopic(name, 3, 1, config={"retention.ms": "1234567"})
    result(admin.create_topics([new], validate_only=True))
    assert name not in admin.list_topics(timeout=SECONDS).topics
    result(admin.create_topics([new]))
    assert code_of(admin.create_topics([new])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert len(admin.list_topics(timeout=SECONDS).topics[name].partitions) == 3
    result(admin.create_partitions([NewPartitions(name, 5)]))
    assert len(admin.list_topics(timeout=SECONDS).topics[name].partitions) == 5
    assert code_of(admin.create_partitions([NewPartitions(name, 4)])) == 37
    result(admin.delete_topics([name]))
    assert name not in admin.list_topics(timeout=SECONDS).topics
    assert code_of(admin.delete_topics([name])) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("none", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("many", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("odd", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("odd", 1, 1, config={"retention.ms": "x"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_topics_that_cannot_be(admin: AdminClient, topic: NewTopic, code: int) -> None:
    assert code_of(admin.create_topics([topic])) == code


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")  # but it is still there
def test_configs(admin: AdminClient, ottla_topic: str) -> None:
    def described() -> Any:
        return result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, ottla_topic)]))

    assert described()["retention.ms"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        ottla_topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "777", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )
    result(admin.incremental_alter_configs([change]))
    configs = described()
    assert (configs["retention.ms"].value, configs["retention.ms"].is_default) == ("777", False)
    assert configs["cleanup.policy"].value == "delete,compact"
    # The old call replaces the whole set.
    replace = ConfigResource(ResourceType.TOPIC, ottla_topic, set_config={"segment.ms": "9999999"})
    result(admin.alter_configs([replace]))
    configs = described()
    assert configs["segment.ms"].value == "9999999"
    assert configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "delete"


def test_broker_configs_and_cluster(admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(SECONDS)
    assert cluster.cluster_id
    (node,) = cluster.nodes
    assert cluster.controller.id == node.id
    resource = ConfigResource(ResourceType.BROKER, str(node.id))
    configs = result(admin.describe_configs([resource]))
    assert configs["num.partitions"].value == "1"


def test_groups(
    admin: AdminClient, ottla_broker: EmbeddedBroker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(2)
    produce(ottla_broker.bootstrap, topic, range(3))
    consumer = consumer_of(ottla_broker.bootstrap, group)
    consumer.subscribe([topic])
    take_confluent(consumer, 3)
    consumer.commit(asynchronous=False)
    listed = {g.group_id: g.state.name for g in admin.list_consumer_groups().result(SECONDS).valid}
    assert listed[group] == "STABLE"
    described = result(admin.describe_consumer_groups([group]))
    (member,) = described.members
    owned = sorted(p.partition for p in member.assignment.topic_partitions)
    assert (described.state.name, described.partition_assignor, owned) == (
        "STABLE",
        "range",
        [0, 1],
    )
    assert code_of(admin.delete_consumer_groups([group])) == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    asked = [ConsumerGroupTopicPartitions(group)]
    offsets = result(admin.list_consumer_group_offsets(asked)).topic_partitions
    assert {p.partition: p.offset for p in offsets}[0] == 3
    rewind = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    result(admin.alter_consumer_group_offsets([rewind]))
    offsets = result(admin.list_consumer_group_offsets(asked)).topic_partitions
    assert {p.partition: p.offset for p in offsets}[0] == 1
    result(admin.delete_consumer_groups([group]))
    assert code_of(admin.delete_consumer_groups([group])) == KafkaError.GROUP_ID_NOT_FOUND
    assert group not in {g.group_id for g in admin.list_consumer_groups().result(SECONDS).valid}


def test_a_kip_848_group(
    admin: AdminClient, ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, range(1))
    consumer = consumer_of(ottla_broker.bootstrap, group, **{"group.protocol": "consumer"})
    consumer.subscribe([ottla_topic])
    take_confluent(consumer, 1)
    described = result(admin.describe_consumer_groups([group]))
    assert (described.type.name, described.state.name) == ("CONSUMER", "STABLE")
    (member,) = described.members
    assert [p.topic for p in member.assignment.topic_partitions] == [ottla_topic]
    consumer.close()


def test_records_and_offsets(
    admin: AdminClient, ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, range(10))
    deleted = result(admin.delete_records([TopicPartition(ottla_topic, 0, 4)]))
    assert deleted.low_watermark == 4

    spec: Any = OffsetSpec  # its constructors have no types

    def listed(spec: OffsetSpec) -> int:
        offset: int = result(admin.list_offsets({TopicPartition(ottla_topic, 0): spec})).offset
        return offset

    assert listed(spec.earliest()) == 4
    assert listed(spec.latest()) == 10
    assert listed(spec.max_timestamp()) == 9
    assert listed(spec.for_timestamp(1006)) == 6
