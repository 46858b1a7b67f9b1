"""Groups, transactions and share groups whose coordinator's node dies or is stopped (case 14)."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

import ottla
from ottla import EmbeddedBroker
from ottla.coordination.partitioner import partition_for
from ottla.errors import OttlaError
from tests.support.cluster_clients import PATIENCE, QUICK, Writer, read_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIG = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(nodes=3, config=CONFIG) as broker:
        broker.create_topic("orders", partitions=3)
        yield broker


def dies(broker: EmbeddedBroker, node: int) -> None:
    broker.kill_node(node)
    broker.start_node(node)


def is_replaced(broker: EmbeddedBroker, node: int) -> None:
    broker.kill_node(node)
    broker.stop_node(node)
    broker.start_node(node)


def is_stopped(broker: EmbeddedBroker, node: int) -> None:
    broker.stop_node(node)


pytestmark = pytest.mark.long

ENDS = pytest.mark.parametrize("end", [dies, is_replaced, is_stopped])
End = Any


def coordinator(broker: EmbeddedBroker, topic: str, key: str) -> int:
    assert broker._nodes is not None
    found = broker._nodes.any.image.topics_by_name[topic]
    return found.partitions[partition_for(key, len(found.partitions))].leader


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline


@ENDS
def test_case_14_a_group_goes_on(cluster: EmbeddedBroker, end: End) -> None:
    writer = Writer(cluster.bootstrap, "orders")
    writer.write(10, range(3))
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "billing",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        **QUICK,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    seen: list[bytes | None] = []

    def read() -> set[bytes | None]:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            seen.append(message.value())
        return set(seen)

    def commit() -> bool:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            read()
            return False
        return True

    until(lambda: len(read()) >= 30)
    until(commit)
    end(cluster, coordinator(cluster, "__consumer_offsets", "billing"))
    writer.write(10, range(3))
    until(lambda: len(read()) >= 60)
    until(commit)
    consumer.close()
    before = {value for acked in writer.acked.values() for value in acked[:10]}
    assert sorted(value for value in seen if value in before) == sorted(before)  # were committed
    again = Consumer(settings)
    again.subscribe(["orders"])
    writer.write(1, [0])
    late: list[bytes | None] = []

    def read_late() -> bool:
        message = again.poll(0.2)
        if message is not None and not message.error():
            late.append(message.value())
        return bool(late)

    until(read_late)
    again.close()
    assert late == [writer.acked[0][-1]]


@ENDS
def test_case_14_a_transaction_goes_on(cluster: EmbeddedBroker, end: End) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "payments",
            "transaction.timeout.ms": 60_000,
            **QUICK,
        }
    )
    producer.init_transactions(PATIENCE)
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("orders", f"{outcome}".encode(), partition=partition)
        producer.flush(PATIENCE)
        end(cluster, coordinator(cluster, "__transaction_state", "payments"))
        if outcome == "commit":
            producer.commit_transaction(PATIENCE)
        else:
            producer.abort_transaction(PATIENCE)
        if end is is_stopped:
            break  # one node less each time
    expected = [b"commit"] if end is is_stopped else [b"commit", b"commit"]

    def is_read(partition: int) -> bool:
        committed = {"isolation.level": "read_committed"}
        return read_all(cluster.bootstrap, "orders", partition, **committed) == expected

    for partition in range(3):  # a commit is answered before its markers are written
        until(partial(is_read, partition))


@ENDS
async def test_case_14_a_share_group_goes_on(cluster: EmbeddedBroker, end: End) -> None:
    """Each node in turn: with the state, the group, the records. What was accepted stays so."""
    writer = Writer(cluster.bootstrap, "orders")
    await asyncio.to_thread(writer.write, 20, range(3))
    seen: set[bytes | None] = set()
    accepted: set[bytes | None] = set()
    async with ottla.ShareConsumer(
        cluster.bootstrap, group="jobs", topics=["orders"], auto_offset_reset="earliest"
    ) as consumer:

        async def work(count: int) -> None:
            async with asyncio.timeout(PATIENCE):
                while len(seen) < count:
                    values = {record.value for record in await consumer.poll()}
                    assert not values & accepted
                    seen.update(values)
                    # One that fails may have been stored all the same.
                    with suppress(OttlaError):
                        await consumer.commit()
                        accepted.update(values)

        await work(60)
        for node in (1, 2, 3) if end is not is_stopped else (2,):
            await asyncio.to_thread(end, cluster, node)
            await asyncio.to_thread(writer.write, 5, range(3))
            await work(writer.count)
