"""Clients of several nodes, for tests: produce until acknowledged, read all, find directories."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.broker.membership.places import node_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PATIENCE: Final = 60.0
QUICK: Final[Mapping[str, Any]] = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}


class Writer:
    """An idempotent producer that remembers what was acknowledged, by partition."""

    def __init__(self, bootstrap: str, topic: str, **more: Any) -> None:
        self.topic = topic
        self.acked: dict[int, list[bytes]] = {}
        self.errors: list[object] = []
        self.count = 0
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                **QUICK,
                **more,
            }
        )

    def _delivered(self, error: object, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acked.setdefault(message.partition(), []).append(message.value())

    def write(self, count: int, partitions: Iterable[int]) -> None:
        """Return when all are acknowledged."""
        self.send(count, partitions)
        assert self.producer.flush(PATIENCE) == 0
        assert not self.errors

    def send(self, count: int, partitions: Iterable[int]) -> None:
        for partition in partitions:
            for _ in range(count):
                self.count += 1
                self.producer.produce(
                    self.topic,
                    b"%d" % self.count,
                    partition=partition,
                    on_delivery=self._delivered,
                )
        self.producer.poll(0)


def read_all(bootstrap: str, topic: str, partition: int, **more: Any) -> list[bytes]:
    """All records of a partition, in their order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **QUICK,
            **more,
        }
    )
    deadline = time.monotonic() + PATIENCE
    try:
        place = TopicPartition(topic, partition)
        start = end = -1
        while end < 0:
            with suppress(KafkaException):
                start, end = consumer.get_watermark_offsets(place, timeout=5)
            assert time.monotonic() < deadline
        consumer.assign([TopicPartition(topic, partition, start)])
        found = []
        position = start
        while position < end:
            assert time.monotonic() < deadline
            message = consumer.poll(0.5)
            if message is not None and not message.error():
                found.append(message.value() or b"")
            (there,) = consumer.position([place])
            position = max(position, there.offset)
        return found
    finally:
        consumer.close()


def directories(root: Path, topic: str, partition: int) -> list[Path]:
    """Where the partition's directory is, below the root."""
    return [
        path
        for parent in (*node_paths(root).values(), root / "handover")
        for path in parent.glob(f"{topic}-{partition}*")
        if path.name.partition(".")[0] == f"{topic}-{partition}"
    ]
