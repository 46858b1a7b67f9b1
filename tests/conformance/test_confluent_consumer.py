"""confluent-kafka (librdkafka) as a consumer: positions, commits, groups, topics that change."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from ottla import EmbeddedBroker
from ottla.broker.coordinators import groups as group_service
from ottla.coordination.groups.config import GroupConfig
from tests.support.ports import free_port
from tests.support.python_clients import SECONDS, take_confluent, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUICK_GROUPS = {
    "group.consumer.heartbeat.interval.ms": "50",
    "group.consumer.min.heartbeat.interval.ms": "50",
}


def produce(
    bootstrap: str, topic: str, values: range, partition: int = 0, *, codec: str = "none"
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.codec": codec})
    for number in values:
        producer.produce(topic, b"%d" % number, partition=partition, timestamp=1000 + number)
    assert producer.flush(SECONDS) == 0


def consumer_of(bootstrap: str, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 100,
            **config,
        }
    )


def numbers(consumer: Consumer, count: int) -> list[int]:
    return [int(record.value() or b"") for record in take_confluent(consumer, count)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_commit_and_resume(
    ottla_broker: EmbeddedBroker, ottla_topic: str, group: str, protocol: str
) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, range(10))
    config = {"group.protocol": protocol}
    first = consumer_of(ottla_broker.bootstrap, group, **config)
    first.subscribe([ottla_topic])
    records = take_confluent(first, 4)
    first.commit(message=records[-1], asynchronous=False)
    first.close()
    second = consumer_of(ottla_broker.bootstrap, group, **config)
    second.subscribe([ottla_topic])
    assert numbers(second, 6) == [4, 5, 6, 7, 8, 9]
    (committed,) = second.committed([TopicPartition(ottla_topic, 0)], SECONDS)
    assert committed.offset == 4
    second.close()


def test_commit_metadata_round_trips(
    ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    consumer = consumer_of(ottla_broker.bootstrap, group)
    told = TopicPartition(ottla_topic, 0, 7, metadata="état: ✓")
    consumer.commit(offsets=[told], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(ottla_topic, 0)], SECONDS)
    assert (found.offset, found.metadata) == (7, "état: ✓")
    consumer.close()


def test_seek_pause_and_resume(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(2)
    produce(ottla_broker.bootstrap, topic, range(5), 0)
    produce(ottla_broker.bootstrap, topic, range(100, 105), 1)
    consumer = consumer_of(ottla_broker.bootstrap, group)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in (0, 1)])
    assert sorted(numbers(consumer, 10)) == [*range(5), *range(100, 105)]
    consumer.seek(TopicPartition(topic, 0, 3))
    assert numbers(consumer, 2) == [3, 4]
    consumer.pause([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 1, 4))
    assert numbers(consumer, 1) == [104]
    consumer.resume([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0, 1))
    assert numbers(consumer, 4) == [1, 2, 3, 4]
    consumer.close()


def test_watermarks_and_offsets_for_times(
    ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, range(10), codec="zstd")
    consumer = consumer_of(ottla_broker.bootstrap, group)
    assert consumer.get_watermark_offsets(TopicPartition(ottla_topic, 0), SECONDS) == (0, 10)
    wanted = [TopicPartition(ottla_topic, 0, time) for time in (0, 1004, 1009)]
    found = [consumer.offsets_for_times([each], SECONDS)[0].offset for each in wanted]
    assert found == [0, 4, 9]
    late = consumer.offsets_for_times([TopicPartition(ottla_topic, 0, 5000)], SECONDS)
    assert late[0].offset == OFFSET_END
    consumer.close()


def test_an_offset_past_the_end_resets(
    ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    produce(ottla_broker.bootstrap, ottla_topic, range(3))
    consumer = consumer_of(ottla_broker.bootstrap, group)
    consumer.assign([TopicPartition(ottla_topic, 0, 99)])
    assert numbers(consumer, 3) == [0, 1, 2]
    consumer.close()


def test_an_offset_past_the_end_is_an_error_when_asked_for(
    ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    consumer = consumer_of(ottla_broker.bootstrap, group, **{"auto.offset.reset": "error"})
    consumer.assign([TopicPartition(ottla_topic, 0, 99)])
    errors: list[Any] = []
    until(lambda: errors, "an error", lambda: errors.extend(consumer.consume(1, timeout=0.1)))
    assert errors[0].error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_regex_subscription_sees_new_topics(
    group: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kafka matches again after ten seconds at the earliest, and so do we; not in a test.
    brisk = partial(GroupConfig, regex_refresh_interval_ms=50)
    monkeypatch.setattr(group_service, "GroupConfig", brisk)
    with EmbeddedBroker(config=QUICK_GROUPS) as broker:
        for name in ("t-1", "t-2", "other"):
            broker.create_topic(name)
            produce(broker.bootstrap, name, range(3))
        consumer = consumer_of(broker.bootstrap, group, **{"group.protocol": protocol})
        consumer.subscribe(["^t-.*"])
        found = {(r.topic(), r.offset()) for r in take_confluent(consumer, 6)}
        consumer.commit(asynchronous=False)
        assert found == {(name, offset) for name in ("t-1", "t-2") for offset in range(3)}
        broker.create_topic("t-3")
        produce(broker.bootstrap, "t-3", range(2))
        assert [r.topic() for r in take_confluent(consumer, 2)] == ["t-3", "t-3"]
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_new_partitions_are_found_while_consuming(group: str, protocol: str) -> None:
    with EmbeddedBroker(config=QUICK_GROUPS) as broker:
        broker.create_topic("grows")
        produce(broker.bootstrap, "grows", range(3))
        consumer = consumer_of(broker.bootstrap, group, **{"group.protocol": protocol})
        consumer.subscribe(["grows"])
        assert numbers(consumer, 3) == [0, 1, 2]
        consumer.commit(asynchronous=False)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions("grows", 3)])["grows"].result(SECONDS)
        produce(broker.bootstrap, "grows", range(10, 12), 2)
        assert numbers(consumer, 2) == [10, 11]
        consumer.close()


def test_a_topic_deleted_while_consuming(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str], group: str
) -> None:
    gone, stays = new_topic(), new_topic()
    produce(ottla_broker.bootstrap, gone, range(2))
    consumer = consumer_of(ottla_broker.bootstrap, group, **{"allow.auto.create.topics": False})
    consumer.subscribe([gone, stays])
    assert numbers(consumer, 2) == [0, 1]
    ottla_broker.delete_topic(gone)
    produce(ottla_broker.bootstrap, stays, range(5, 7))
    found: list[int] = []

    def poll() -> None:
        found.extend(
            int(r.value() or b"") for r in consumer.consume(10, timeout=0.1) if r.error() is None
        )

    until(lambda: found == [5, 6], "the other topic is still read", poll)
    consumer.close()


def test_a_static_member_that_restarts_keeps_its_partitions(
    ottla_broker: EmbeddedBroker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(4)
    moves: list[str] = []

    def member(name: str) -> Consumer:
        consumer = consumer_of(
            ottla_broker.bootstrap,
            group,
            **{"group.instance.id": name, "heartbeat.interval.ms": 50},
        )
        consumer.subscribe(
            [topic],
            on_assign=lambda _, ps: moves.append(f"{name} got {[p.partition for p in ps]}"),
            on_revoke=lambda _, ps: moves.append(f"{name} lost {[p.partition for p in ps]}"),
        )
        return consumer

    a, b = member("a"), member("b")

    def poll() -> None:
        a.poll(0.02)
        b.poll(0.02)

    until(lambda: len(a.assignment()) == len(b.assignment()) == 2, "both have two", poll)
    kept = sorted(p.partition for p in b.assignment())
    b.close()  # a static member does not say goodbye
    moves.clear()
    b = member("b")
    until(lambda: len(b.assignment()) == 2, "b is back", poll)
    assert sorted(p.partition for p in b.assignment()) == kept
    assert [move for move in moves if move.startswith("a")] == []
    a.close()
    b.close()


def test_auto_creation_by_a_producer(ottla_broker: EmbeddedBroker, group: str) -> None:
    topic = f"made-for-{group}"
    produce(ottla_broker.bootstrap, topic, range(3), partition=-1)
    consumer = consumer_of(ottla_broker.bootstrap, group)
    consumer.subscribe([topic])
    assert numbers(consumer, 3) == [0, 1, 2]
    consumer.close()


def test_a_message_too_large_is_reported(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": ottla_broker.bootstrap, "message.max.bytes": 5_000_000}
    )
    errors: list[Any] = []
    producer.produce(ottla_topic, bytes(3_000_000), on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(SECONDS) == 0
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_clients_live_through_a_restart(tmp_path: Path, group: str) -> None:
    """Same directory, same port: what was acknowledged is there, what was not is sent again."""
    port = free_port()
    with EmbeddedBroker(tmp_path, port=port) as broker:
        broker.create_topic("t", partitions=2)
        quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50}
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, **quick}
        )
        consumer = consumer_of(broker.bootstrap, group, **quick, **{"heartbeat.interval.ms": 100})
        consumer.subscribe(["t"])
        delivered: list[Any] = []
        for number in range(100):
            producer.produce(
                "t",
                b"%d" % number,
                partition=number % 2,
                on_delivery=lambda *a: delivered.append(a),
            )
        found = set(numbers(consumer, 50))
        consumer.commit(asynchronous=False)
    for number in range(100, 200):
        producer.produce(
            "t", b"%d" % number, partition=number % 2, on_delivery=lambda *a: delivered.append(a)
        )
    with EmbeddedBroker(tmp_path, port=port) as broker:
        assert producer.flush(SECONDS) == 0
        assert [error for error, _ in delivered if error is not None] == []
        assert len({(m.partition(), m.offset()) for _, m in delivered}) == 200
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), SECONDS) == (0, 100)

        def poll() -> None:
            polled = consumer.consume(200, timeout=0.1)
            found.update(int(r.value() or b"") for r in polled if r.error() is None)

        until(lambda: found == set(range(200)), "every record is read", poll)
        consumer.close()
