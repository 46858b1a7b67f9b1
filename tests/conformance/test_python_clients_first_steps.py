"""Each Python client produces and reads back in a group, with its own defaults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

if TYPE_CHECKING:
    from ottla import EmbeddedBroker

RECORDS = [(b"key-%d" % (i % 7), b"value-%d" % i) for i in range(500)]


def consume_confluent(bootstrap: str, topic: str, count: int, **config: Any) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{topic}",
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    try:
        while len(found) < count:
            for record in consumer.consume(count - len(found), timeout=10) or pytest.fail(
                "timeout"
            ):
                assert record.error() is None, record.error()
                found.append((record.key(), record.value()))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_confluent_kafka(ottla_broker: EmbeddedBroker, ottla_topic: str, protocol: str) -> None:
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    for key, value in RECORDS:
        producer.produce(ottla_topic, value, key)
    assert producer.flush(10) == 0
    found = consume_confluent(
        ottla_broker.bootstrap, ottla_topic, len(RECORDS), **{"group.protocol": protocol}
    )
    assert found == RECORDS


async def test_aiokafka(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=ottla_broker.bootstrap, enable_idempotence=True)
    await producer.start()
    await asyncio.gather(*[await producer.send(ottla_topic, value, key) for key, value in RECORDS])
    await producer.stop()
    consumer = AIOKafkaConsumer(
        ottla_topic,
        bootstrap_servers=ottla_broker.bootstrap,
        group_id="aio",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    found = [await asyncio.wait_for(consumer.getone(), 10) for _ in RECORDS]
    await consumer.stop()
    assert [(record.key, record.value) for record in found] == RECORDS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by kafka-python's own import
def test_kafka_python(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=ottla_broker.bootstrap)
    for key, value in RECORDS:
        producer.send(ottla_topic, value, key=key)
    producer.flush(10)
    producer.close()
    consumer = KafkaConsumer(
        ottla_topic,
        bootstrap_servers=ottla_broker.bootstrap,
        group_id="kp",
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
    )
    found = [(record.key, record.value) for record, _ in zip(consumer, RECORDS, strict=False)]
    consumer.close()
    assert found == RECORDS
