"""Kafka brokers for tests of streams: Ottla's own, and Apache Kafka where there is a JVM."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla import EmbeddedBroker
from ottla.streams import ConnectOptions, KafkaOptions
from tests.support.jvm import ApacheKafka
from tests.support.streams_contract import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = count()


class StreamBroker(NamedTuple):
    """The address of a broker, and topics on it."""

    bootstrap: str

    @property
    def url(self) -> str:
        return f"kafka://{self.bootstrap}"

    def topic(self, partitions: int = 1) -> str:
        """The name of a new topic."""
        name = f"streams-{next(_numbers)}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        # The controller has it; the broker hears of it a moment later.
        while admin.list_topics(name, timeout=30).topics[name].error is not None:
            time.sleep(0.02)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def kafka_contract(bootstrap: str, topic: str) -> Store:
    """A place for the contract's cases; a fetch at the end does not hold up the next for long."""
    quick = KafkaOptions(session_timeout=1.0, extra={"fetch.wait.max.ms": 50})
    return Store(f"kafka://{bootstrap}/{topic}", ConnectOptions(kafka=quick))


@contextmanager
def broker(kind: str) -> Iterator[StreamBroker]:
    """`ottla` or `apache`."""
    if kind == "ottla":
        with EmbeddedBroker() as own:
            yield StreamBroker(own.bootstrap)
    else:
        quick = {
            "group.min.session.timeout.ms": "100",
            "group.share.min.heartbeat.interval.ms": "500",
            "group.share.heartbeat.interval.ms": "500",
        }
        with ApacheKafka(heap="256m", config=quick) as apache:
            yield StreamBroker(apache.bootstrap)
