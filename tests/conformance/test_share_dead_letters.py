"""Dead letters of share groups, with librdkafka's share consumer and plain consumer."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import AcknowledgeType, Producer

from ottla.testing.embedded import EmbeddedBroker
from tests.support.dead_letters import read_letters
from tests.support.raw_client import RawClient
from tests.support.share_member import LOCK_MS, SHARE_CONFIG, ShareMember
from tests.support.share_workers import PATIENCE, poll_until, set_group, share_consumer

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPLICIT: Final = {"share_acknowledgement_mode": "explicit"}
ENABLED: Final = {"errors.deadletterqueue.group.enable": "true"}
REJECTED: Final = b"Offset rejected by client."
LATEST: Final = -1
LIMIT_REACHED: Final = b"Offset delivery count exceeded the threshold."
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=SHARE_CONFIG) as broker:
        yield broker


class Place:
    """A topic, a group that reads it, and the group's dead-letter topic."""

    def __init__(self, broker: EmbeddedBroker, **configs: str) -> None:
        number = next(_numbers)
        self.bootstrap = broker.bootstrap
        self.group, self.topic = f"mourners-{number}", f"mourned-{number}"
        self.letters = f"dlq.{self.topic}"
        broker.create_topic(self.topic)
        set_group(
            self.bootstrap,
            self.group,
            share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name=self.letters,
            **configs,
        )

    def produce(self, records: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(records):
            headers: dict[str, str | bytes | None] = {"trace": str(number)}
            producer.produce(self.topic, b"v%d" % number, b"k%d" % number, headers=headers)
        assert producer.flush(PATIENCE) == 0

    def consumer(self) -> Any:
        return share_consumer(self.bootstrap, self.group, self.topic, **EXPLICIT)

    def read(self, letters: int) -> list[Any]:
        return read_letters(self.bootstrap, self.letters, letters)


def test_rejected_records_become_dead_letters(broker: EmbeddedBroker) -> None:
    place = Place(broker)
    broker.create_topic(place.letters, configs=ENABLED)
    place.produce(6)
    consumer = place.consumer()
    for message in poll_until(consumer, 6):
        kind = AcknowledgeType.REJECT if message.offset() % 2 else AcknowledgeType.ACCEPT
        consumer.acknowledge(message, kind)
    assert set(consumer.commit_sync(PATIENCE).values()) == {None}
    found = place.read(3)
    assert [(one.key(), one.value()) for one in found] == [
        (b"k1", b"v1"),
        (b"k3", b"v3"),
        (b"k5", b"v5"),
    ]
    assert dict(found[0].headers()) == {
        "trace": b"1",
        "__dlq.errors.topic": place.topic.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": place.group.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": REJECTED,
    }
    assert not list(consumer.poll(0.2))
    consumer.close()


def test_a_record_at_the_delivery_limit_becomes_a_dead_letter(broker: EmbeddedBroker) -> None:
    place = Place(broker, share_delivery_count_limit="2")
    broker.create_topic(place.letters, configs=ENABLED)
    place.produce(1)
    consumer = place.consumer()
    for delivery in (1, 2):
        (message,) = poll_until(consumer, 1)
        assert message.delivery_count() == delivery
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
        consumer.commit_sync(PATIENCE)
    (letter,) = place.read(1)
    headers = dict(letter.headers())
    assert (letter.value(), headers["__dlq.errors.message"]) == (b"v0", LIMIT_REACHED)
    assert headers["__dlq.errors.delivery.count"] == b"2"
    consumer.close()


def test_a_lock_that_ends_at_the_limit_leaves_a_dead_letter(broker: EmbeddedBroker) -> None:
    place = Place(
        broker,
        share_delivery_count_limit="2",
        share_record_lock_duration_ms=str(LOCK_MS),
        errors_deadletterqueue_copy_record_enable="false",
    )
    broker.create_topic(place.letters, configs=ENABLED)
    place.produce(1)
    consumer = place.consumer()
    (message,) = poll_until(consumer, 1)
    consumer.acknowledge(message, AcknowledgeType.RELEASE)
    consumer.commit_sync(PATIENCE)
    assert len(poll_until(consumer, 1)) == 1  # and nothing is heard of it again
    (letter,) = place.read(1)
    assert (letter.key(), letter.value()) == (None, None)
    assert dict(letter.headers())["__dlq.errors.message"] == LIMIT_REACHED
    consumer.close()


def test_a_lone_member_that_dies_at_the_limit_leaves_one_dead_letter(
    broker: EmbeddedBroker,
) -> None:
    """With its connection the group's last session ends, and the share-partition is let go: not
    without what is still to be written, or the record would come for ever."""
    # A long interval: a join waits for half of it until there is state to fetch with.
    limits = {"share_delivery_count_limit": "2", "share_heartbeat_interval_ms": "15000"}
    place = Place(broker, **limits)
    broker.create_topic(place.letters, configs=ENABLED)
    place.produce(1)
    for delivery in (1, 2):
        with ShareMember(place.bootstrap, place.group, place.topic) as member:
            member.join()
            assert member.first().ranges == [(0, 0, delivery)]
    place.produce(1)
    with ShareMember(place.bootstrap, place.group, place.topic) as member:
        member.join()
        assert member.first().ranges == [(1, 1, 1)]
    with RawClient(place.bootstrap) as client:
        assert client.offset(place.letters, LATEST).offset == 1


@pytest.mark.parametrize("configs", [None, {}])
def test_without_a_topic_that_allows_it_records_are_given_up_and_that_is_said(
    broker: EmbeddedBroker, configs: dict[str, str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(broker)
    if configs is not None:
        broker.create_topic(place.letters, configs=configs)
    place.produce(2)
    consumer = place.consumer()
    for message in poll_until(consumer, 2):
        consumer.acknowledge(message, AcknowledgeType.REJECT)
    assert set(consumer.commit_sync(PATIENCE).values()) == {None}
    consumer.close()
    assert f"no dead letters in {place.letters} for offsets 0..1 of {place.topic}-0" in caplog.text
    assert "errors.deadletterqueue.group.enable=true" in caplog.text


def test_a_missing_topic_is_made_where_the_broker_may() -> None:
    allowed = {"errors.deadletterqueue.auto.create.topics.enable": "true", "num.partitions": "2"}
    with EmbeddedBroker(config={**SHARE_CONFIG, **allowed}) as broker:
        place = Place(broker)
        place.produce(1)
        consumer = place.consumer()
        (message,) = poll_until(consumer, 1)
        consumer.acknowledge(message, AcknowledgeType.REJECT)
        consumer.commit_sync(PATIENCE)
        (letter,) = place.read(1)
        assert (letter.partition(), letter.value()) == (0, b"v0")
        # The rule against letters of letters: what is rejected there is gone.
        reader = share_consumer(place.bootstrap, place.group, place.letters, **EXPLICIT)
        (message,) = poll_until(reader, 1)
        reader.acknowledge(message, AcknowledgeType.REJECT)
        assert set(reader.commit_sync(PATIENCE).values()) == {None}
        with RawClient(place.bootstrap) as client:
            assert client.offset(place.letters, LATEST).offset == 1
        reader.close()
        consumer.close()


def test_another_group_may_share_a_dead_letter_topic(broker: EmbeddedBroker) -> None:
    first, second = Place(broker), Place(broker)
    broker.create_topic(first.letters, configs=ENABLED)
    set_group(first.bootstrap, second.group, errors_deadletterqueue_topic_name=first.letters)
    for place in (first, second):
        place.produce(1)
        consumer = place.consumer()
        (message,) = poll_until(consumer, 1)
        consumer.acknowledge(message, AcknowledgeType.REJECT)
        consumer.commit_sync(PATIENCE)
        consumer.close()
    groups = [dict(one.headers())["__dlq.errors.group"].decode() for one in first.read(2)]
    assert groups == [first.group, second.group]
