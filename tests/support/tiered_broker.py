"""A broker with tiered storage that is in a hurry, and topics that fill it."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.sync import ShareConsumer
from ottla.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

MIB: Final = 1024 * 1024
PATIENCE_SECONDS: Final = 60.0
TIERED: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(MIB),
    "local.retention.bytes": str(MIB),
    "file.delete.delay.ms": "0",
}
"""A topic whose segments leave the local disk as soon as they are copied, all but about one."""


def settings(store: Path, **others: str) -> dict[str, str]:
    """Broker settings: segments go to a directory, and everything is done at once."""
    return {
        "remote.log.storage.system.enable": "true",
        "rsm.config.url": store.absolute().as_uri(),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "50",
        "log.retention.check.interval.ms": "50",
    } | {key.replace("_", "."): value for key, value in others.items()}


def tiered_broker(
    store: Path, data_dir: Path | None = None, config: Mapping[str, str] | None = None
) -> EmbeddedBroker:
    return EmbeddedBroker(data_dir, config=settings(store) | dict(config or {}))


def values(count: int, *, size: int = 1000, seed: int = 0) -> list[bytes]:
    """Values that no codec makes smaller."""
    draw = random.Random(seed)
    return [draw.randbytes(size) for _ in range(count)]


def produce(
    bootstrap: str, topic: str, sent: list[bytes], *, partition: int = 0, timestamp: int = 0
) -> None:
    """In batches of about 16 KiB; record n has `timestamp` + n, if that is given."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 16_384, "linger.ms": 5})
    for number, value in enumerate(sent):
        stamp = timestamp + number if timestamp else 0
        producer.produce(topic, value, partition=partition, timestamp=stamp)
        if number % 1000 == 999:
            producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0


def consume(bootstrap: str, topic: str, count: int, *, partition: int = 0) -> list[bytes]:
    """From offset 0 on; offsets must have no gap."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    got: list[bytes] = []
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(got) < count and time.monotonic() < deadline:
            for message in consumer.consume(min(10_000, count - len(got)), timeout=1):
                assert message.error() is None, message.error()
                assert message.offset() == len(got)
                got.append(message.value() or b"")
    finally:
        consumer.close()
    return got


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds that the broker does by itself."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not in {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.02)


def local_logs(data_dir: Path, topic: str, partition: int = 0) -> list[int]:
    """Base offsets of the segments on local disk."""
    directory = data_dir / f"{topic}-{partition}"
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def stored(store: Path, suffix: str) -> list[Path]:
    return sorted(store.rglob(f"*{suffix}"))


def share(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Everything from the start of a topic of one partition, through a share group, by offset."""
    got: dict[int, bytes] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    with ShareConsumer(
        bootstrap, group="workers", topics=[topic], auto_offset_reset="earliest"
    ) as consumer:
        while len(got) < count and time.monotonic() < deadline:
            for record in consumer.poll(timeout=1):
                assert record.offset not in got
                got[record.offset] = record.value or b""
    return [got[offset] for offset in sorted(got)]
