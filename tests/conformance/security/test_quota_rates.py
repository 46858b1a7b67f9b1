"""Foreign clients held to a rate: no more, and nothing lost (cases 65 to 67).

All clients of a test run at the same time, each with a client id and a quota of its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.metadata.security.quotas import CLIENT_ID
from tests.support.jvm import why_no_jvm
from tests.support.names import fresh
from tests.support.quota_clients import (
    CONSUMERS,
    PRODUCERS,
    RATE,
    RECORDS,
    Threaded,
    end_of,
    java_consumer,
    java_producer,
    rates,
    value,
)
from tests.support.quotas import set_quotas
from tests.support.raw_client import RawClient
from tests.support.share_member import SHARE_CONFIG, set_group_configs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

FULL = "full"


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(config=SHARE_CONFIG) as made:
        made.create_topic(FULL)
        with ottla.sync.Producer(made.bootstrap) as producer:
            producer.send_many(
                FULL, [ottla.ProducerRecord(value(number)) for number in range(RECORDS)]
            )
        yield made


@pytest.fixture(scope="module")
def jvm() -> None:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)


def limited(broker: ottla.EmbeddedBroker, **quotas: float) -> str:
    """A new client id with a quota."""
    name = fresh("client")
    set_quotas(broker, {CLIENT_ID: name}, **quotas)
    return name


def holds(of_quota: dict[str, float]) -> bool:
    """A batch more or less in the time that is looked at; far below means that it stands still."""
    return all(0.3 <= one <= 1.2 for one in of_quota.values())


def topic_of(broker: ottla.EmbeddedBroker) -> str:
    name = fresh("topic")
    broker.create_topic(name)
    return name


def test_65_and_66_python_clients(broker: ottla.EmbeddedBroker) -> None:
    topics = {name: topic_of(broker) for name in PRODUCERS}
    producers = {
        name: Threaded(
            work, broker.bootstrap, topics[name], limited(broker, producer_byte_rate=RATE)
        )
        for name, work in PRODUCERS.items()
    }
    consumers = {
        name: Threaded(work, broker.bootstrap, FULL, limited(broker, consumer_byte_rate=RATE))
        for name, work in CONSUMERS.items()
    }
    with ExitStack() as stack:
        for client in (*producers.values(), *consumers.values()):
            stack.callback(client.stop)
        found = rates(
            {
                **{f"{name} produces": partial(end_of, broker, topics[name]) for name in producers},
                **{f"{name} consumes": one.read.__len__ for name, one in consumers.items()},
            }
        )
    assert holds(found), found
    assert producers["confluent"].throttled > 0
    assert producers["kafka-python"].throttled > 0
    for name, consumer in consumers.items():
        assert consumer.read == list(range(len(consumer.read))), name


def test_65_66_and_67_javas_clients(broker: ottla.EmbeddedBroker, jvm: None) -> None:
    topic = topic_of(broker)
    group = limited(broker, consumer_byte_rate=RATE)
    with RawClient(broker.bootstrap) as admin:
        set_group_configs(admin, group, share_auto_offset_reset="earliest")
    where = broker.bootstrap
    producer = java_producer(where, topic, limited(broker, producer_byte_rate=RATE))
    consumer = java_consumer(where, FULL, limited(broker, consumer_byte_rate=RATE))
    shared = java_consumer(where, FULL, group, shares=True)
    with ExitStack() as stack:
        for client in (producer, consumer, shared):
            stack.callback(client.stop)
        found = rates(
            {
                "produces": partial(end_of, broker, topic),
                "consumes": consumer.read.__len__,
                "consumes in a share group": shared.read.__len__,
            }
        )
        producer.finished()
    assert holds(found), found
    assert producer.throttled > 0
    assert end_of(broker, topic) == RECORDS
    assert consumer.read == list(range(len(consumer.read)))
    # 67: what a throttled fetch does not get, it has not acquired.
    assert shared.read == list(range(len(shared.read)))
    assert shared.deliveries == {1}
