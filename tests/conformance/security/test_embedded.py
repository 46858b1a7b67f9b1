"""`EmbeddedBroker(security=Secured(...))` and its fixtures, for every kind of client (case 108)."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from typer.testing import CliRunner

import ottla
from ottla.cli.whole import app
from ottla.client.errors import BadArgument
from ottla.testing.secured import as_properties

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.testing.plugin import SecureUser


pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

WAYS = {
    "SASL_SSL": ottla.Secured(users={"alice": "a", "bob": "b"}),
    "PLAIN": ottla.Secured(users={"alice": "a", "bob": "b"}, mechanisms=["PLAIN"]),
    "SASL_PLAINTEXT": ottla.Secured(users={"alice": "a"}, protocol="SASL_PLAINTEXT"),
    "SSL": ottla.Secured(protocol="SSL"),
    "SASL_SSL and certificates": ottla.Secured(users={"alice": "a"}, client_certificates=True),
}


@pytest.fixture(scope="module", params=WAYS)
def broker(request: pytest.FixtureRequest) -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(security=WAYS[request.param]) as broker:
        yield broker


def by_confluent(broker: ottla.EmbeddedBroker, topic: str) -> list[bytes]:
    producer = confluent_kafka.Producer(broker.properties("alice"))
    producer.produce(topic, b"one")
    assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer(
        {**broker.properties("alice"), "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        while True:
            found = consumer.poll(1)
            if found is not None and found.error() is None:
                return [found.value() or b""]
    finally:
        consumer.close()


def by_kafka_python(broker: ottla.EmbeddedBroker, topic: str) -> list[bytes]:
    options = broker.options("alice", "kafka-python")
    producer = kafka.KafkaProducer(**options)
    producer.send(topic, b"one").get(20)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **options, auto_offset_reset="earliest")
    try:
        return [next(consumer).value]
    finally:
        consumer.close()


def by_aiokafka(broker: ottla.EmbeddedBroker, topic: str) -> list[bytes]:
    async def run() -> list[bytes]:
        options = broker.options("alice", "aiokafka")
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, b"one")
        async with AIOKafkaConsumer(topic, **options, auto_offset_reset="earliest") as consumer:
            return [(await consumer.getone()).value]

    return asyncio.run(run())


def by_ottla(broker: ottla.EmbeddedBroker, topic: str) -> list[bytes]:
    options = broker.options("alice", "ottla")
    with ottla.sync.Producer(**options) as producer:
        producer.send(topic, b"one")
    with ottla.sync.Reader(topic=topic, stop="latest", **options) as reader:
        return [bytes(one.value) for one in reader.read_many(1) if one.value is not None]


def by_command(broker: ottla.EmbeddedBroker, topic: str) -> list[bytes]:
    config = ["--command-config", str(broker.properties_file("alice"))]
    config += ["--bootstrap", broker.bootstrap]
    sent = CliRunner().invoke(app, ["produce", topic, *config], input="one\n")
    assert sent.exit_code == 0, sent.output
    read = CliRunner().invoke(app, ["consume", topic, "--until-end", "--raw", *config])
    return read.stdout_bytes.split()


CLIENTS: dict[str, Callable[[Any, str], list[bytes]]] = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "ottla": by_ottla,
    "ottla's commands": by_command,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_options_work_as_given_case_108(broker: ottla.EmbeddedBroker, client: str) -> None:
    topic = "made-by-" + client.replace("'", "").replace(" ", "-")
    broker.create_topic(topic)
    assert CLIENTS[client](broker, topic) == [b"one"]


def test_two_secured_brokers_in_one_process_case_108() -> None:
    one = ottla.Secured(users={"alice": "a"})
    two = ottla.Secured(users={"alice": "another"})
    with ottla.EmbeddedBroker(security=one) as first, ottla.EmbeddedBroker(security=two) as second:
        assert first.ca_file == second.ca_file
        for broker in (first, second):
            with ottla.sync.Admin(broker.bootstrap, security=broker.security("alice")) as admin:
                assert admin.list_topics() == []
        with (
            pytest.raises(ottla.errors.AuthenticationFailed),
            ottla.sync.Admin(first.bootstrap, security=second.security("alice")) as admin,
        ):
            admin.list_topics()


def test_users_without_rights_get_them_one_by_one_case_108(
    ottla_secure_broker: ottla.EmbeddedBroker, ottla_user: SecureUser
) -> None:
    topic = f"of-{ottla_user.name}"
    ottla_secure_broker.create_topic(topic)
    with ottla.sync.Producer(
        ottla_secure_broker.bootstrap, security=ottla_user.security, max_block_ms=5000
    ) as producer:
        with pytest.raises(ottla.errors.TopicAuthorizationFailed, match=topic):
            producer.send(topic, b"one")
        ottla_user.allow(f"write topic:{topic}")
        producer.send(topic, b"two")
    admin = ottla_secure_broker.security("admin")
    with ottla.sync.Reader(
        ottla_secure_broker.bootstrap, topic, stop="latest", security=admin
    ) as reader:
        assert [one.value for one in reader.read_many(10)] == [b"two"]


def test_what_a_broker_without_security_says() -> None:
    with ottla.EmbeddedBroker() as broker, pytest.raises(BadArgument, match="security=Secured"):
        broker.properties("alice")


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": "PLAINTEXT"},
        {"mechanisms": ["GSSAPI"]},
        {"mechanisms": []},
        {"acls": ["x"]},
        {"users": {"a": ""}},
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        ottla.Secured(**wrong)


def test_a_user_that_is_not_there(broker: ottla.EmbeddedBroker) -> None:
    if "SASL" in str(broker.options("alice", "java")):
        with pytest.raises(BadArgument, match="'mallory' is not one of the users"):
            broker.properties("mallory")
    with pytest.raises(BadArgument, match="expected librdkafka"):
        broker.options("alice", "go")  # type: ignore[arg-type]


def test_passwords_in_a_properties_file_survive() -> None:
    from ottla.properties import parse_properties

    values = {"a": 'x="\\\\"', "b": "\\t"}
    assert parse_properties(as_properties(values)) == values
    assert "secret" not in repr(ottla.Secured(users={"a": "secret"}))
