"""How far a consumer and a reader are behind: asked beside the fetch that waits for records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla import Consumer, Producer, Reader, TopicPartition
from ottla.errors import ClientClosed

if TYPE_CHECKING:
    from ottla.testing.embedded import EmbeddedBroker

# The fetch waits so long for records that a question behind it has no answer in PATIENCE.
MAX_WAIT = 10.0
PATIENCE = 5.0


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
