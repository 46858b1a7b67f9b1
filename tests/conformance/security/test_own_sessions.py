"""Clients whose user is deleted while they work: they fail with a sentence, and at once (102)."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import ottla

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(security=ottla.Secured(users={"alice": "a"})) as broker:
        broker.create_topic("orders")
        yield broker


async def refused(
    broker: ottla.EmbeddedBroker,
    make: Callable[..., Any],
    use: Callable[[Any], Awaitable[object]],
) -> None:
    """It works, its user is deleted, and it fails instead of coming back again and again."""
    user = f"user-{next(_numbers)}"
    broker.create_user(user, "b")

    async def work(client: Any) -> None:
        while True:
            await use(client)

    client = make(broker.bootstrap, broker.security(user))
    async with client:
        await use(client)
        async with ottla.Admin(broker.bootstrap, security=broker.security("alice")) as admin:
            await admin.delete_user(user)
        with pytest.raises(ottla.errors.AuthenticationFailed, match=f"log in as '{user}'"):
            async with asyncio.timeout(30):
                await work(client)


async def test_a_producer(broker: ottla.EmbeddedBroker) -> None:
    await refused(
        broker,
        lambda bootstrap, by: ottla.Producer(bootstrap, security=by),
        lambda producer: producer.send("orders", b"one"),
    )


async def test_a_reader(broker: ottla.EmbeddedBroker) -> None:
    async with ottla.Producer(broker.bootstrap, security=broker.security("alice")) as producer:
        await producer.send("orders", b"one")
    await refused(
        broker,
        lambda bootstrap, by: ottla.Reader(bootstrap, "orders", security=by),
        lambda reader: reader.read_many(1),
    )


async def test_a_consumer(broker: ottla.EmbeddedBroker) -> None:
    await refused(
        broker,
        lambda bootstrap, by: ottla.Consumer(
            bootstrap, group="consumers", topics=["orders"], security=by
        ),
        lambda consumer: consumer.poll(0.5),
    )


async def test_a_share_consumer(broker: ottla.EmbeddedBroker) -> None:
    await refused(
        broker,
        lambda bootstrap, by: ottla.ShareConsumer(
            bootstrap, group="sharers", topics=["orders"], security=by
        ),
        lambda consumer: consumer.poll(0.5),
    )


async def test_an_admin(broker: ottla.EmbeddedBroker) -> None:
    await refused(
        broker,
        lambda bootstrap, by: ottla.Admin(bootstrap, security=by),
        lambda admin: admin.list_topics(),
    )


async def test_a_topic_that_may_be_written_but_not_created() -> None:
    """The broker creates topics, and not for this user; that it is missing is not the reason."""
    secured = ottla.Secured(
        users={"alice": "a", "bob": "b"},
        super_users=["alice"],
        acls=["allow bob write topic:missing"],
    )
    with ottla.EmbeddedBroker(security=secured) as broker:
        async with ottla.Producer(broker.bootstrap, security=broker.security("bob")) as producer:
            with pytest.raises(
                ottla.errors.TopicAuthorizationFailed, match=r"'missing'.*may not be created"
            ):
                await producer.send("missing", b"one")
