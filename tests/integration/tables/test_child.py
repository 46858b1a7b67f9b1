"""The table worker as a child of the broker (case 71)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running import table_worker
from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.client.security import PLAINTEXT
from ottla.schemas.registry_client import RegistryRefused
from ottla.sync.schema_registry import SchemaRegistry
from ottla.tables.pointer import read_pointers
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.secured import Secured, certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.broker.running.table_worker import TableWorker
    from ottla.client.security import Security

pytestmark = pytest.mark.long

WAIT = 120.0
"""Seconds until a test gives up waiting for a process that must come."""
CHILD = {"ottla.table.worker": "child"}
TABLE = {"ottla.table.enable": "true", "ottla.table.commit.interval.ms": "1000"}


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def worker_of(broker: EmbeddedBroker) -> TableWorker:
    node = broker._node
    assert node is not None
    assert node.table_worker is not None
    return node.table_worker


def pid_of(broker: EmbeddedBroker) -> int:
    until(lambda: worker_of(broker).pid is not None)
    found = worker_of(broker).pid
    assert found is not None
    return found


async def send(broker: EmbeddedBroker, *values: bytes, security: Security = PLAINTEXT) -> None:
    async with Producer(broker.bootstrap, security=security) as producer:
        await producer.send_many("orders", [ProducerRecord(one) for one in values])


def taken(broker: EmbeddedBroker, security: Security = PLAINTEXT) -> int:
    pointer = asyncio.run(read_pointers(broker.bootstrap, security=security)).get("orders")
    return -1 if pointer is None else pointer.position[0]


def test_case_71_a_child_that_dies_is_started_again_and_ends_with_the_broker() -> None:
    with EmbeddedBroker(config=CHILD) as broker:
        broker.create_topic("orders", configs=TABLE)
        asyncio.run(send(broker, b"one", b"two"))
        first = pid_of(broker)
        until(lambda: taken(broker) == 2)
        os.kill(first, signal.SIGKILL)
        until(lambda: worker_of(broker).pid not in (None, first))
        asyncio.run(send(broker, b"three"))
        until(lambda: taken(broker) == 3)
        last = pid_of(broker)
    assert not is_alive(last)


def test_case_71_the_child_of_a_secured_broker_logs_in_as_its_own_user() -> None:
    security = Secured(users={"admin": "secret"}, super_users=["admin"])
    trust = {"ssl.truststore.location": str(certificates().ca), "ssl.truststore.type": "PEM"}
    with EmbeddedBroker(config={**CHILD, **trust}, security=security) as broker:
        admin = broker.security("admin")
        asyncio.run(make_topics(broker, admin))
        asyncio.run(send(broker, b"one", security=admin))
        until(lambda: taken(broker, admin) == 1)
        pid = pid_of(broker)
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        node = broker._node
        assert node is not None
        assert node.services.door is not None
        password = node.services.door._own_passwords["__table"].encode()
        assert password not in command + environment


def test_the_child_of_a_secured_broker_reads_the_schemas_of_its_registry() -> None:
    """Fault: the registry refused `__table`, so such a table was never made."""
    security = Secured(users={"admin": "secret"}, super_users=["admin"])
    trust = {"ssl.truststore.location": str(certificates().ca), "ssl.truststore.type": "PEM"}
    with EmbeddedBroker(config={**CHILD, **trust}, security=security, registry=True) as broker:
        admin = broker.security("admin")
        with SchemaRegistry(broker.registry_url, security=admin) as registry:
            number = registry.register("orders-value", '"string"').id
        asyncio.run(make_topics(broker, admin, {"ottla.table.value.format": "registry"}))
        framed = b"\0" + number.to_bytes(4, "big") + b"\x06abc"
        asyncio.run(send(broker, framed, framed, security=admin))
        until(lambda: taken(broker, admin) == 2)
        wrong = replace(admin, sasl_username="__table", sasl_password="guessed")
        with (
            SchemaRegistry(broker.registry_url, security=wrong) as registry,
            pytest.raises(RegistryRefused, match="authentication failed"),
        ):
            registry.subjects()


async def make_topics(
    broker: EmbeddedBroker, security: Security, more: Mapping[str, str] | None = None
) -> None:
    async with Admin(broker.bootstrap, security=security) as admin:
        await admin.create_topic("orders", 1, configs={**TABLE, **(more or {})})
        await admin.create_topic("private", 1)


def test_case_71_without_the_extra_the_broker_starts_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_worker, "PACKAGES", ("no_such_package",))
    with EmbeddedBroker(config=CHILD) as broker:
        broker.create_topic("orders")
        assert broker._node is not None
        assert broker._node.table_worker is None
    assert "needs no_such_package: pip install 'ottla[tables]'" in caplog.text
