"""`ottla acl grant`: the ACLs of a role are enough for it, and without any one they are not.

Cases 60 and 113 of the specification of security, with Ottla's clients and confluent-kafka.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

import ottla
from ottla.cli.acl import numbered
from ottla.cli.roles import role_acls
from ottla.client.errors import AuthorizationFailed
from tests.support.names import fresh

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.support.rights import RightsBroker

PATIENCE = 30.0
DLQ = "errors.deadletterqueue.topic.name"


@pytest.fixture
def topic(place: RightsBroker) -> str:
    name = fresh("orders")
    place.create_topic(name)
    return name


async def check_role(
    place: RightsBroker,
    role: str,
    resources: list[str],
    work: Callable[[str], Awaitable[None]],
) -> None:
    acls = [numbered(acl) for acl in role_acls(role, "User:alice", resources)]
    place.set(acls)
    async with asyncio.timeout(PATIENCE):
        await work(place.bootstrap("alice"))
    for acl in acls:
        place.set([one for one in acls if one != acl])
        with pytest.raises(AuthorizationFailed):
            async with asyncio.timeout(PATIENCE):
                await work(place.bootstrap("alice"))


async def test_113_producer(place: RightsBroker, topic: str) -> None:
    async def work(bootstrap: str) -> None:
        async with ottla.Producer(bootstrap) as producer:
            await producer.send(topic, b"v")

    await check_role(place, "producer", [f"topic:{topic}"], work)


async def test_113_consumer(place: RightsBroker, topic: str) -> None:
    group = fresh("group")
    async with ottla.Producer(place.bootstrap("root")) as producer:
        for _ in range(4):
            await producer.send(topic, b"v")

    async def work(bootstrap: str) -> None:
        async with ottla.Consumer(
            bootstrap, group=group, topics=[topic], auto_offset_reset="earliest"
        ) as consumer:
            async for _ in consumer:
                await consumer.commit()
                return

    await check_role(place, "consumer", [f"topic:{topic}", f"group:{group}"], work)


async def test_113_share_consumer(place: RightsBroker, topic: str) -> None:
    prefix = fresh("group")
    async with ottla.Producer(place.bootstrap("root")) as producer:
        for _ in range(4):
            await producer.send(topic, b"v")

    async def work(bootstrap: str) -> None:
        # A group whose configuration does not say yet where it starts.
        async with ottla.ShareConsumer(
            bootstrap, group=fresh(prefix), topics=[topic], auto_offset_reset="earliest"
        ) as consumer:
            while not await consumer.poll():
                pass

    await check_role(place, "share-consumer", [f"topic:{topic}", f"group:{prefix}*"], work)


async def test_113_transactional(place: RightsBroker, topic: str) -> None:
    name = fresh("payments")

    async def work(bootstrap: str) -> None:
        async with (
            ottla.Producer(bootstrap, transactional_id=name) as producer,
            producer.transaction(),
        ):
            await producer.send(topic, b"v")

    await check_role(place, "transactional", [f"topic:{topic}", f"txn:{name}"], work)


@pytest.mark.parametrize("idempotent", [True, False])
def test_63_confluents_producer_needs_write_on_one_prefix(
    place: RightsBroker, topic: str, idempotent: bool
) -> None:
    place.grant(f"allow alice write topic:{topic[:-1]}*")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": place.bootstrap("alice"), "enable.idempotence": idempotent}
    )
    failed: list[object] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE) == 0
    assert failed == [None]


def test_57_confluent_sees_what_it_may_describe(place: RightsBroker, topic: str) -> None:
    hidden = fresh("hidden")
    place.create_topic(hidden)
    place.grant(f"allow alice describe topic:{topic}")
    client = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap("alice")})
    assert set(client.list_topics(timeout=PATIENCE).topics) == {topic}
    asked = client.list_topics(hidden, timeout=PATIENCE).topics[hidden]
    assert asked.error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


async def test_60_letters_arrive_where_the_user_may_write(place: RightsBroker, topic: str) -> None:
    group, letters = fresh("group"), fresh("dlq.letters")
    place.broker.create_topic(letters, configs={"errors.deadletterqueue.group.enable": "true"})
    rights = [
        f"allow alice alter_configs group:{group}",
        f"allow alice read group:{group}",
        f"allow alice all topic:{topic}",
    ]
    settings = {DLQ: letters, "share.auto.offset.reset": "earliest"}
    place.grant(*rights)
    async with ottla.Admin(place.bootstrap("alice")) as admin:
        with pytest.raises(AuthorizationFailed):
            await admin.alter_configs("group", group, settings)
        place.grant(*rights, f"allow alice write topic:{letters}")
        await admin.alter_configs("group", group, settings)
    place.grant(*rights)  # the broker writes in the name of who has set it
    async with ottla.Producer(place.bootstrap("alice")) as producer:
        await producer.send(topic, b"poison")
    async with ottla.ShareConsumer(
        place.bootstrap("alice"), group=group, topics=[topic], ack_mode="explicit"
    ) as consumer:
        async with asyncio.timeout(PATIENCE):
            records: Sequence[ottla.ShareRecord] = []
            while not records:
                records = await consumer.poll()
            for record in records:
                consumer.acknowledge(record, "reject")
            await consumer.commit()
    async with asyncio.timeout(PATIENCE), ottla.Reader(place.bootstrap("root"), letters) as reader:
        async for batch in reader:
            assert batch.num_rows == 1
            break
