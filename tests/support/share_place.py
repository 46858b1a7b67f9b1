"""A topic with a share group that reads it from its start, on a broker that may be Apache Kafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import ottla
from ottla import Admin, ShareConsumer
from tests.support.names import fresh
from tests.support.share_workers import produce_numbers

if TYPE_CHECKING:
    from ottla.client.share.types import ShareRecord

PATIENCE: Final = 30.0


class Place:
    """A topic and its group; `options` are those of the ShareConsumer."""

    def __init__(self, bootstrap: str, topic: str | None = None) -> None:
        self.bootstrap = bootstrap
        self.topic = topic or fresh("share-client")
        self.group = f"group-of-{self.topic}"

    def consumer(self, **options: Any) -> ottla.ShareConsumer:
        options = {"topics": [self.topic], "auto_offset_reset": "earliest", **options}
        return ShareConsumer(self.bootstrap, group=self.group, **options)

    def explicit(self, **options: Any) -> ottla.ShareConsumer:
        return self.consumer(ack_mode="explicit", **options)

    async def create(self, partitions: int = 1) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.create_topic(self.topic, partitions=partitions)

    async def set_lock(self, milliseconds: int) -> None:
        async with Admin(self.bootstrap) as admin:
            lock = {"share.record.lock.duration.ms": str(milliseconds)}
            await admin.alter_configs("group", self.group, lock)

    async def produce(self, *numbers: int) -> None:
        await asyncio.to_thread(produce_numbers, self.bootstrap, self.topic, numbers)


async def poll_until(consumer: ottla.ShareConsumer, wanted: int) -> list[ShareRecord]:
    """Records until there are this many; a poll that hangs is a failure."""
    found: list[ShareRecord] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < wanted:
            found += await consumer.poll(timeout=1.0)
    return found


def numbers(records: list[ShareRecord]) -> list[int]:
    return [int(record.value or b"") for record in records]
