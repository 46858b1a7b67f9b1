"""From PLAINTEXT to SASL_SSL on a data directory that lives on (case 110)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka

import ottla
from tests.support.doors import bootstrap

if TYPE_CHECKING:
    from pathlib import Path

SECURED = ottla.Secured(users={"alice": "a"}, super_users=["alice"])
GROUP = "billing"


def send(properties: dict[str, Any], first: int, count: int) -> None:
    producer = confluent_kafka.Producer({**properties, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce("orders", str(number).encode())
    assert producer.flush(20) == 0


def read(properties: dict[str, Any], count: int) -> list[int]:
    """The next records of the group, whose position is committed."""
    consumer = confluent_kafka.Consumer(
        {
            **properties,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    found: list[int] = []
    try:
        while len(found) < count:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(int(message.value() or b"-1"))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def test_nothing_is_lost_on_the_way_case_110(tmp_path: Path) -> None:
    both = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"}
    # Before the plain listener is gone, those who come by it have to be allowed to.
    both |= {"super.users": "User:alice;User:ANONYMOUS", "inter.broker.listener.name": "PLAINTEXT"}
    with ottla.EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("orders")
        plain = {"bootstrap.servers": broker.bootstrap}
        send(plain, 0, 100)
        assert read(plain, 50) == list(range(50))
    with ottla.EmbeddedBroker(tmp_path, config=both, security=SECURED) as broker:
        plain = {"bootstrap.servers": bootstrap(broker, "PLAINTEXT")}
        secure = broker.properties("alice") | {"bootstrap.servers": bootstrap(broker, "SASL_SSL")}
        send(plain, 100, 50)
        send(secure, 150, 50)
        assert read(plain, 25) == list(range(50, 75))
        assert read(secure, 25) == list(range(75, 100))
    with ottla.EmbeddedBroker(tmp_path, security=SECURED) as broker:
        secure = broker.properties("alice")
        send(secure, 200, 50)
        assert read(secure, 150) == list(range(100, 250))
        with ottla.sync.Reader(
            broker.bootstrap, "orders", stop="latest", security=broker.security("alice")
        ) as reader:
            values = [one.value for one in reader.read_many(1000)]
        assert values == [b"%d" % number for number in range(250)]
