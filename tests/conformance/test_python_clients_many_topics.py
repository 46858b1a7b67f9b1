"""Fifty topics of twenty partitions, written and read by each client."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from ottla import EmbeddedBroker
from tests.support.python_clients import (
    SECONDS,
    take_aiokafka,
    take_confluent,
    take_kafka_python,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # see tests.support.python_clients
    import kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPICS = [f"many-{number}" for number in range(50)]
PARTITIONS = 20
EVERYTHING = {(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)}


@pytest.fixture
def crowded_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        for topic in TOPICS:
            broker.create_topic(topic, partitions=PARTITIONS)
        yield broker


def named(records: list[Any]) -> set[tuple[str, int]]:
    return {(r.topic, r.partition) for r in records}


def test_confluent_kafka(crowded_broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": crowded_broker.bootstrap})
    for topic, partition in EVERYTHING:
        producer.produce(topic, b"ck", partition=partition)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": crowded_broker.bootstrap,
            "group.id": "ck",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(TOPICS)
    found = take_confluent(consumer, len(EVERYTHING))
    assert {(r.topic(), r.partition()) for r in found} == EVERYTHING
    consumer.close()


def test_kafka_python(crowded_broker: EmbeddedBroker) -> None:
    consumer = kafka.KafkaConsumer(
        *TOPICS,
        bootstrap_servers=crowded_broker.bootstrap,
        group_id="kp",
        auto_offset_reset="earliest",
    )
    producer = kafka.KafkaProducer(bootstrap_servers=crowded_broker.bootstrap)
    for topic, partition in EVERYTHING:
        producer.send(topic, b"kp", partition=partition)
    producer.flush(SECONDS)
    producer.close()
    assert named(take_kafka_python(consumer, len(EVERYTHING))) == EVERYTHING
    consumer.close()


async def test_aiokafka(crowded_broker: EmbeddedBroker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=crowded_broker.bootstrap)
    await producer.start()
    sent = [await producer.send(topic, b"aio", partition=p) for topic, p in EVERYTHING]
    await asyncio.wait_for(asyncio.gather(*sent), SECONDS)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        *TOPICS,
        bootstrap_servers=crowded_broker.bootstrap,
        group_id="aio",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    assert named(await take_aiokafka(consumer, len(EVERYTHING))) == EVERYTHING
    await consumer.stop()
