"""The shops send their orders over the secured listener: TLS, a user with a password, one right.

The user `shops` may write to the topic of orders and nothing else. `knock` tries three ways in that
must be refused; the demo checks that each was.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import ottla
from ottla.client.errors import AuthenticationFailed, AuthorizationFailed, ConnectionLost
from ottla.demo.stage import ORDERS
from ottla.security.certificates import Authority, write_authority, write_issued

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ottla.demo.stage import Stage

USER: Final = "shops"
PASSWORD: Final = "a password of the demo"
ORDERS_PER_SECOND: Final = 1000
AT_ONCE: Final = 50
KNOCK_SECONDS: Final = 5.0


def create_certificates(stage: Stage) -> None:
    """An authority, and the broker's certificate."""
    authority = Authority.make("Ottla demo")
    write_authority(stage.tls, authority)
    write_issued(stage.tls, "server", authority.server(["127.0.0.1"]))


async def create_user(admin: ottla.Admin) -> None:
    await admin.create_user(USER, PASSWORD)
    await admin.create_acls(ottla.Acl.parse(f"allow {USER} write,describe topic:{ORDERS}"))


def login(stage: Stage, password: str = PASSWORD) -> ottla.Security:
    return ottla.Security(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=USER,
        sasl_password=password,
        ssl_ca=stage.tls / "ca.pem",
    )


async def produce(stage: Stage) -> None:
    """The orders, at the pace of a busy shop."""
    batch = []
    sent = 0
    async with ottla.Producer(stage.shops, security=login(stage)) as producer:
        begun = time.monotonic()
        for order in stage.make_orders():
            batch.append(ottla.ProducerRecord(order.value, order.id.encode()))
            if len(batch) == AT_ONCE:
                sent += len(batch)
                await producer.send_many(ORDERS, batch)
                batch.clear()
                await asyncio.sleep(begun + sent / ORDERS_PER_SECOND - time.monotonic())
        await producer.send_many(ORDERS, batch)


async def knock(stage: Stage) -> dict[str, bool]:
    """By what was tried at the shops' door: whether it was refused, and for the right reason."""
    tried: dict[str, tuple[Coroutine[Any, Any, None], type[ottla.errors.OttlaError]]] = {
        "without TLS": (_look(stage, ottla.Security()), ConnectionLost),
        "wrong password": (_look(stage, login(stage, "guessed")), AuthenticationFailed),
        "no right to read": (_read(stage), AuthorizationFailed),
    }
    refused = {}
    for what, (attempt, error) in tried.items():
        try:
            await attempt
        except error:
            refused[what] = True
        else:
            refused[what] = False
    return refused


async def _look(stage: Stage, security: ottla.Security) -> None:
    async with ottla.Admin(stage.shops, security=security, api_timeout=KNOCK_SECONDS) as admin:
        await admin.list_topics()


async def _read(stage: Stage) -> None:
    async with ottla.Reader(stage.shops, ORDERS, stop="latest", security=login(stage)) as reader:
        await anext(reader.records())
