"""From a plaintext broker to a secured one, on a directory with data."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from tests.support.doors import USERS, bootstrap, make_tls_files, set_user

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "orders"


def send(settings: dict[str, Any], values: list[bytes]) -> None:
    producer = Producer({**settings, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(30) == 0


def read(settings: dict[str, Any], count: int) -> list[bytes | None]:
    consumer = Consumer({**settings, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes | None] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=20)
        assert messages, f"{len(found)} of {count} records arrived"
        found += [message.value() for message in messages]
    consumer.close()
    return found


def test_case_110_listeners_are_added_and_taken_away_and_nothing_is_lost(tmp_path: Path) -> None:
    files = make_tls_files(tmp_path)
    secured = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
        "ssl.ca.location": str(files.ca),
    }

    @contextmanager
    def broker(*listeners: str) -> Iterator[ottla.EmbeddedBroker]:
        config = {"listeners": ",".join(f"{name}://127.0.0.1:0" for name in listeners)}
        if "SASL_SSL" in listeners:
            config |= files.config()
        with ottla.EmbeddedBroker(tmp_path / "data", config=config) as running:
            yield running

    with broker("PLAINTEXT") as first:
        first.create_topic(TOPIC)
        send({"bootstrap.servers": bootstrap(first, "PLAINTEXT")}, [b"old 1", b"old 2"])
    with broker("PLAINTEXT", "SASL_SSL") as both:
        set_user(both, "alice", USERS["alice"])
        plain = {"bootstrap.servers": bootstrap(both, "PLAINTEXT")}
        locked = {"bootstrap.servers": bootstrap(both, "SASL_SSL"), **secured}
        send(plain, [b"not moved yet"])
        send(locked, [b"moved"])
        assert read(plain, 4) == read(locked, 4)
    with broker("SASL_SSL") as last:
        locked = {"bootstrap.servers": bootstrap(last, "SASL_SSL"), **secured}
        send(locked, [b"locked"])
        expected = [b"old 1", b"old 2", b"not moved yet", b"moved", b"locked"]
        assert read(locked, 5) == expected
