"""kafka-python: positions, commits, fetch sessions, admin calls, restarts."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from ottla import EmbeddedBroker
from tests.support.ports import free_port
from tests.support.python_clients import SECONDS, take_kafka_python, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # see tests.support.python_clients
    import kafka
    import kafka.admin
    from kafka.errors import (
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )
    from kafka.net.inet import KafkaNetSocket

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Its admin modules load more schemas when they are first used.
pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")


def produce(bootstrap: str, topic: str, values: range, partition: int = 0) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    for number in values:
        producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=1000 + number)
    producer.flush(SECONDS)
    producer.close()


def consumer_of(bootstrap: str, group: str | None, **config: Any) -> Any:
    settings = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "metadata_max_age_ms": 100,
        "heartbeat_interval_ms": 100,
        **config,
    }
    return kafka.KafkaConsumer(**settings)


def numbers(consumer: Any, count: int) -> list[int]:
    return [int(record.value) for record in take_kafka_python(consumer, count)]


@pytest.fixture
def admin(ottla_broker: EmbeddedBroker) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=ottla_broker.bootstrap)
    yield client
    client.close()


def test_commit_and_resume_with_metadata(
    ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, range(10))
    partition = kafka.TopicPartition(ottla_topic, 0)
    first = consumer_of(ottla_broker.bootstrap, group)
    first.subscribe([ottla_topic])
    assert numbers(first, 10)[:1] == [0]
    first.commit({partition: kafka.OffsetAndMetadata(4, "état", -1)})
    first.close()
    second = consumer_of(ottla_broker.bootstrap, group)
    second.subscribe([ottla_topic])
    assert numbers(second, 6) == [4, 5, 6, 7, 8, 9]
    assert second.committed(partition, metadata=True).metadata == "état"
    second.close()


@pytest.mark.parametrize("sessions", [True, False])
def test_positions(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str], sessions: bool
) -> None:
    """Seeks, a pause and new data through one fetch session, and the same without sessions."""
    topic = new_topic(2)
    first, second = (kafka.TopicPartition(topic, p) for p in (0, 1))
    produce(ottla_broker.bootstrap, topic, range(5), 0)
    produce(ottla_broker.bootstrap, topic, range(100, 105), 1)
    consumer = consumer_of(ottla_broker.bootstrap, None, enable_incremental_fetch_sessions=sessions)
    consumer.assign([first, second])
    assert sorted(numbers(consumer, 10)) == [*range(5), *range(100, 105)]
    consumer.seek(first, 3)
    assert numbers(consumer, 2) == [3, 4]
    consumer.seek(second, 4)
    assert numbers(consumer, 1) == [104]
    produce(ottla_broker.bootstrap, topic, range(5, 7), 0)
    produce(ottla_broker.bootstrap, topic, range(105, 107), 1)
    assert sorted(numbers(consumer, 4)) == [5, 6, 105, 106]
    consumer.pause(first)
    consumer.seek(first, 0)
    consumer.seek(second, 5)
    assert numbers(consumer, 2) == [105, 106]
    consumer.resume(first)
    consumer.seek_to_beginning(first)
    assert numbers(consumer, 7) == list(range(7))
    assert consumer.beginning_offsets([first]) == {first: 0}
    assert consumer.end_offsets([first, second]) == {first: 7, second: 7}
    consumer.assign([second])
    consumer.seek(second, 6)
    assert numbers(consumer, 1) == [106]
    consumer.close()


def test_offsets_for_times(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, range(10))
    partition = kafka.TopicPartition(ottla_topic, 0)
    consumer = consumer_of(ottla_broker.bootstrap, None)
    found = consumer.offsets_for_times({partition: 1006})[partition]
    assert (found.offset, found.timestamp) == (6, 1006)
    assert consumer.offsets_for_times({partition: 9999})[partition] is None
    consumer.close()


def test_regex_subscription_sees_new_topics(ottla_broker: EmbeddedBroker, group: str) -> None:
    names = [f"kp-{group}-{n}" for n in range(2)]
    ottla_broker.create_topic(names[0])
    produce(ottla_broker.bootstrap, names[0], range(2))
    consumer = consumer_of(ottla_broker.bootstrap, group)
    consumer.subscribe(pattern=f"^kp-{group}-.*")
    assert numbers(consumer, 2) == [0, 1]
    consumer.commit()
    ottla_broker.create_topic(names[1])
    produce(ottla_broker.bootstrap, names[1], range(10, 12))
    assert numbers(consumer, 2) == [10, 11]
    consumer.close()


def test_read_committed(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, range(3))
    consumer = consumer_of(ottla_broker.bootstrap, None, isolation_level="read_committed")
    consumer.assign([kafka.TopicPartition(ottla_topic, 0)])
    assert numbers(consumer, 3) == [0, 1, 2]
    consumer.close()


def test_acks_0(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=ottla_broker.bootstrap, acks=0, enable_idempotence=False
    )
    for number in range(20):
        producer.send(ottla_topic, b"%d" % number)
    producer.flush(SECONDS)
    producer.close()
    consumer = consumer_of(ottla_broker.bootstrap, None)
    consumer.assign([kafka.TopicPartition(ottla_topic, 0)])
    assert numbers(consumer, 20) == list(range(20))
    consumer.close()


def test_admin_topics_and_configs(admin: Any, group: str) -> None:
    name = f"kp-admin-{group}"
    admin.create_topics({name: {"num_partitions": 2, "configs": {"retention.ms": "5000"}}})
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({name: {"num_partitions": 2}})
    assert name in admin.list_topics()
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 2
    admin.create_partitions({name: 3})
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 3
    resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, name)
    modified = admin.describe_configs([resource])
    assert "5000" in str(modified)
    change = kafka.admin.ConfigResource(
        kafka.admin.ConfigResourceType.TOPIC, name, configs={"retention.ms": "6000"}
    )
    admin.alter_configs([change])
    assert "6000" in str(admin.describe_configs([resource]))
    admin.delete_topics([name])
    assert name not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_admin_groups_and_records(
    admin: Any, ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, range(5))
    partition = kafka.TopicPartition(ottla_topic, 0)
    consumer = consumer_of(ottla_broker.bootstrap, group)
    consumer.subscribe([ottla_topic])
    numbers(consumer, 5)
    consumer.commit()
    assert group in {g["group_id"] for g in admin.list_groups()}
    described = admin.describe_groups([group])[group]
    assert described["group_state"] == "Stable"
    assert len(described["members"]) == 1
    assert dict(admin.delete_groups([group]))[group] == "NonEmptyGroupError"
    assert group in {g["group_id"] for g in admin.list_groups()}
    consumer.close()
    assert admin.list_group_offsets(group)[group][partition].offset == 5
    admin.alter_group_offsets(group, {partition: kafka.OffsetAndMetadata(2, "", -1)})
    assert admin.list_group_offsets(group)[group][partition].offset == 2
    admin.delete_groups([group])
    assert group not in {g["group_id"] for g in admin.list_groups()}
    assert admin.delete_records({partition: 3})[partition]["low_watermark"] == 3


def test_admin_cluster_and_log_dirs(
    admin: Any, ottla_broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    produce(ottla_broker.bootstrap, topic, range(1))
    cluster = admin.describe_cluster()
    assert len(cluster["brokers"]) == 1
    listed = str(admin.describe_log_dirs())
    assert topic in listed


@pytest.fixture
def leaks_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """kafka-python does not close a socket whose connection is refused: that is done here."""
    made: list[socket.socket] = []
    make = KafkaNetSocket.socket

    def kept(*args: object, **kwargs: object) -> socket.socket:
        made.append(make(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(KafkaNetSocket, "socket", kept)
    yield
    for found in made:
        found.close()


@pytest.mark.usefixtures("leaks_sockets")
def test_clients_live_through_a_restart(tmp_path: Path, group: str) -> None:
    port = free_port()
    with EmbeddedBroker(tmp_path, port=port) as broker:
        broker.create_topic("t")
        quick = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 50}
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, **quick)
        consumer = consumer_of(broker.bootstrap, group, **quick)
        consumer.subscribe(["t"])
        sent = [producer.send("t", b"%d" % number) for number in range(50)]
        found = set(numbers(consumer, 50))
        consumer.commit()
    sent += [producer.send("t", b"%d" % number) for number in range(50, 100)]
    with EmbeddedBroker(tmp_path, port=port):
        assert [future.get(SECONDS).offset for future in sent] == list(range(100))

        def poll() -> None:
            for records in consumer.poll(timeout_ms=500).values():
                found.update(int(record.value) for record in records)

        until(lambda: found == set(range(100)), "every record is read", poll)
        consumer.close()
        producer.close()
