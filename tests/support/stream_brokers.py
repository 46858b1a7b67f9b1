"""Kafka brokers for tests of streams: Ottla's own, and Apache Kafka where there is a JVM."""

from __future__ import annotations

import time
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla.streams import ConnectOptions, KafkaOptions
from tests.support.names import fresh
from tests.support.streams_contract import Store


class StreamBroker(NamedTuple):
    """The address of a broker, and topics on it."""

    bootstrap: str

    @property
    def url(self) -> str:
        return f"kafka://{self.bootstrap}"

    def topic(self, partitions: int = 1) -> str:
        """The name of a new topic."""
        name = fresh("streams")
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
