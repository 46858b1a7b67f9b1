"""Own clients at work while their sessions end: they log in again and nothing is lost (case 36).

All clients work at once, each with requests in flight most of the time. A machine that is too slow
to renew a session in time loses its connection; the clients get over that, too.

What the clients load when the first record comes is loaded before: pytest parses what is imported,
and Python 3.11 fails when two threads do so at the same time ("AST constructor recursion depth
mismatch").
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import Mock, patch

import pytest

import ottla
import ottla.client.reader.decode
import ottla.client.share.decode  # see below
from ottla.client.cluster.secure import SecureConnection
from tests.support.doors import USERS, bootstrap, guarded_broker
from tests.support.names import fresh
from tests.support.raw_client import RawClient
from tests.support.share_member import SHARE_CONFIG, set_group_configs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.doors import TlsFiles

SESSION_MS: Final = 1500  # a login within a second of the last one is refused
RENEWALS: Final = 10  # of the five clients together, which have seven connections


@pytest.fixture(scope="module")
def broker(tls_files: TlsFiles) -> Iterator[ottla.EmbeddedBroker]:
    config = {
        **SHARE_CONFIG,
        **tls_files.config(),
        "listeners": "SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_SSL",
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    with guarded_broker(config) as made:
        yield made


@pytest.fixture
def login(tls_files: TlsFiles) -> ottla.Security:
    return ottla.Security("SASL_SSL", "SCRAM-SHA-512", "alice", USERS["alice"], ssl_ca=tls_files.ca)


@pytest.fixture
def renewed() -> Iterator[Mock]:
    """Called at each renewal."""
    begin = SecureConnection._begin_renewal
    with patch.object(SecureConnection, "_begin_renewal", autospec=True, side_effect=begin) as spy:
        yield spy


class Work:
    """Records on their way through a topic."""

    def __init__(self, broker: ottla.EmbeddedBroker) -> None:
        self.topic, self.group, self.sharers = fresh("topic"), fresh("group"), fresh("group")
        with RawClient(bootstrap(broker, "PLAINTEXT")) as admin:
            set_group_configs(admin, self.sharers, share_auto_offset_reset="earliest")
        self.sent = 0
        self.is_over = False
        self.read: dict[str, list[int]] = {"reader": [], "consumer": [], "sharer": []}

    @property
    def is_done(self) -> bool:
        return self.is_over and all(len({*one}) >= self.sent for one in self.read.values())

    def add(self, who: str, records: Any) -> None:
        self.read[who] += [int(record.value) for record in records]

    def check(self) -> None:
        assert self.sent > 0
        # A share group gives what it gave over a lost connection once more.
        self.read["sharer"] = sorted({*self.read["sharer"]})
        for who, read in self.read.items():
            assert read == list(range(self.sent)), who


def clients(work: Work, where: str, login: ottla.Security, module: Any) -> dict[str, Any]:
    topics = [work.topic]
    return {
        "producer": module.Producer(where, security=login, linger_ms=0),
        "reader": module.Reader(where, work.topic, security=login),
        "consumer": module.Consumer(where, group=work.group, topics=topics, security=login),
        "sharer": module.ShareConsumer(where, group=work.sharers, topics=topics, security=login),
        "admin": module.Admin(where, security=login),
    }


async def test_async_clients(
    broker: ottla.EmbeddedBroker, login: ottla.Security, renewed: Mock
) -> None:
    work = Work(broker)
    broker.create_topic(work.topic)
    made = clients(work, bootstrap(broker, "SASL_SSL"), login, ottla)

    async def produce() -> None:
        async with made["producer"] as producer:
            while renewed.call_count < RENEWALS:
                await producer.send(work.topic, b"%d" % work.sent)
                work.sent += 1
        work.is_over = True

    async def consume(who: str, call: Callable[[Any], Any]) -> None:
        async with made[who] as client:
            while not work.is_done:
                work.add(who, await call(client))

    async def ask() -> None:
        async with made["admin"] as admin:
            while not work.is_done:
                await admin.list_topics()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(produce())
        group.create_task(consume("reader", read_some))
        group.create_task(consume("consumer", lambda one: one.poll(timeout=0.2)))
        group.create_task(consume("sharer", lambda one: one.poll(timeout=0.2)))
        group.create_task(ask())
    work.check()


async def read_some(reader: ottla.Reader) -> list[Any]:
    """At once what is there; waiting would go on after the last record."""
    try:
        async with asyncio.timeout(0.2):
            return list(await reader.read_many())
    except TimeoutError:
        return []


def test_blocking_twins(broker: ottla.EmbeddedBroker, login: ottla.Security, renewed: Mock) -> None:
    work = Work(broker)
    broker.create_topic(work.topic)
    del work.read["reader"]  # its blocking twin waits without a limit
    made = clients(work, bootstrap(broker, "SASL_SSL"), login, ottla.sync)
    failures: list[BaseException] = []

    def produce() -> None:
        with made["producer"] as producer:
            while renewed.call_count < RENEWALS:
                producer.send(work.topic, b"%d" % work.sent)
                work.sent += 1
        work.is_over = True

    def consume(who: str) -> None:
        with made[who] as client:
            while not work.is_done:
                work.add(who, client.poll(timeout=0.2))

    def ask() -> None:
        with made["admin"] as admin:
            while not work.is_done:
                admin.list_topics()

    def guarded(function: Callable[..., None], *args: str) -> None:
        try:
            function(*args)
        except BaseException as failure:
            failures.append(failure)
            raise

    jobs: list[tuple[Any, ...]] = [
        (produce,),
        (consume, "consumer"),
        (consume, "sharer"),
        (ask,),
    ]
    threads = [threading.Thread(target=guarded, args=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
    work.check()
