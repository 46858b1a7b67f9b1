"""What a consumer and a reader are asked while their fetch waits for records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla import Consumer, Producer, Reader, Timestamp, TopicPartition
from ottla.client.cluster.connection import Connection
from ottla.errors import ClientClosed
from ottla.wire.schema.fetch import FetchRequest

if TYPE_CHECKING:
    from ottla.testing.embedded import EmbeddedBroker

# The fetch waits so long for records that a question behind it has no answer in PATIENCE.
MAX_WAIT = 60.0
PATIENCE = 20.0


async def test_lag_does_not_wait_for_an_open_fetch(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    async with Producer(ottla_broker.bootstrap) as producer:
        await producer.send(ottla_topic, b"v")
    async with (
        Consumer(
            ottla_broker.bootstrap, group=ottla_topic, topics=[ottla_topic], max_wait=MAX_WAIT
        ) as consumer,
        Reader(ottla_broker.bootstrap, ottla_topic, max_wait=MAX_WAIT) as reader,
        asyncio.timeout(PATIENCE),
    ):
        assert len(await consumer.poll(timeout=10)) == 1
        assert (await anext(reader)).num_rows == 1
        # Nothing more comes, so the next fetch waits at the broker.
        assert await consumer.poll(timeout=0.05) == []
        assert await consumer.lag() == {TopicPartition(ottla_topic, 0): 0}
        assert await reader.lag() == {0: 0}


async def test_lag_needs_an_open_client(ottla_broker: EmbeddedBroker, ottla_topic: str) -> None:
    consumer = Consumer(ottla_broker.bootstrap, group=ottla_topic, topics=[ottla_topic])
    reader = Reader(ottla_broker.bootstrap, ottla_topic)
    for one in (consumer, reader):
        with pytest.raises(ClientClosed, match="not open"):
            await one.lag()
        async with one:
            await one.lag()
        with pytest.raises(ClientClosed, match="not open"):
            await one.lag()


async def test_records_and_seeks_do_not_wait_for_an_open_fetch(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    """The first call for records reads once more, with headers, what was read ahead without."""
    async with Producer(ottla_broker.bootstrap) as producer:
        await producer.send(ottla_topic, b"v")
    async with (
        Reader(ottla_broker.bootstrap, ottla_topic, max_wait=MAX_WAIT) as reader,
        asyncio.timeout(PATIENCE),
    ):
        for place in (None, 0, "earliest", Timestamp(0)):
            # The fetch behind the record waits at the broker.
            while reader._planner.tracks[0].offset != 1 or not reader._planner._fetching:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if place is not None:
                await reader.seek(place)
            assert [record.value for record in await reader.read_many()] == [b"v"]


async def test_a_consumer_that_seeks_does_not_wait_for_an_open_fetch(
    ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    async with Producer(ottla_broker.bootstrap) as producer:
        await producer.send(ottla_topic, b"v")
    async with (
        Consumer(
            ottla_broker.bootstrap, group=ottla_topic, topics=[ottla_topic], max_wait=MAX_WAIT
        ) as consumer,
        asyncio.timeout(PATIENCE),
    ):
        for _ in range(3):
            assert [record.value for record in await consumer.poll(timeout=10)] == [b"v"]
            assert await consumer.poll(timeout=0.05) == []
            await consumer.seek(TopicPartition(ottla_topic, 0), "earliest")


async def test_a_fetch_has_the_time_that_the_broker_may_wait(
    ottla_broker: EmbeddedBroker, ottla_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a quiet topic would look like a broker that does not answer."""
    times = []
    send = Connection.send

    async def watched(
        self: Connection, request: object, version: int, within: float = 0.0
    ) -> object:
        if isinstance(request, FetchRequest):
            times.append(within)
        return await send(self, request, version, within)

    monkeypatch.setattr(Connection, "send", watched)
    async with (
        Reader(ottla_broker.bootstrap, ottla_topic, max_wait=70, request_timeout=5),
        asyncio.timeout(PATIENCE),
    ):
        while not times:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert times == [75]
