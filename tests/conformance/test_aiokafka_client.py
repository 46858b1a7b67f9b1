"""aiokafka: positions, commits, admin calls, restarts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from ottla import EmbeddedBroker
from tests.support.ports import free_port
from tests.support.python_clients import SECONDS, take_aiokafka

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


async def produce(bootstrap: str, topic: str, values: range, partition: int = 0) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    sent = [
        await producer.send(topic, b"%d" % n, partition=partition, timestamp_ms=1000 + n)
        for n in values
    ]
    await asyncio.wait_for(asyncio.gather(*sent), SECONDS)
    await producer.stop()


@asynccontextmanager
async def consumer_of(
    bootstrap: str, *topics: str, group: str | None = None, **config: Any
) -> AsyncIterator[Any]:
    settings = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "metadata_max_age_ms": 100,
        "heartbeat_interval_ms": 100,
        **config,
    }
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **settings)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def numbers(consumer: Any, count: int) -> list[int]:
    return [int(record.value) for record in await take_aiokafka(consumer, count)]


async def test_commit_and_resume_with_metadata(
    ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    await produce(ottla_broker.bootstrap, ottla_topic, range(10))
    partition = TopicPartition(ottla_topic, 0)
    async with consumer_of(ottla_broker.bootstrap, ottla_topic, group=group) as first:
        assert await numbers(first, 10) == list(range(10))
        await first.commit({partition: (4, "état")})
    async with consumer_of(ottla_broker.bootstrap, ottla_topic, group=group) as second:
        assert await numbers(second, 6) == [4, 5, 6, 7, 8, 9]
        assert await second.committed(partition) == 4


async def test_positions(ottla_broker: EmbeddedBroker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await produce(ottla_broker.bootstrap, topic, range(5), 0)
    await produce(ottla_broker.bootstrap, topic, range(100, 105), 1)
    async with consumer_of(ottla_broker.bootstrap) as consumer:
        consumer.assign([first, second])
        assert sorted(await numbers(consumer, 10)) == [*range(5), *range(100, 105)]
        consumer.seek(first, 3)
        assert await numbers(consumer, 2) == [3, 4]
        consumer.pause(first)
        consumer.seek(first, 0)
        consumer.seek(second, 4)
        assert await numbers(consumer, 1) == [104]
        consumer.resume(first)
        assert await numbers(consumer, 5) == list(range(5))
        await consumer.seek_to_end(first)
        assert await consumer.position(first) == 5
        assert await consumer.beginning_offsets([first]) == {first: 0}
        assert await consumer.end_offsets([first, second]) == {first: 5, second: 5}
        found = await consumer.offsets_for_times({first: 1003, second: 9_999_999})
        assert (found[first].offset, found[first].timestamp) == (3, 1003)
        assert found[second] is None


async def test_out_of_range(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    await produce(ottla_broker.bootstrap, ottla_topic, range(3))
    async with consumer_of(ottla_broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(ottla_topic, 0)])
        consumer.seek(TopicPartition(ottla_topic, 0), 99)
        with pytest.raises(OffsetOutOfRangeError):
            await asyncio.wait_for(consumer.getone(), SECONDS)


async def test_regex_subscription_sees_new_topics(ottla_broker: EmbeddedBroker, group: str) -> None:
    names = [f"aio-{group}-{n}" for n in range(2)]
    ottla_broker.create_topic(names[0])
    await produce(ottla_broker.bootstrap, names[0], range(2))
    async with consumer_of(ottla_broker.bootstrap, group=group) as consumer:
        consumer.subscribe(pattern=f"^aio-{group}-.*")
        assert await numbers(consumer, 2) == [0, 1]
        await consumer.commit()
        ottla_broker.create_topic(names[1])
        await produce(ottla_broker.bootstrap, names[1], range(10, 12))
        assert await numbers(consumer, 2) == [10, 11]


async def test_a_long_poll_is_woken(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    async with consumer_of(ottla_broker.bootstrap, fetch_max_wait_ms=60_000) as consumer:
        consumer.assign([TopicPartition(ottla_topic, 0)])
        waiting = asyncio.ensure_future(consumer.getone())
        await produce(ottla_broker.bootstrap, ottla_topic, range(7, 8))
        record = await asyncio.wait_for(waiting, SECONDS)
        assert record.value == b"7"


async def test_acks_0_and_idempotence(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    for settings in ({"acks": 0}, {"acks": 1}, {"enable_idempotence": True}):
        producer = AIOKafkaProducer(bootstrap_servers=ottla_broker.bootstrap, **settings)
        await producer.start()
        await producer.send_and_wait(ottla_topic, str(settings).encode())
        await producer.stop()
    async with consumer_of(ottla_broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(ottla_topic, 0)])
        assert len(await take_aiokafka(consumer, 3)) == 3


async def test_admin(ottla_broker: EmbeddedBroker, group: str) -> None:
    name = f"aio-admin-{group}"
    admin = AIOKafkaAdminClient(bootstrap_servers=ottla_broker.bootstrap)
    await admin.start()
    created = await admin.create_topics([NewTopic(name, 2, 1)])
    assert created.topic_errors[0][:2] == (name, 0)
    again = await admin.create_topics([NewTopic(name, 2, 1)])
    assert again.topic_errors[0][:2] == (name, 36)
    assert name in await admin.list_topics()
    await admin.create_partitions({name: NewPartitions(3)})
    (described,) = await admin.describe_topics([name])
    assert len(described["partitions"]) == 3
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "4321"})
    await admin.alter_configs([resource])
    (answer,) = await admin.describe_configs([resource])
    assert "4321" in str(answer)
    await produce(ottla_broker.bootstrap, name, range(5))
    partition = TopicPartition(name, 0)
    async with consumer_of(ottla_broker.bootstrap, name, group=group) as consumer:
        await numbers(consumer, 5)
        await consumer.commit({partition: OffsetAndMetadata(5, "")})
        assert group in {found[0] for found in await admin.list_consumer_groups()}
        (described,) = await admin.describe_consumer_groups([group])
        assert "Stable" in str(described)
    offsets = await admin.list_consumer_group_offsets(group)
    assert offsets[partition].offset == 5
    assert await admin.delete_records({partition: RecordsToDelete(before_offset=2)}) == {
        partition: 2
    }
    await admin.delete_topics([name])
    assert name not in await admin.list_topics()
    await admin.close()


async def test_clients_live_through_a_restart(tmp_path: Path, group: str) -> None:
    port = free_port()
    async with EmbeddedBroker(tmp_path, port=port) as broker:
        await asyncio.to_thread(broker.create_topic, "t")
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        await producer.start()
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            # Its `stop` repeats the last commit for ever if it has not found the coordinator again.
            enable_auto_commit=False,
        )
        await consumer.start()
        sent = [await producer.send("t", b"%d" % number) for number in range(50)]
        found = set(await numbers(consumer, 50))
    sent += [await producer.send("t", b"%d" % number) for number in range(50, 100)]
    async with EmbeddedBroker(tmp_path, port=port):
        metadata = await asyncio.wait_for(asyncio.gather(*sent), SECONDS)
        assert [record.offset for record in metadata] == list(range(100))
        async with asyncio.timeout(SECONDS):
            while found != set(range(100)):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found.update(int(record.value) for record in records)
        await consumer.stop()
        await producer.stop()
