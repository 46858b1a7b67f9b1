"""An idempotent producer to all partitions of a topic, and a check of what it was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

PARTITIONS: Final = 8


class Load:
    """Idempotent records of consecutive numbers to all partitions; which of them were acked."""

    def __init__(self, bootstrap: str, topic: str = "orders") -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "delivery.timeout.ms": 60_000,
            }
        )
        self._next = 0
        self.acked: list[tuple[int, int, bytes]] = []
        self.failed: list[KafkaError] = []

    def send(self, count: int, *, wait: bool = True) -> None:
        for number in range(self._next, self._next + count):
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._done
            )
            self._producer.poll(0)
        self._next += count
        if wait:
            assert self._producer.flush(60) == 0
            assert not self.failed

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.acked.append((partition, offset, value))

    def check(self, bootstrap: str) -> None:
        """All that was acked is there, where it was told to be, once and in order."""
        assert sorted(self.acked) == read_all(bootstrap, self._topic)


def read_all(bootstrap: str, topic: str = "orders") -> list[tuple[int, int, bytes]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checks"})
    found = []
    for partition in range(PARTITIONS):
        end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
        consumer.assign([TopicPartition(topic, partition, 0)])
        for _ in range(end):
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert isinstance(value, bytes)
            found.append((partition, offset, value))
    consumer.close()
    return found
