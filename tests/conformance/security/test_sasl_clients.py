"""Foreign clients log in, and say what is wrong when they cannot."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING

import aiokafka.errors
import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer

from tests.support.door_clients import (
    CLIENTS,
    Way,
    aiokafka_settings,
    confluent_settings,
    kafka_python_settings,
)
from tests.support.doors import USERS, bootstrap, guarded_broker
from tests.support.python_clients import until
from tests.support.raw_client import RawClient
from tests.support.sasl_client import log_in

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    import ottla

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

SASL = "SASL_PLAINTEXT"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
CONFIG = {
    "listeners": f"{SASL}://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="x" user_dora="from-jaas";'
    ),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with guarded_broker(CONFIG) as broker:
        yield broker


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_case_21_clients_log_in(broker: ottla.EmbeddedBroker, client: str, mechanism: str) -> None:
    way = Way(bootstrap(broker, SASL), SASL, mechanism, "alice", USERS["alice"])
    assert CLIENTS[client](way) == [b"one", b"two"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_case_44_a_name_with_a_comma_and_an_equals_sign(
    broker: ottla.EmbeddedBroker, mechanism: str
) -> None:
    way = Way(bootstrap(broker, SASL), SASL, mechanism, "a,b=c", USERS["a,b=c"])
    assert CLIENTS["confluent-kafka"](way) == [b"one", b"two"]


def test_case_21_a_user_of_the_listeners_jaas_configuration(broker: ottla.EmbeddedBroker) -> None:
    way = Way(bootstrap(broker, SASL), SASL, "PLAIN", "dora", "from-jaas")
    assert CLIENTS["confluent-kafka"](way) == [b"one", b"two"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_case_24_a_wrong_password_is_no_timeout_for_confluent(
    broker: ottla.EmbeddedBroker, mechanism: str
) -> None:
    way = Way(bootstrap(broker, SASL), SASL, mechanism, "alice", "wrong")
    errors: list[confluent_kafka.KafkaError] = []
    admin = confluent_kafka.Producer(confluent_settings(way) | {"error_cb": errors.append})
    refused = confluent_kafka.KafkaError._AUTHENTICATION
    until(
        lambda: any(error.code() == refused for error in errors),
        "an authentication error",
        lambda: admin.poll(0.2),
    )


def test_case_24_kafka_python_reads_why_it_is_refused(
    broker: ottla.EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It raises a timeout all the same, and tells the reason in its log."""
    way = Way(bootstrap(broker, SASL), SASL, "SCRAM-SHA-256", "alice", "wrong")
    with RawClient(bootstrap(broker, SASL)) as raw:
        log_in(raw, "PLAIN", "alice", USERS["alice"])  # the failures of other tests are forgotten
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**kafka_python_settings(way), bootstrap_timeout_ms=2500)
    # The last attempt may be cut short by the timeout.
    (first, *_) = (text for text in caplog.messages if "Bootstrap connection" in text)
    assert "Authentication failed" in first


def test_case_24_a_wrong_password_is_no_timeout_for_aiokafka(broker: ottla.EmbeddedBroker) -> None:
    way = Way(bootstrap(broker, SASL), SASL, "SCRAM-SHA-512", "alice", "wrong")

    async def start() -> None:
        producer = AIOKafkaProducer(**aiokafka_settings(way))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(start())
