"""Quotas with foreign clients and tools: rates are held, nothing is lost (cases 65, 66, 69, 72)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

import ottla
from ottla.metadata.security.quotas import CLIENT_ID
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.names import fresh
from tests.support.quotas import set_quotas

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RATE = 1_000_000
VALUE = bytes(10_000)
WARM_UP_SECONDS = 12  # what a client may use at once is gone by then
SECONDS = 33  # three times all windows: a client may use what it has at once, and then waits


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker() as made:
        yield made


class Rate:
    """Bytes in the time after the warm-up."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.bytes = 0

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._began + WARM_UP_SECONDS + SECONDS

    def add(self, size: int) -> None:
        if WARM_UP_SECONDS < time.monotonic() - self._began <= WARM_UP_SECONDS + SECONDS:
            self.bytes += size

    @property
    def of_quota(self) -> float:
        return self.bytes / SECONDS / RATE


@pytest.mark.long
def test_65_confluent_produces_at_its_rate(broker: ottla.EmbeddedBroker) -> None:
    topic, client_id = fresh("topic"), fresh("client")
    broker.create_topic(topic)
    set_quotas(broker, {CLIENT_ID: client_id}, producer_byte_rate=RATE)
    told: list[float] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "queue.buffering.max.kbytes": 1000,
            "batch.size": 100_000,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    rate = Rate()

    def delivered(error: object, _: object) -> None:
        assert error is None
        rate.add(len(VALUE))

    sent = 0
    while not rate.is_over:
        try:
            producer.produce(topic, VALUE, on_delivery=delivered)
            sent += 1
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.flush(60)
    assert 0.8 <= rate.of_quota <= 1.1
    assert any(told)
    with ottla.sync.Reader(broker.bootstrap, topic, stop="latest") as reader:
        assert sum(batch.num_rows for batch in reader) == sent


@pytest.mark.long
def test_66_confluent_consumes_at_its_rate_and_loses_nothing(
    broker: ottla.EmbeddedBroker,
) -> None:
    topic, client_id = fresh("topic"), fresh("client")
    broker.create_topic(topic)
    count = (WARM_UP_SECONDS + SECONDS + 25) * RATE // len(VALUE)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, number.to_bytes(4, "big") + VALUE[4:])
        producer.poll(0)
    assert producer.flush(60) == 0
    set_quotas(broker, {CLIENT_ID: client_id}, consumer_byte_rate=RATE)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "group.id": fresh("group"),
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 1000,
        }
    )
    consumer.subscribe([topic])
    rate, read = Rate(), []
    while not rate.is_over:
        message = consumer.poll(0.2)
        value = None if message is None or message.error() is not None else message.value()
        if value is not None:
            rate.add(len(value))
            read.append(int.from_bytes(value[:4], "big"))
    consumer.close()
    assert read == list(range(len(read)))
    assert 0.7 <= rate.of_quota <= 1.1


# -- Kafka's tools --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with kept_tools() as kept:
        yield kept


def configs(tools: JavaTools, broker: ottla.EmbeddedBroker, *args: str) -> str:
    done = tools.run("kafka-configs", *args, bootstrap=broker.bootstrap)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


ENTITIES = [
    (("--entity-type", "users", "--entity-name", "alice"), "producer_byte_rate=1000"),
    (("--entity-type", "users", "--entity-default"), "request_percentage=50"),
    (("--entity-type", "clients", "--entity-name", "app"), "consumer_byte_rate=2000"),
    (("--entity-type", "clients", "--entity-default"), "controller_mutation_rate=1.5"),
    (
        (
            *("--entity-type", "users", "--entity-name", "alice"),
            *("--entity-type", "clients", "--entity-default"),
        ),
        "producer_byte_rate=3000",
    ),
    (("--entity-type", "ips", "--entity-name", "10.0.0.1"), "connection_creation_rate=5"),
    (("--entity-type", "ips", "--entity-default"), "connection_creation_rate=7"),
]


def test_72_kafka_configs_sets_describes_and_deletes(tools: JavaTools, tmp_path: Path) -> None:
    with ottla.EmbeddedBroker(tmp_path) as broker:
        for entity, value in ENTITIES:
            said = configs(tools, broker, "--alter", *entity, "--add-config", value)
            assert "Completed updating" in said
    with ottla.EmbeddedBroker(tmp_path) as broker:
        for entity, value in ENTITIES:
            key, _, number = value.partition("=")
            said = configs(tools, broker, "--describe", *entity)
            assert f"{key}={float(number)}" in said, said
            configs(tools, broker, "--alter", *entity, "--delete-config", key)
            assert key not in configs(tools, broker, "--describe", *entity)


def test_69_kafka_topics_says_that_the_quota_is_used_up(
    tools: JavaTools, broker: ottla.EmbeddedBroker
) -> None:
    entity = ("--entity-type", "users", "--entity-name", "ANONYMOUS")
    configs(tools, broker, "--alter", *entity, "--add-config", "controller_mutation_rate=0.01")
    try:
        outcomes = []
        for _ in range(3):
            name = fresh("topic")
            done = tools.run(
                *("kafka-topics", "--create", "--topic", name, "--partitions", "2"),
                bootstrap=broker.bootstrap,
            )
            outcomes.append((done.returncode, "quota" in (done.stdout + done.stderr).lower()))
            if done.returncode:
                break
        assert outcomes[0] == (0, False)
        assert outcomes[-1] == (1, True)
    finally:
        configs(tools, broker, "--alter", *entity, "--delete-config", "controller_mutation_rate")
