"""Case 40 of the performance specification: consumers get the same bytes through mapped files.

Nothing is served from the memory of the broker, so every answer of some size is a view.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla import EmbeddedBroker, Secured
from ottla.log.os_storage import OsStorage
from ottla.sync import Reader
from tests.support.faults_broker import soak
from tests.support.java_client import JavaClient
from tests.support.jvm import why_no_jvm
from tests.support.raw_client import RawClient, batch
from tests.support.topics import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB: Final = 1 << 20
BYTES: Final = 1024 * MIB if soak() else 24 * MIB
CONFIG: Final = {"ottla.tail.cache.bytes": "0", "ottla.flush.mode": "os"}
LOOPS: Final = {"uvloop": None, "asyncio": asyncio.new_event_loop}


class Mapped:
    """A broker with a full topic, and how often files of it were mapped."""

    def __init__(self, broker: EmbeddedBroker, loop: str) -> None:
        self.bootstrap = broker.bootstrap
        self.loop = loop
        self.maps = 0
        broker.create_topic("orders", configs={"segment.bytes": str(9 * MIB)})
        dice = random.Random(40)
        self.values: list[bytes] = []
        size = 0
        with RawClient(broker.bootstrap) as client:
            while size < BYTES:
                values = [dice.randbytes(dice.choice([1, 300, 5000])) for _ in range(200)]
                assert client.produce("orders", batch(*values)).error_code == 0
                self.values += values
                size += sum(map(len, values))


@pytest.fixture(params=LOOPS)
def mapped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapped]:
    plain = OsStorage.map
    found: list[Mapped] = []

    def counting(storage: OsStorage, fd: int, start: int, size: int) -> memoryview | None:
        found[0].maps += 1
        return plain(storage, fd, start, size)

    monkeypatch.setattr(OsStorage, "map", counting)
    if LOOPS[request.param] is not None:
        monkeypatch.setattr("ottla.testing.embedded.new_event_loop", LOOPS[request.param])
    with EmbeddedBroker(config=CONFIG) as broker:
        found.append(Mapped(broker, request.param))
        yield found[0]
        # asyncio's own transports copy what they send, which nobody may do with a map.
        assert bool(found[0].maps) == (request.param == "uvloop")


def test_40_ottlas_reader(mapped: Mapped) -> None:
    with Reader(mapped.bootstrap, "orders", stop="latest") as reader:
        assert [record.value for record in reader.records()] == mapped.values


def test_40_librdkafka(mapped: Mapped) -> None:
    consumer = Consumer({"bootstrap.servers": mapped.bootstrap, "group.id": "mapped"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[bytes | None] = []
    while len(found) < len(mapped.values):
        # More would be waited for.
        messages = consumer.consume(min(10_000, len(mapped.values) - len(found)), timeout=PATIENCE)
        assert messages, f"{len(found)} of {len(mapped.values)} records arrived"
        found += [message.value() for message in messages]
    consumer.close()
    assert found == mapped.values


def test_40_over_tls() -> None:
    """Nothing of it is mapped: who encrypts a page reads it."""
    secured = Secured(users={"bob": "secret"}, acls=["allow bob read,write,describe topic:orders"])
    dice = random.Random(40)
    values = [dice.randbytes(dice.choice([1, 300, 5000])) for _ in range(5000)]
    with EmbeddedBroker(config=CONFIG, security=secured) as broker:
        broker.create_topic("orders", configs={"segment.bytes": str(2 * MIB)})
        producer = Producer(broker.properties("bob"))
        for value in values:
            producer.produce("orders", value)
        assert producer.flush(PATIENCE) == 0
        security = broker.security("bob")
        with Reader(broker.bootstrap, "orders", stop="latest", security=security) as reader:
            assert [record.value for record in reader.records()] == values


@pytest.mark.jvm
def test_40_java(mapped: Mapped) -> None:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    found = JavaClient(mapped.bootstrap).consume("orders", len(mapped.values))
    assert [delivery.record.value for delivery in found] == mapped.values
