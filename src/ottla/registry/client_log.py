"""`_schemas` on any Kafka cluster, as the registry's runtime sees it: a log over the client.

Only one process writes the topic. Kafka sees to that: every write is a transaction of one
transactional id, and a registry that starts fences the one before it, and reads all that was
committed. One that was fenced writes nothing any more (`lost` is set), and its process ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError
from ottla.client.producer.producer import Producer
from ottla.client.reader.reader import Reader
from ottla.client.transactions.types import ProducerFenced
from ottla.coordination.machine import Batch
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ottla.client.security import Security
    from ottla.coordination.machine import Transaction

MAX_RECORD: Final = 16 * 1024 * 1024
"""A schema of the largest size, as JSON within JSON."""
CONFIGS: Final = {"cleanup.policy": "compact", "max.message.bytes": str(MAX_RECORD)}


class ClientLog:
    """The `CoordinatorLog` of one partition, with index 0."""

    def __init__(self, bootstrap: str, topic: str, security: Security) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._security = security
        self._producer = Producer(
            bootstrap,
            client_id="ottla-registry",
            security=security,
            max_request_size=2 * MAX_RECORD,
            delivery_timeout_ms=30_000,
            transactional_id=f"ottla-registry-{topic}",
        )
        self.lost = asyncio.Event()
        """Another registry has taken over."""

    async def open(self) -> None:
        """Make the topic if it is not there, and fence whoever wrote it before."""
        async with Admin(self._bootstrap, security=self._security) as admin:
            try:
                await admin.create_topic(self._topic, 1, configs=CONFIGS)
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        async with self._producer.transaction():
            pass

    async def close(self) -> None:
        await self._producer.close()

    def check(self, partition: int, transaction: Transaction) -> None:
        raise AssertionError("requests of the registry belong to no transaction")

    async def append(self, partition: int, batches: Sequence[Batch], wall_ms: int) -> None:
        try:
            async with self._producer.transaction():
                for batch in batches:
                    for key, value in batch.records:
                        await self._producer.send(
                            self._topic, value, key=key, timestamp_ms=wall_ms, partition=0
                        )
        except ProducerFenced:
            self.lost.set()
            raise

    async def replay(self, partition: int) -> AsyncIterator[Sequence[Batch]]:
        async with Reader(
            self._bootstrap,
            self._topic,
            partitions=[0],
            stop="latest",
            isolation_level="read_committed",
            security=self._security,
        ) as reader:
            while records := await reader.read_many():
                yield [Batch([(one.key, one.value) for one in records if one.key is not None])]
