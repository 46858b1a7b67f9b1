"""A topic and the share group that works on it, through public names alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ottla import Admin, Producer, ShareConsumer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla import ShareGroupDescription, ShareRecord

PATIENCE: Final = 30.0  # for what must come; no test waits for it to pass

QUICK: Final = {
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.session.timeout.ms": "300",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.size": "3",
}
"""Broker settings with which heartbeats, sessions and locks can be short."""


class Queue:
    """What the tests of the share consumer do again and again."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, group

    def consumer(self, **options: Any) -> ShareConsumer:
        """A consumer that starts at the beginning; options are the ShareConsumer's."""
        chosen = {"topics": [self.topic], "auto_offset_reset": "earliest", **options}
        return ShareConsumer(self.bootstrap, group=self.group, **chosen)

    def explicit(self, **options: Any) -> ShareConsumer:
        return self.consumer(ack_mode="explicit", **options)

    async def produce(self, count: int) -> None:
        """Records with the values 0, 1, ... in partition 0, in batches of one record."""
        async with Producer(self.bootstrap) as producer:
            for number in range(count):
                await producer.send(self.topic, str(number).encode(), partition=0)

    async def set(self, **settings: str) -> None:
        """Settings of the group, with underscores for dots."""
        async with Admin(self.bootstrap) as admin:
            named = {key.replace("_", "."): value for key, value in settings.items()}
            await admin.alter_configs("group", self.group, named)

    async def described(self) -> ShareGroupDescription:
        async with Admin(self.bootstrap) as admin:
            [found] = await admin.describe_share_groups([self.group])
            return found

    async def members(self) -> list[str]:
        """Ids of the members."""
        return [one.id for one in (await self.described()).members]

    async def lag(self) -> int | None:
        """Records of partition 0 that are not settled: the group will deliver them (again)."""
        async with Admin(self.bootstrap) as admin:
            found = await admin.list_share_group_offsets(self.group)
            return next(one.lag for one in found if (one.topic, one.partition) == (self.topic, 0))


async def poll_until(consumer: ShareConsumer, wanted: int) -> list[ShareRecord]:
    """Records until there are this many."""
    found: list[ShareRecord] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < wanted:
            found += await consumer.poll(timeout=1.0)
    return found


def offsets(records: Sequence[ShareRecord]) -> list[int]:
    return [record.offset for record in records]
