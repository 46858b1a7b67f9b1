"""Share groups for Spark: a broker with short locks, groups of a test's own, another member."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

from ottla.client.admin.admin import Admin
from ottla.client.share.consumer import ShareConsumer
from ottla.spark.background import background
from ottla.spark.options import parse_source
from ottla.spark.share.backend import ShareBackend
from tests.support.share_member import SHARE_CONFIG

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.client.share.types import ShareRecord
    from ottla.spark.backend import Offset

BROKER_CONFIG: Final = {
    **SHARE_CONFIG,
    "group.share.max.partition.max.record.locks": "1000000",
}
_numbers = count(1)

Row = tuple[int, int, int]  # partition, offset, delivery count


def new_group(bootstrap: str, **configs: str) -> str:
    """A group that reads from the start; underscores in the names of settings stand for dots."""
    name = f"spark-share-{next(_numbers)}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}

    async def alter() -> None:
        async with Admin(bootstrap) as admin:
            wanted = {"share.auto.offset.reset": "earliest", **settings}
            await admin.alter_configs("group", name, wanted)

    asyncio.run(alter())
    return name


def lags(bootstrap: str, group: str) -> dict[int, int | None]:
    """What still has to be delivered for good, by partition."""

    async def ask() -> dict[int, int | None]:
        async with Admin(bootstrap) as admin:
            found = await admin.list_share_group_offsets(group)
            return {one.partition: one.lag for one in found}

    return asyncio.run(ask())


def group_config(bootstrap: str, group: str, name: str) -> str | None:
    """A setting of a group as it is now."""

    async def ask() -> str | None:
        async with Admin(bootstrap) as admin:
            [found] = await admin.describe_configs("group", group, [name])
            return found.value

    return asyncio.run(ask())


@asynccontextmanager
async def member(bootstrap: str, group: str, topic: str) -> AsyncIterator[ShareConsumer]:
    """Somebody else in the group, who decides about each record."""
    async with ShareConsumer(
        bootstrap, group=group, topics=[topic], ack_mode="explicit"
    ) as consumer:
        yield consumer


def take(bootstrap: str, group: str, topic: str, seconds: float = 1.0) -> list[ShareRecord]:
    """What another member is given within a while; it goes back to the group."""

    async def poll() -> list[ShareRecord]:
        async with member(bootstrap, group, topic) as consumer:
            found = await consumer.poll(seconds)
            for record in found:
                consumer.acknowledge(record, "release")
            return found

    return asyncio.run(poll())


def share_backend(bootstrap: str, group: str, topic: str, **options: str) -> ShareBackend:
    """A process of a query, as far as the broker can tell."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    parsed = parse_source(
        {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "shareGroup": group,
            "longPollMs": "2000",
            **given,
        },
        "stream",
    )
    assert parsed.share is not None
    return ShareBackend(parsed, parsed.share)


def rows(source: ShareBackend, start: Offset, end: Offset) -> list[Row]:
    """What a batch reads."""
    found: list[Row] = []
    for task in source.plan(start, end):
        for batch in source.read(task, ("partition", "offset", "deliveryCount")):
            columns = [column.to_pylist() for column in batch.columns]
            found += list(zip(*columns, strict=True))
    return sorted(found)


def kill(source: ShareBackend) -> None:
    """End a process without a word: its connections close, nothing is said on them."""

    async def end() -> None:
        assert source._renewing is not None
        assert source._queue is not None
        assert source._client is not None
        source._renewing.cancel()
        await source._queue._member.stop()
        await source._client.close()
        if source._verdict_topic is not None:
            await source._verdict_topic.close()

    background().call(end())
    if source._cluster is not None:
        source._cluster.close()
