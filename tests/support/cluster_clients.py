"""Clients of several nodes, for tests: produce until acknowledged, read all, find directories."""

from __future__ import annotations

import threading
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


class Reading:
    """A consumer in a thread of its own that reads partitions from their start."""

    def __init__(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        self.seen: dict[int, list[bytes]] = {one: [] for one in partitions}
        self.errors: list[object] = []
        self._wanted: Mapping[int, int] | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reading",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # an offset that is not there is a failure
                **QUICK,
            }
        )
        self._consumer.assign([TopicPartition(topic, one, 0) for one in self.seen])
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        deadline: float | None = None
        while deadline is None or time.monotonic() < deadline:
            for message in self._consumer.consume(500, 0.1):
                if message.error():
                    self.errors.append(message.error())
                else:
                    self.seen[message.partition() or 0].append(message.value() or b"")
            wanted = self._wanted
            if wanted is not None:
                deadline = deadline or time.monotonic() + PATIENCE
                if all(len(self.seen[one]) >= count for one, count in wanted.items()):
                    break
        self._consumer.close()

    def until(self, counts: Mapping[int, int]) -> dict[int, list[bytes]]:
        """All that was read, when so many of each partition are there."""
        self._wanted = counts
        self._thread.join()
        assert not self.errors
        return self.seen


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
