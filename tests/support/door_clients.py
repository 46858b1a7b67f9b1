"""The same small exchange with each of the foreign clients, over any security protocol."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.support.names import fresh
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
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Way:
    """How to come in."""

    bootstrap: str
    protocol: str = "PLAINTEXT"
    mechanism: str = "SCRAM-SHA-512"
    user: str = ""
    password: str = ""
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")


def confluent_settings(way: Way) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": way.bootstrap,
        "security.protocol": way.protocol,
        "log_level": 0,
    }
    if way.has_sasl:
        found |= {
            "sasl.mechanism": way.mechanism,
            "sasl.username": way.user,
            "sasl.password": way.password,
        }
    if way.ca is not None:
        found["ssl.ca.location"] = str(way.ca)
    if way.certificate is not None:
        found["ssl.certificate.location"] = str(way.certificate)
        found["ssl.key.location"] = str(way.key)
    return found


def kafka_python_settings(way: Way) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": way.bootstrap,
        "security_protocol": way.protocol,
    }
    if way.has_sasl:
        found |= {
            "sasl_mechanism": way.mechanism,
            "sasl_plain_username": way.user,
            "sasl_plain_password": way.password,
        }
    if way.ca is not None:
        found["ssl_cafile"] = str(way.ca)
    if way.certificate is not None:
        found["ssl_certfile"] = str(way.certificate)
        found["ssl_keyfile"] = str(way.key)
    return found


def aiokafka_settings(way: Way) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": way.bootstrap,
        "security_protocol": way.protocol,
    }
    if way.has_sasl:
        found |= {
            "sasl_mechanism": way.mechanism,
            "sasl_plain_username": way.user,
            "sasl_plain_password": way.password,
        }
    if way.has_tls:
        context = ssl.create_default_context(cafile=way.ca)
        if way.certificate is not None:
            context.load_cert_chain(way.certificate, way.key)
        found["ssl_context"] = context
    return found


def with_confluent(way: Way) -> list[bytes]:
    """Produce two records and read them."""
    topic = fresh("topic")
    producer = confluent_kafka.Producer(confluent_settings(way))
    for value in (b"one", b"two"):
        producer.produce(topic, value)
    assert producer.flush(SECONDS) == 0
    settings = {"group.id": fresh("group"), "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(confluent_settings(way) | settings)
    consumer.subscribe([topic])
    found = [record.value() for record in take_confluent(consumer, 2)]
    consumer.close()
    return found


def with_kafka_python(way: Way) -> list[bytes]:
    topic = fresh("topic")
    producer = kafka.KafkaProducer(**kafka_python_settings(way))
    for value in (b"one", b"two"):
        producer.send(topic, value)
    producer.flush(SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", group_id=fresh("group"), **kafka_python_settings(way)
    )
    found = [record.value for record in take_kafka_python(consumer, 2)]
    consumer.close()
    return found


def with_aiokafka(way: Way) -> list[bytes]:
    async def exchange() -> list[bytes]:
        topic = fresh("topic")
        async with AIOKafkaProducer(**aiokafka_settings(way)) as producer:
            for value in (b"one", b"two"):
                await producer.send_and_wait(topic, value)
        consumer = AIOKafkaConsumer(
            topic, auto_offset_reset="earliest", group_id=fresh("group"), **aiokafka_settings(way)
        )
        async with consumer:
            return [record.value for record in await take_aiokafka(consumer, 2)]

    return asyncio.run(exchange())


CLIENTS: Final[dict[str, Callable[[Way], list[bytes]]]] = {
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}
