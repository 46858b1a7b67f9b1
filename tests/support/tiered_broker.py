"""A broker with tiered storage that is in a hurry, and topics that fill it."""

from __future__ import annotations

import itertools
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.sync import ShareConsumer
from ottla.testing.embedded import EmbeddedBroker
from ottla.tier.reading.answers import EARLIEST_LOCAL
from ottla.wire.builder import BatchBuilder
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.faults_broker import soak
from tests.support.faulty_store import FaultyStore
from tests.support.raw_client import LATEST, RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from ottla.broker.tiering.tiering import Tiering

MIB: Final = 1024 * 1024
PATIENCE_SECONDS: Final = 1800.0 if soak() else 60.0
TIERED: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(MIB),
    "retention.ms": "-1",
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
        "ottla.metrics.listener": "http://127.0.0.1:0",
    } | {key.replace("_", "."): value for key, value in others.items()}


def tiered_broker(
    store: Path, data_dir: Path | None = None, config: Mapping[str, str] | None = None
) -> EmbeddedBroker:
    return EmbeddedBroker(data_dir, config=settings(store) | dict(config or {}))


def value_at(number: int, size: int) -> bytes:
    """Bytes that no codec makes smaller."""
    return random.Random(number).randbytes(size)


def values(count: int, *, size: int = 1000, seed: int = 0) -> list[bytes]:
    return [value_at(seed + number, size) for number in range(count)]


def produce(bootstrap: str, topic: str, sent: Iterable[bytes]) -> None:
    """To partition 0, in batches of about 16 KiB."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 16_384, "linger.ms": 5})
    for value in sent:
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE_SECONDS) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    return [value for _, value in consume_each(bootstrap, topic, count)]


def consume_each(bootstrap: str, topic: str, count: int) -> Iterator[tuple[int, bytes]]:
    """From offset 0 of partition 0 on, by confluent-kafka; an error or a gap is the test's end."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    reached = 0
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while reached < count and time.monotonic() < deadline:
            for message in consumer.consume(min(10_000, count - reached), timeout=1):
                assert message.error() is None, message.error()
                assert message.offset() == reached
                yield reached, message.value() or b""
                reached += 1
    finally:
        consumer.close()


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds that the broker does by itself."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not in {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.02)


def stored(store: Path, suffix: str) -> list[Path]:
    return sorted(store.rglob(f"*{suffix}"))


def share(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Everything from the start of a topic of one partition, through a share group, by offset."""
    return [value for _, value in sorted(share_each(bootstrap, topic, count))]


def share_each(bootstrap: str, topic: str, count: int) -> Iterator[tuple[int, bytes]]:
    """The same as it comes; a record that comes twice is the test's end."""
    got: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    with ShareConsumer(
        bootstrap, group="workers", topics=[topic], auto_offset_reset="earliest"
    ) as consumer:
        while len(got) < count and time.monotonic() < deadline:
            for record in consumer.poll(timeout=1):
                assert record.offset not in got
                got.add(record.offset)
                yield record.offset, record.value or b""


def fill(client: RawClient, topic: str, batches: int, *, partition: int = 0) -> list[bytes]:
    start = client.offset(topic, LATEST, partition=partition).offset
    sent = values(50 * batches, seed=start)
    for number in range(batches):
        builder = BatchBuilder()
        for index in range(50 * number, 50 * (number + 1)):
            builder.append(sent[index], timestamp=start + index + 1)
        answer = client.produce(topic, builder.build(), partition=partition)
        assert answer.error_code == 0
    return sent


def alter(client: RawClient, topic: str, configs: Mapping[str, str]) -> int:
    entries = [AlterableConfig(key, 0, value) for key, value in configs.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(2, topic, entries)])
    answer = client.ask("incremental_alter_configs", 1, request)
    code: int = answer.responses[0].error_code
    return code


class TierPlace:
    """A running broker, its store with faults to switch on, and a client on the wire."""

    def __init__(self, broker: EmbeddedBroker, store: Path) -> None:
        self.broker = broker
        self.store = store
        self.client = RawClient(broker.bootstrap)
        self.tiering = tiering_of(broker)
        self.faults = FaultyStore(self.tiering.storage.store)
        self.tiering.storage.store = self.faults
        self._names = itertools.count()

    def topic(self, *, partitions: int = 1, **configs: str) -> str:
        """A new tiered topic; settings with underscores for dots."""
        name = f"topic{next(self._names)}"
        given = {key.replace("_", "."): value for key, value in configs.items()}
        self.broker.create_topic(name, partitions=partitions, configs=TIERED | given)
        return name

    def fill(self, topic: str, batches: int = 60, *, partition: int = 0) -> list[bytes]:
        """Batches of 50 records of 1000 bytes: 20 to a segment. Record n has the time n + 1."""
        return fill(self.client, topic, batches, partition=partition)

    def cold(self, topic: str, batches: int = 60, *, partition: int = 0) -> list[bytes]:
        """The same, and only what is in no more than two segments stays on local disk."""
        sent = self.fill(topic, batches, partition=partition)
        end = self.offset(topic, LATEST, partition)
        eventually(
            lambda: self.offset(topic, EARLIEST_LOCAL, partition) >= end - 2 * 1000,
            "local segments go",
        )
        return sent

    def offset(self, topic: str, timestamp: int, partition: int = 0) -> int:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.client.offset(topic, timestamp, partition=partition)
            # A topic that was just made is not in the catalogue yet.
            if found.error_code != ErrorCode.REPLICA_NOT_AVAILABLE or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        assert found.error_code == 0, found
        return found.offset

    def alter(self, topic: str, configs: Mapping[str, str]) -> int:
        """The error code of a change of settings."""
        return alter(self.client, topic, configs)

    def keys(self, topic: str, suffix: str = "") -> list[str]:
        """The objects of a topic."""
        found = (path for one in self.store.glob(f"{topic}-*") for path in one.rglob("*.*"))
        return sorted(path.name for path in found if path.name.endswith(suffix))

    def counted(self, what: str, topic: str) -> int:
        return self.tiering.counted[what, topic]

    def close(self) -> None:
        self.client.close()


@contextmanager
def tier_place(directory: Path, config: Mapping[str, str] | None = None) -> Iterator[TierPlace]:
    """A place of its own in a directory; a second one there goes on where the first ended."""
    store = directory / "store"
    with tiered_broker(store, directory / "data", config) as broker:
        place = TierPlace(broker, store)
        try:
            yield place
        finally:
            place.close()


def tiering_of(broker: EmbeddedBroker) -> Tiering:
    node = broker._node
    assert node is not None
    return node.services.tiering()
