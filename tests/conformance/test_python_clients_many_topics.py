"""Fifty topics of twenty partitions: each client writes to all of them and reads all of them."""

from __future__ import annotations

import asyncio
import warnings

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

Rows = set[tuple[str | None, int | None, bytes | None]]

TOPICS = [f"many-{number}" for number in range(50)]
PLACES = [(topic, partition) for topic in TOPICS for partition in range(20)]
WRITERS = (b"confluent-kafka", b"kafka-python", b"aiokafka")
EVERYTHING: Rows = {(*place, writer) for place in PLACES for writer in WRITERS}


def produce_confluent(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic, partition in PLACES:
        producer.produce(topic, WRITERS[0], partition=partition)
    assert producer.flush(SECONDS) == 0


def consume_confluent(bootstrap: str) -> Rows:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "ck", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(TOPICS)
    found = take_confluent(consumer, len(EVERYTHING))
    consumer.close()
    return {(r.topic(), r.partition(), r.value()) for r in found}


def produce_kafka_python(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    for topic, partition in PLACES:
        producer.send(topic, WRITERS[1], partition=partition)
    producer.flush(SECONDS)
    producer.close()


def consume_kafka_python(bootstrap: str) -> Rows:
    consumer = kafka.KafkaConsumer(
        *TOPICS, bootstrap_servers=bootstrap, group_id="kp", auto_offset_reset="earliest"
    )
    found = take_kafka_python(consumer, len(EVERYTHING))
    consumer.close()
    return {(r.topic, r.partition, r.value) for r in found}


async def produce_aiokafka(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    sent = [await producer.send(topic, WRITERS[2], partition=p) for topic, p in PLACES]
    await asyncio.wait_for(asyncio.gather(*sent), SECONDS)
    await producer.stop()


async def consume_aiokafka(bootstrap: str) -> Rows:
    consumer = AIOKafkaConsumer(
        *TOPICS, bootstrap_servers=bootstrap, group_id="aio", auto_offset_reset="earliest"
    )
    await consumer.start()
    found = await take_aiokafka(consumer, len(EVERYTHING))
    await consumer.stop()
    return {(r.topic, r.partition, r.value) for r in found}


def test_a_thousand_partitions() -> None:
    with EmbeddedBroker() as broker:
        for topic in TOPICS:
            broker.create_topic(topic, partitions=20)
        produce_confluent(broker.bootstrap)
        produce_kafka_python(broker.bootstrap)
        asyncio.run(produce_aiokafka(broker.bootstrap))
        assert consume_confluent(broker.bootstrap) == EVERYTHING
        assert consume_kafka_python(broker.bootstrap) == EVERYTHING
        assert asyncio.run(consume_aiokafka(broker.bootstrap)) == EVERYTHING
