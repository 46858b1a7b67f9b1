"""The cluster client against librdkafka's mock cluster of three brokers, and Ottla's broker.

The mock ends a flexible Metadata answer with one byte too many, which this client takes for a
broken protocol; so Metadata stays below version 9 there. The mock also answers a Produce with
acks=0, which no broker does, and keeps only a few megabytes; so records are sent to Ottla's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assignment

from ottla.client.cluster.cluster import Client, Coordinator, together
from ottla.client.cluster.view import TopicPartition
from ottla.wire.records import Record
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.build import build_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ottla.testing.embedded import EmbeddedBroker

METADATA = 3
PRODUCE_WITH_NAMES = 12


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The addresses of the mock's brokers, which live as long as the producer that made them."""
    producer = Producer(
        {"bootstrap.servers": "ignored:1", "test.mock.num.brokers": 3, "log_level": 0}
    )
    brokers = producer.list_topics(timeout=20.0).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in brokers)
    producer.flush(20.0)


@pytest.fixture
async def client(bootstrap: str) -> AsyncIterator[Client]:
    async with Client(bootstrap, max_versions={METADATA: 8}) as client:
        yield client


def produce_request(partition: TopicPartition, value: bytes, acks: int) -> ProduceRequest:
    batch = build_batch([Record(0, 1_700_000_000_000, None, value, ())])
    data = PartitionProduceData(partition.partition, batch)
    topic = TopicProduceData(partition.topic, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


async def end_of(client: Client, partition: TopicPartition) -> int:
    topic = ListOffsetsTopic(
        partition.topic, [ListOffsetsPartition(partition.partition, timestamp=-1)]
    )
    answer: ListOffsetsResponse = await client.send(
        ListOffsetsRequest(replica_id=-1, topics=[topic]), to=partition
    )
    [found] = answer.topics[0].partitions
    assert found.error_code == 0
    return found.offset


async def test_every_partition_is_served_by_its_leader(client: Client) -> None:
    # The mock chooses leaders by chance: the four partitions of one topic have one in 1 of 27 runs.
    names = [f"spread-{number}" for number in range(4)]
    view = await client.refresh(names, create_missing=True)
    assert len(view.brokers) == 3
    partitions = [
        TopicPartition(name, one.index) for name in names for one in view.topics[name].partitions
    ]
    assert len({await client.leader_of(one) for one in partitions}) > 1

    async def produce(partition: TopicPartition) -> int:
        answer: ProduceResponse = await client.send(
            produce_request(partition, b"v", acks=-1), to=partition, max_version=PRODUCE_WITH_NAMES
        )
        return answer.responses[0].partition_responses[0].error_code

    # A broker that does not lead a partition would answer with an error.
    assert await together(produce(one) for one in partitions) == [0] * len(partitions)
    assert await together(end_of(client, one) for one in partitions) == [1] * len(partitions)


async def test_the_coordinator_is_found_with_the_old_question(client: Client) -> None:
    connection = await client.connection_to(Coordinator("some-group"))
    assert connection.versions[10] == (0, 3)
    assert await client.coordinator_of(Coordinator("some-group")) in client.view.brokers


async def test_requests_overlap_and_large_records_arrive_whole(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    partition = TopicPartition(ottla_topic, 0)
    values = [bytes([number]) * 900_000 for number in range(8)]
    requests = [produce_request(partition, value, acks=-1) for value in values]
    async with Client(ottla_broker.bootstrap) as client:
        answers = await together(
            client.send(one, to=partition, max_version=PRODUCE_WITH_NAMES) for one in requests
        )
    offsets = [one.responses[0].partition_responses[0].base_offset for one in answers]
    assert offsets == list(range(8))

    consumer = Consumer({"bootstrap.servers": ottla_broker.bootstrap, "group.id": ottla_topic})
    consumer.assign([Assignment(ottla_topic, 0, 0)])
    found = await asyncio.to_thread(consumer.consume, 8, 30.0)
    assert [one.value() for one in found] == values
    await asyncio.to_thread(consumer.close)


async def test_records_without_an_answer_arrive_too(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    partition = TopicPartition(ottla_topic, 0)
    async with Client(ottla_broker.bootstrap) as client:
        connection = await client.connection_to(partition)
        version = connection.pick_version(0, high=PRODUCE_WITH_NAMES)
        for _ in range(3):
            connection.send_unanswered(produce_request(partition, b"v", acks=0), version)
        # The end that readers see follows when the records are safe; acks=-1 waits for that.
        last = produce_request(partition, b"v", acks=-1)
        answer: ProduceResponse = await connection.send(last, version)
        assert answer.responses[0].partition_responses[0].base_offset == 3
        assert await end_of(client, partition) == 4
