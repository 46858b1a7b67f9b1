"""Sessions that end: authenticating again, and what happens otherwise (cases 36 and 37)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer

import ottla
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.door_clients import Way, aiokafka_settings, confluent_settings
from tests.support.doors import USERS, bootstrap, guarded_broker, run_in, set_user
from tests.support.names import fresh
from tests.support.raw_client import RawClient, fetch_request
from tests.support.sasl_client import authenticate, handshake, log_in, plain_token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.running.node import Node

SASL = "SASL_PLAINTEXT"
LIFETIME = 2.0
CONFIG = {
    "listeners": f"{SASL}://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "connections.max.reauth.ms": f"{LIFETIME * 1000:.0f}",
}
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with guarded_broker(CONFIG) as broker:
        set_user(broker, "bob", "other")
        yield broker


@pytest.fixture
def raw(broker: ottla.EmbeddedBroker) -> Iterator[RawClient]:
    """Logged in as alice."""
    with RawClient(bootstrap(broker, SASL)) as client:
        answer = log_in(client, "PLAIN", "alice", USERS["alice"])
        assert answer.session_lifetime_ms == LIFETIME * 1000
        yield client


def works(raw: RawClient) -> bool:
    return len(raw.ask("metadata", 12, MetadataRequest(())).brokers) == 1


def expired(broker: ottla.EmbeddedBroker) -> int:
    def look(node: Node) -> int:
        assert node.services.door is not None
        return node.services.door.expired_sessions

    found: int = run_in(broker, look)
    return found


def test_case_36_again_at_once_is_refused_and_nothing_changes(raw: RawClient) -> None:
    assert handshake(raw, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert works(raw)


def test_case_36_authenticating_again_prolongs_the_session(raw: RawClient) -> None:
    for _ in range(2):
        time.sleep(LIFETIME * 0.6)  # the broker's own clock must move
        answer = log_in(raw, "PLAIN", "alice", USERS["alice"])
        assert (answer.error_code, answer.session_lifetime_ms) == (0, LIFETIME * 1000)
        assert works(raw)


def test_case_36_another_user_is_refused(raw: RawClient) -> None:
    time.sleep(LIFETIME * 0.6)
    answer = log_in(raw, "PLAIN", "bob", "other")
    assert (answer.error_code, answer.error_message) == (FAILED, "Principal changed")
    assert raw.closed()


def test_case_36_another_mechanism_is_refused(raw: RawClient) -> None:
    time.sleep(LIFETIME * 0.6)
    assert handshake(raw, "SCRAM-SHA-256").error_code == 0
    answer = authenticate(raw, plain_token("alice", USERS["alice"]))
    assert (answer.error_code, answer.error_message) == (FAILED, "Mechanism changed")
    assert raw.closed()


def test_case_36_an_expired_session_is_closed_or_renewed(
    broker: ottla.EmbeddedBroker, raw: RawClient
) -> None:
    before = expired(broker)
    with RawClient(bootstrap(broker, SASL)) as other:
        log_in(other, "PLAIN", "alice", USERS["alice"])
        time.sleep(LIFETIME * 1.1)
        assert log_in(other, "PLAIN", "alice", USERS["alice"]).error_code == 0
        assert works(other)
    raw.send("metadata", 12, MetadataRequest(()))
    assert raw.closed()
    assert expired(broker) == before + 1


def test_case_36_a_request_that_came_in_time_is_served(
    broker: ottla.EmbeddedBroker, raw: RawClient
) -> None:
    """Fault: what waited behind a long poll until the session had ended was refused."""
    topic = fresh("topic")
    raw.topic(topic, create=True)
    wait_ms = int(LIFETIME * 1200)
    fetch = fetch_request({(topic, 0): 0}, max_wait_ms=wait_ms, min_bytes=1)
    frames = [raw.frame("fetch", 12, fetch)]
    frames += [raw.frame("metadata", 12, MetadataRequest(())) for _ in range(2)]
    raw.send_bytes(b"".join(frames))
    time.sleep(LIFETIME * 1.1)
    raw.send("metadata", 12, MetadataRequest(()))  # this one is late
    raw.receive("fetch", 12)
    for _ in range(2):
        assert len(raw.receive("metadata", 12)[1].brokers) == 1
    assert raw.closed()


def test_case_36_librdkafka_authenticates_again_and_loses_nothing(
    broker: ottla.EmbeddedBroker,
) -> None:
    before = expired(broker)
    way = Way(bootstrap(broker, SASL), SASL, "SCRAM-SHA-256", "alice", USERS["alice"])
    lost: list[object] = []
    settings = confluent_settings(way) | {"error_cb": lost.append}
    producer = confluent_kafka.Producer(settings)
    topic, sent = fresh("topic"), 0
    offsets: list[int | None] = []
    ends = time.monotonic() + 3 * LIFETIME
    while time.monotonic() < ends:
        producer.produce(topic, b"value", on_delivery=lambda _, m: offsets.append(m.offset()))
        sent += 1
        producer.poll(0.01)
    assert producer.flush(20) == 0
    assert offsets == list(range(sent))
    assert lost == []
    assert expired(broker) == before


def test_case_37_aiokafka_is_closed_and_comes_back(broker: ottla.EmbeddedBroker) -> None:
    """It does not authenticate again."""
    before = expired(broker)
    way = Way(bootstrap(broker, SASL), SASL, "SCRAM-SHA-256", "alice", USERS["alice"])

    async def produce() -> list[int]:
        topic = fresh("topic")
        async with AIOKafkaProducer(**aiokafka_settings(way)) as producer:
            found = [(await producer.send_and_wait(topic, b"one")).offset]
            await asyncio.sleep(LIFETIME * 1.1)
            found.append((await producer.send_and_wait(topic, b"two")).offset)
        return found

    assert asyncio.run(produce()) == [0, 1]
    assert expired(broker) > before


def test_silent_connections_are_closed_by_the_sweep(
    broker: ottla.EmbeddedBroker, raw: RawClient
) -> None:
    time.sleep(LIFETIME * 1.1)

    async def sweep(node: Node) -> None:
        assert node.services.door is not None
        await node.services.door.sweep()

    broker._call(sweep)
    assert raw.closed()


async def test_case_36_the_own_client_authenticates_again(broker: ottla.EmbeddedBroker) -> None:
    before = await asyncio.to_thread(expired, broker)
    security = ottla.Security(
        security_protocol=SASL,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username="alice",
        sasl_password=USERS["alice"],
    )
    topic = fresh("topic")
    ends = time.monotonic() + 2 * LIFETIME
    offsets: list[int] = []
    async with ottla.Producer(bootstrap(broker, SASL), security=security) as producer:
        while time.monotonic() < ends:
            offsets.append((await producer.send(topic, b"value")).offset)
            await asyncio.sleep(0.05)
    assert offsets == list(range(len(offsets)))
    assert await asyncio.to_thread(expired, broker) == before
