"""A source's backend without Spark around it: rows from the plan, topics filled by hand."""

from __future__ import annotations

import asyncio
import pickle
from itertools import count
from typing import TYPE_CHECKING, Any

from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.spark.log.backend import LogBackend
from ottla.spark.options import Mode, parse_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.spark.backend import Offset
    from ottla.testing.embedded import EmbeddedBroker

_numbers = count(1)

Row = tuple[int, int, bytes | None]


def new_topic(broker: EmbeddedBroker, partitions: int = 1, **configs: str) -> str:
    """An empty topic; underscores in the names of settings stand for dots."""
    name = f"spark-{next(_numbers)}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    broker.create_topic(name, partitions=partitions, configs=settings)
    return name


def fill(
    broker: EmbeddedBroker, topic: str, counts: Mapping[int, int], *, timestamp: int | None = None
) -> None:
    """So many records into each partition; each value names its partition and its number there."""

    async def send() -> None:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many(
                topic,
                [
                    ProducerRecord(
                        f"{partition}:{number}".encode(),
                        timestamp_ms=timestamp,
                        partition=partition,
                    )
                    for partition, amount in counts.items()
                    for number in range(amount)
                ],
            )

    asyncio.run(send())


def delete_below(broker: EmbeddedBroker, topic: str, partition: int, offset: int) -> None:
    """As retention does."""

    async def delete() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_records({(topic, partition): offset})

    asyncio.run(delete())


def backend(broker: EmbeddedBroker, mode: Mode = "stream", /, **options: str) -> LogBackend:
    """A backend with these options; one made like this again is another process to it."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    return LogBackend(
        parse_source(
            {"kafka.bootstrap.servers": broker.bootstrap, "longPollMs": "20", **given}, mode
        )
    )


def rows(source: LogBackend, start: Offset, end: Offset) -> list[Row]:
    """What a batch reads, by partition and offset; tasks travel as they do in Spark."""
    return sorted(
        row
        for task in pickle.loads(pickle.dumps(source.plan(start, end)))
        for row in task_rows(source, task)
    )


def task_rows(source: LogBackend, task: object) -> list[Row]:
    """What one task reads."""
    found = []
    for batch in source.read(task, ("partition", "offset", "value")):
        columns: Sequence[Any] = [column.to_pylist() for column in batch.columns]
        found += list(zip(*columns, strict=True))
    return found


def values(counts: Mapping[int, tuple[int, int]]) -> list[Row]:
    """The rows of partitions that `fill` has filled once, from one offset up to another."""
    return [
        (partition, number, f"{partition}:{number}".encode())
        for partition, (first, end) in counts.items()
        for number in range(first, end)
    ]
