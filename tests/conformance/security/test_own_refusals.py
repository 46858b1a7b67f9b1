"""Own clients, async and blocking, that cannot come in: at once, with the fix, not again and again.

Each way to be refused is tried with each client. Their timeouts are a minute and more, so that a
client that tries again until they are over does not end within `PATIENCE` (cases 9 and 102).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

import ottla
from ottla.errors import AuthenticationFailed, TlsFailed
from ottla.security.certificates import Authority
from ottla.security.contexts import server_context
from tests.support.client_broker import ScriptedBroker
from tests.support.doors import USERS, TlsFiles, bootstrap, guarded_broker
from tests.support.tls import ago, authority, shows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

PATIENCE: Final = 30.0
USER: Final = "alice"

# How each client is made, and what is called first.
CLIENTS: Final[dict[str, tuple[dict[str, Any], Callable[[Any], Any]]]] = {
    "Admin": ({}, lambda admin: admin.list_topics()),
    "Producer": ({}, lambda producer: producer.send("orders", b"one")),
    "Consumer": (
        {"group": "consumers", "topics": ["orders"]},
        lambda consumer: consumer.poll(timeout=60),
    ),
    "Reader": ({"topic": "orders"}, lambda reader: reader.read_many(1)),
    "ShareConsumer": (
        {"group": "sharers", "topics": ["orders"]},
        lambda consumer: consumer.poll(timeout=60),
    ),
}


async def use(kind: str, where: str, security: ottla.Security) -> None:
    settings, call = CLIENTS[kind]
    async with getattr(ottla, kind)(where, security=security, **settings) as client:
        await call(client)


def use_twin(kind: str, where: str, security: ottla.Security) -> None:
    settings, call = CLIENTS[kind]
    with getattr(ottla.sync, kind)(where, security=security, **settings) as client:
        call(client)


async def refused(
    kind: str, where: str, security: ottla.Security, error: type[Exception], said: str
) -> None:
    """By both, in a client of each."""
    with pytest.raises(error, match=said) as failure:
        async with asyncio.timeout(PATIENCE):
            await use(kind, where, security)
    told = [failure.value]

    def twin() -> None:
        try:
            use_twin(kind, where, security)
        except Exception as problem:  # noqa: BLE001  # looked at below
            told.append(problem)

    # The loop goes on meanwhile: the broker may be in it.
    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(twin)
    assert type(told[1]) is type(told[0])
    assert "canary" not in "".join(map(str, told))


@pytest.fixture(scope="module")
def broker(tls_files: TlsFiles) -> Iterator[ottla.EmbeddedBroker]:
    """On two addresses, one of which is not in its certificate."""
    config = {
        **tls_files.config(),
        "listeners": "SASL_SSL://127.0.0.1:0,OTHER://127.0.0.2:0",
        "listener.security.protocol.map": "OTHER:SASL_SSL",
        "inter.broker.listener.name": "SASL_SSL",
        "connection.failed.authentication.delay.ms": "0",
    }
    with guarded_broker(config) as made:
        made.create_topic("orders")
        yield made


def login(password: str = USERS[USER], **more: Any) -> ottla.Security:
    return ottla.Security("SASL_SSL", "SCRAM-SHA-256", USER, password, **more)


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_wrong_password(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, kind: str
) -> None:
    await refused(
        kind,
        bootstrap(broker, "SASL_SSL"),
        login("canary", ssl_ca=tls_files.ca),
        AuthenticationFailed,
        rf"log in as '{USER}' with SCRAM-SHA-256.*password",
    )


@pytest.mark.parametrize("kind", CLIENTS)
async def test_an_unknown_ca(broker: ottla.EmbeddedBroker, kind: str) -> None:
    await refused(
        kind,
        bootstrap(broker, "SASL_SSL"),
        login(ssl_ca=Authority.make("another").issued.chain.decode()),
        TlsFailed,
        r"not of a CA that is trusted.*ssl\.truststore\.location",
    )


@pytest.mark.parametrize("kind", CLIENTS)
async def test_another_host_name(
    broker: ottla.EmbeddedBroker, tls_files: TlsFiles, kind: str
) -> None:
    await refused(
        kind,
        bootstrap(broker, "OTHER"),
        login(ssl_ca=tls_files.ca),
        TlsFailed,
        r"not for 127\.0\.0\.2 but for .*127\.0\.0\.1.*connect to one of these",
    )


@asynccontextmanager
async def expired_server() -> AsyncIterator[ScriptedBroker]:
    """A broker does not start with such a certificate, and one that runs may have it."""
    old = authority().server(["localhost", "127.0.0.1"], days=1, now=ago(20))
    context = server_context(shows(old), now=ago(20).timestamp() + 60)
    async with ScriptedBroker(ssl=context) as made:
        yield made


@pytest.mark.parametrize("kind", CLIENTS)
async def test_an_expired_certificate(kind: str) -> None:
    async with expired_server() as old:
        trusted = authority().issued.chain.decode()
        await refused(
            kind, old.bootstrap, login(ssl_ca=trusted), TlsFailed, "has expired.*renewed on the"
        )
