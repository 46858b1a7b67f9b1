"""Sessions that end: authenticating again, and what happens otherwise (cases 36 and 37).

The broker's sessions go by a clock of the test; for clients with timers of their own they do not
end (`still_sessions`). So nothing here depends on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer

import ottla
from ottla.broker.access.guard import Guard
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.door_clients import (
    Way,
    aiokafka_settings,
    confluent_settings,
    kafka_python_settings,
)
from tests.support.doors import USERS, bootstrap, guarded_broker, run_in, set_user
from tests.support.names import fresh
from tests.support.python_clients import SECONDS, until
from tests.support.raw_client import RawClient, fetch_request
from tests.support.sasl_client import authenticate, handshake, log_in, plain_token
from tests.support.still_sessions import still_sessions

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # see tests.support.python_clients
    import kafka

if TYPE_CHECKING:
    from collections import Counter
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
METADATA = 3


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of the broker's sessions."""
    made = Clock()
    monkeypatch.setattr(Guard, "now", lambda _: made.now)
    return made


@pytest.fixture
def logins() -> Iterator[Counter[int]]:
    """How often each connection has logged in, while no session ends."""
    with still_sessions() as found:
        yield found


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with guarded_broker(CONFIG) as broker:
        set_user(broker, "bob", "other")
        yield broker


@pytest.fixture
def raw(broker: ottla.EmbeddedBroker, clock: Clock) -> Iterator[RawClient]:
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


def test_case_36_authenticating_again_prolongs_the_session(raw: RawClient, clock: Clock) -> None:
    for _ in range(3):
        clock.now += LIFETIME * 0.6
        answer = log_in(raw, "PLAIN", "alice", USERS["alice"])
        assert (answer.error_code, answer.session_lifetime_ms) == (0, LIFETIME * 1000)
        assert works(raw)


def test_case_36_another_user_is_refused(raw: RawClient, clock: Clock) -> None:
    clock.now += LIFETIME * 0.6
    answer = log_in(raw, "PLAIN", "bob", "other")
    assert (answer.error_code, answer.error_message) == (FAILED, "Principal changed")
    assert raw.closed()


def test_case_36_another_mechanism_is_refused(raw: RawClient, clock: Clock) -> None:
    clock.now += LIFETIME * 0.6
    assert handshake(raw, "SCRAM-SHA-256").error_code == 0
    answer = authenticate(raw, plain_token("alice", USERS["alice"]))
    assert (answer.error_code, answer.error_message) == (FAILED, "Mechanism changed")
    assert raw.closed()


def test_case_36_an_expired_session_is_closed_or_renewed(
    broker: ottla.EmbeddedBroker, raw: RawClient, clock: Clock
) -> None:
    before = expired(broker)
    with RawClient(bootstrap(broker, SASL)) as other:
        log_in(other, "PLAIN", "alice", USERS["alice"])
        clock.now += LIFETIME * 1.1
        assert log_in(other, "PLAIN", "alice", USERS["alice"]).error_code == 0
        assert works(other)
    raw.send("metadata", 12, MetadataRequest(()))
    assert raw.closed()
    assert expired(broker) > before


def test_case_36_a_request_that_came_in_time_is_served(
    broker: ottla.EmbeddedBroker, raw: RawClient, clock: Clock
) -> None:
    """Fault: what waited behind a long poll until the session had ended was refused."""
    topic = fresh("topic")
    raw.topic(topic, create=True)

    def came(node: Node) -> int:
        waiting = sum(len(one._waiting) for one in node.dispatcher.connections)
        return waiting + node.dispatcher.requests[METADATA]

    before = run_in(broker, came)
    fetch = fetch_request({(topic, 0): 0}, max_wait_ms=2000, min_bytes=1)
    frames = [raw.frame("fetch", 12, fetch)]
    frames += [raw.frame("metadata", 12, MetadataRequest(())) for _ in range(2)]
    raw.send_bytes(b"".join(frames))
    until(
        lambda: run_in(broker, came) >= before + 2,
        "two requests behind a fetch",
        lambda: time.sleep(0.01),
    )
    clock.now += LIFETIME * 1.1
    raw.send("metadata", 12, MetadataRequest(()))  # this one is late
    raw.receive("fetch", 12)
    for _ in range(2):
        assert len(raw.receive("metadata", 12)[1].brokers) == 1
    assert raw.closed()


def test_case_36_librdkafka_authenticates_again_and_loses_nothing(
    broker: ottla.EmbeddedBroker, logins: Counter[int]
) -> None:
    way = Way(bootstrap(broker, SASL), SASL, "SCRAM-SHA-256", "alice", USERS["alice"])
    lost: list[object] = []
    settings = confluent_settings(way) | {"error_cb": lost.append}
    producer = confluent_kafka.Producer(settings)
    topic, sent = fresh("topic"), 0
    offsets: list[int | None] = []

    def produce() -> None:
        nonlocal sent
        producer.produce(topic, b"value", on_delivery=lambda _, m: offsets.append(m.offset()))
        sent += 1
        producer.poll(0.01)

    until(lambda: max(logins.values(), default=0) > 2, "a third login", produce)
    assert producer.flush(SECONDS) == 0
    assert offsets == list(range(sent))
    assert lost == []


def test_case_37_aiokafka_is_closed_and_comes_back(
    broker: ottla.EmbeddedBroker, clock: Clock
) -> None:
    """It does not authenticate again."""
    before = expired(broker)
    way = Way(bootstrap(broker, SASL), SASL, "SCRAM-SHA-256", "alice", USERS["alice"])

    async def produce() -> list[int]:
        topic = fresh("topic")
        async with AIOKafkaProducer(**aiokafka_settings(way)) as producer:
            found = [(await producer.send_and_wait(topic, b"one")).offset]
            clock.now += LIFETIME * 1.1
            found.append((await producer.send_and_wait(topic, b"two")).offset)
        return found

    assert asyncio.run(produce()) == [0, 1]
    assert expired(broker) > before


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")
def test_case_37_kafka_python_is_closed_and_comes_back(
    broker: ottla.EmbeddedBroker, clock: Clock
) -> None:
    """Nor does it."""
    before = expired(broker)
    way = Way(bootstrap(broker, SASL), SASL, "SCRAM-SHA-256", "alice", USERS["alice"])
    topic = fresh("topic")
    producer = kafka.KafkaProducer(**kafka_python_settings(way))
    found = [producer.send(topic, b"one").get(SECONDS).offset]
    clock.now += LIFETIME * 1.1
    found.append(producer.send(topic, b"two").get(SECONDS).offset)
    producer.close()
    assert found == [0, 1]
    assert expired(broker) > before


def test_silent_connections_are_closed_by_the_sweep(
    broker: ottla.EmbeddedBroker, raw: RawClient, clock: Clock
) -> None:
    clock.now += LIFETIME * 1.1

    async def sweep(node: Node) -> None:
        assert node.services.door is not None
        await node.services.door.sweep()

    broker._call(sweep)
    assert raw.closed()


async def test_case_36_the_own_client_authenticates_again(
    broker: ottla.EmbeddedBroker, logins: Counter[int]
) -> None:
    security = ottla.Security(
        security_protocol=SASL,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username="alice",
        sasl_password=USERS["alice"],
    )
    topic = fresh("topic")
    offsets: list[int] = []
    async with ottla.Producer(bootstrap(broker, SASL), security=security) as producer:
        while max(logins.values(), default=0) < 3:
            offsets.append((await producer.send(topic, b"value")).offset)
            await asyncio.sleep(0.05)
    assert offsets == list(range(len(offsets)))
