"""A partition and each of its coordinators on a node of its own; each of these nodes dies in turn.

Case 14 kills whatever node the coordinator happens to be on, which may have the records, too. Here
every request between nodes crosses one: state of share groups, markers, verifications of
transactions.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import ottla
from ottla import EmbeddedBroker
from ottla.errors import OttlaError
from tests.support.cluster_clients import PATIENCE, QUICK, Writer, read_all
from tests.support.nodes_process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

OFFSETS, STATE, TRANSACTIONS = "__consumer_offsets", "__share_group_state", "__transaction_state"
COMMITTED: Final = {"isolation.level": "read_committed"}
CONFIG: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
End = Any


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(nodes=4, config=CONFIG) as broker:
        yield broker


def dies(broker: EmbeddedBroker, node: int) -> None:
    """Its partitions wait for it."""
    broker.kill_node(node)
    broker.start_node(node)


def is_replaced(broker: EmbeddedBroker, node: int) -> None:
    """Others take over from it, and it takes back what it had."""
    broker.kill_node(node)
    broker.stop_node(node)
    broker.start_node(node)


ENDS = pytest.mark.parametrize("end", [dies, is_replaced])


def spread(broker: EmbeddedBroker, *topics: str) -> dict[str, int]:
    """Each topic, which has one partition, on a node of its own."""
    places = {topic: node for node, topic in enumerate(topics, 1)}
    for topic, node in places.items():
        broker.move(topic, 0, node)
    return places


@ENDS
async def test_a_share_group(cluster: EmbeddedBroker, end: End) -> None:
    """The group, its state and the records: what was accepted does not come again."""
    cluster.create_topic("orders")
    writer = Writer(cluster.bootstrap, "orders")
    seen: set[bytes | None] = set()
    accepted: set[bytes | None] = set()
    async with ottla.ShareConsumer(
        cluster.bootstrap, group="jobs", topics=["orders"], auto_offset_reset="earliest"
    ) as consumer:

        async def poll() -> set[bytes | None]:
            values = {record.value for record in await consumer.poll()}
            assert not values & accepted
            seen.update(values)
            return values

        async def accept(values: set[bytes | None]) -> None:
            # One that fails may have been stored all the same.
            with suppress(OttlaError):
                await consumer.commit()
                accepted.update(values)

        async def accept_all() -> None:
            async with asyncio.timeout(PATIENCE):
                while len(seen) < writer.count:
                    await accept(await poll())

        await asyncio.to_thread(writer.write, 10, [0])
        await accept_all()
        places = await asyncio.to_thread(spread, cluster, OFFSETS, STATE, "orders")
        for victim, is_acquired in product(places, (False, True)):
            await asyncio.to_thread(writer.write, 10, [0])
            values = await poll() if is_acquired else set()
            await asyncio.to_thread(end, cluster, places[victim])
            if values:
                await accept(values)
            await accept_all()
        await asyncio.to_thread(writer.write, 1, [0])
        await accept_all()
    async with ottla.ShareConsumer(cluster.bootstrap, group="jobs", topics=["orders"]) as late:
        await asyncio.to_thread(writer.write, 1, [0])
        async with asyncio.timeout(PATIENCE):
            while not (values := {record.value for record in await late.poll()}):
                pass
        assert not values & accepted


MOMENTS: Final = ("begun", "written", "with offsets")


@ENDS
async def test_a_transaction(cluster: EmbeddedBroker, end: End) -> None:
    """Its coordinator, the group's coordinator, the records: written once, with their offsets."""
    cluster.create_topic("sink")
    numbers: list[bytes] = []
    async with ottla.Producer(cluster.bootstrap, transactional_id="copy") as producer:

        async def copy(victim: int | None = None, moment: str = "") -> None:
            number = len(numbers)

            async def reached(this: str) -> None:
                if victim is not None and this == moment:
                    await asyncio.to_thread(end, cluster, victim)

            async with producer.transaction() as transaction:
                await producer.send("sink", b"first %d" % number)
                await reached("begun")
                await producer.send("sink", b"second %d" % number)
                await reached("written")
                source = ottla.TopicPartition("source", 0)
                await transaction.send_offsets("copiers", {source: number + 1})
                await reached("with offsets")
            numbers.extend((b"first %d" % number, b"second %d" % number))

        cluster.create_topic("source")
        await copy()
        places = await asyncio.to_thread(spread, cluster, TRANSACTIONS, OFFSETS, "sink")
        for victim, moment in product(places.values(), MOMENTS):
            await copy(victim, moment)
    check_copies(cluster, numbers)


