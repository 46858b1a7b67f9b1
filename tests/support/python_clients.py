"""The three Python clients behind one shape: produce rows to a partition, read rows from it.

Rows are what must survive the way through the broker, in whatever client at either end. The
clients keep their own defaults except where a test is about something else.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition

with warnings.catch_warnings():
    # kafka-python reads its own schemas with a function that Python is about to drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECONDS: Final = 60.0
"""How long a test waits for what should come at once; a busy machine may take its time."""

LARGE: Final = 8 * 1024 * 1024

Headers = tuple[tuple[str, "bytes | None"], ...]


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class Client(Protocol):
    def produce(self, bootstrap: str, topic: str, rows: Sequence[Row], codec: str) -> None: ...

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Row]: ...


class ConfluentKafka:
    def produce(self, bootstrap: str, topic: str, rows: Sequence[Row], codec: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.codec": codec,
                "message.max.bytes": LARGE,
                "linger.ms": 20,
            }
        )
        delivered: list[Any] = []
        for key, value, timestamp, headers in rows:
            producer.produce(
                topic,
                value,
                key,
                partition=0,
                timestamp=timestamp,
                headers=list(headers),
                on_delivery=lambda error, _: delivered.append(error),
            )
        assert producer.flush(SECONDS) == 0
        assert delivered == [None] * len(rows)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Row]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        rows = [
            Row(r.key(), r.value(), r.timestamp()[1], tuple(r.headers() or ()))
            for r in take_confluent(consumer, count)
        ]
        consumer.close()
        return rows


class KafkaPython:
    def produce(self, bootstrap: str, topic: str, rows: Sequence[Row], codec: str) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            max_request_size=LARGE,
            linger_ms=20,
        )
        sent = [
            producer.send(
                topic, value, key, headers=list(headers), partition=0, timestamp_ms=timestamp
            )
            for key, value, timestamp, headers in rows
        ]
        producer.flush(SECONDS)
        for future in sent:
            future.get(SECONDS)
        producer.close()

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Row]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None
        )
        consumer.assign([kafka.TopicPartition(topic, 0)])
        rows = [
            Row(r.key, r.value, r.timestamp, tuple((k, v) for k, v in r.headers))
            for r in take_kafka_python(consumer, count)
        ]
        consumer.close()
        return rows


class AioKafka:
    def produce(self, bootstrap: str, topic: str, rows: Sequence[Row], codec: str) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                max_request_size=LARGE,
                linger_ms=20,
            )
            await producer.start()
            sent = [
                await producer.send(
                    topic, value, key, partition=0, timestamp_ms=timestamp, headers=list(headers)
                )
                for key, value, timestamp, headers in rows
            ]
            await asyncio.wait_for(asyncio.gather(*sent), SECONDS)
            await producer.stop()

        asyncio.run(run())

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Row]:
        async def run() -> list[Row]:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
            consumer.assign([AioTopicPartition(topic, 0)])
            await consumer.start()
            found = await take_aiokafka(consumer, count)
            await consumer.stop()
            return [Row(r.key, r.value, r.timestamp, tuple(r.headers)) for r in found]

        return asyncio.run(run())


CLIENTS: Final[dict[str, Client]] = {
    "confluent-kafka": ConfluentKafka(),
    "kafka-python": KafkaPython(),
    "aiokafka": AioKafka(),
}


def take_confluent(consumer: Any, count: int) -> list[Any]:
    """The next `count` records; fails the test when they do not come."""
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        for record in consumer.consume(count - len(found), timeout=0.2):
            assert record.error() is None, record.error()
            found.append(record)
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
    return found


def take_kafka_python(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        # Long polls: one that ends while it waits to join a group loses the answer.
        polled = consumer.poll(timeout_ms=5000, max_records=count - len(found))
        found += [record for records in polled.values() for record in records]
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
    return found


async def take_aiokafka(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        polled = await consumer.getmany(timeout_ms=200, max_records=count - len(found))
        found += [record for records in polled.values() for record in records]
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
    return found


def until(condition: Callable[[], object], what: str, step: Callable[[], object]) -> None:
    """Call `step` (a short poll, say) until the condition holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        step()
        if time.monotonic() > deadline:
            pytest.fail(f"never happened: {what}")