def check_copies(cluster: EmbeddedBroker, numbers: list[bytes]) -> None:
    # The coordinator has answered; its markers reach the other nodes a little later.
    wait_for(
        lambda: read_all(cluster.bootstrap, "sink", 0, **COMMITTED) == numbers,
        "all transactions, once",
    )
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "copiers", **QUICK})
    (committed,) = consumer.committed([TopicPartition("source", 0)], PATIENCE)
    consumer.close()
    assert committed.offset == len(numbers) - 1


def test_a_transaction_of_librdkafka(cluster: EmbeddedBroker) -> None:
    """Nodes die, but stay part of the cluster: 2.16 hangs otherwise (librdkafka#5511)."""
    cluster.create_topic("sink")
    cluster.create_topic("source")
    settings = {"bootstrap.servers": cluster.bootstrap, **QUICK}
    producer = Producer({**settings, "transactional.id": "copy", "transaction.timeout.ms": 60_000})
    consumer = Consumer({**settings, "group.id": "copiers"})
    producer.init_transactions(PATIENCE)
    numbers: list[bytes] = []

    def copy(victim: int | None = None, moment: str = "") -> None:
        number = len(numbers)

        def reached(this: str) -> None:
            if victim is not None and this == moment:
                dies(cluster, victim)

        producer.begin_transaction()
        producer.produce("sink", b"first %d" % number)
        assert producer.flush(PATIENCE) == 0
        reached("begun")
        producer.produce("sink", b"second %d" % number)
        assert producer.flush(PATIENCE) == 0
        reached("written")
        producer.send_offsets_to_transaction(
            [TopicPartition("source", 0, number + 1)], consumer.consumer_group_metadata(), PATIENCE
        )
        reached("with offsets")
        producer.commit_transaction(PATIENCE)
        numbers.extend((b"first %d" % number, b"second %d" % number))

    copy()
    places = spread(cluster, TRANSACTIONS, OFFSETS, "sink")
    for victim, moment in product(places.values(), MOMENTS):
        copy(victim, moment)
    consumer.close()
    check_copies(cluster, numbers)


@ENDS
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group(cluster: EmbeddedBroker, end: End, protocol: str) -> None:
    """Its coordinator and the records: what was committed does not come again."""
    cluster.create_topic("orders")
    writer = Writer(cluster.bootstrap, "orders")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "billing",
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **QUICK,
        }
    )
    consumer.subscribe(["orders"])
    seen: list[bytes] = []
    committed: set[bytes] = set()

    def work() -> None:
        """Read all that was written, and commit it."""
        deadline = time.monotonic() + PATIENCE
        while len(committed) < writer.count:
            assert time.monotonic() < deadline, f"{len(committed)} of {writer.count} committed"
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                value = message.value() or b""
                assert value not in committed
                seen.append(value)
            if len(set(seen)) == writer.count:
                with suppress(KafkaException):  # a coordinator that has just died
                    consumer.commit(asynchronous=False)
                    committed.update(seen)

    writer.write(10, [0])
    work()
    places = spread(cluster, OFFSETS, "orders")
    for node in places.values():
        writer.write(10, [0])
        end(cluster, node)
        work()
        writer.write(10, [0])
        work()
    consumer.close()
