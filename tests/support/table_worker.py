"""Tables for tests of readers: topics filled by hand, and a worker that takes what is there."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.tables.settings import worker_settings
from ottla.tables.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ottla.testing.embedded import EmbeddedBroker

_numbers = count(1)

DAY_MS = 86_400_000
NOON = 20_406 * DAY_MS + DAY_MS // 2
"""2025-11-14, 12:00 UTC."""


def new_topic(broker: EmbeddedBroker, partitions: int = 1, **configs: str) -> str:
    """A topic that is kept as a table; underscores in the names of settings stand for dots.

    Its records are a year old (`NOON`), so no retention: a broker looks every five minutes.
    """
    name = f"orders{next(_numbers)}"
    settings = {f"ottla.table.{key.replace('_', '.')}": value for key, value in configs.items()}
    broker.create_topic(
        name,
        partitions=partitions,
        configs={"ottla.table.enable": "true", "retention.ms": "-1", **settings},
    )
    return name


def send(broker: EmbeddedBroker, topic: str, records: Iterable[ProducerRecord]) -> None:
    """Write records."""

    async def run() -> None:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many(topic, list(records))

    asyncio.run(run())


def fill(
    broker: EmbeddedBroker, topic: str, numbers: Iterable[int], *, partitions: int = 1
) -> None:
    """Records `n` a second apart, from NOON on, over the partitions in turn."""
    send(
        broker,
        topic,
        [
            ProducerRecord(
                b"%d" % n, b"key %d" % n, partition=n % partitions, timestamp_ms=NOON + n * 1000
            )
            for n in numbers
        ],
    )


def take(
    broker: EmbeddedBroker, directory: Path, *topics: str, store: Mapping[str, str] | None = None
) -> None:
    """Let a worker take what is there now; each call is another worker.

    `store` are `rsm.config.*` keys of another warehouse than a directory.
    """
    options = dict(store or {})
    settings = worker_settings(
        options.pop("rsm.config.url", f"file://{directory}/warehouse/"),
        f"sqlite:///{directory}/tables.db",
        "ottla",
        options,
    )

    async def run() -> None:
        async with Worker(broker.bootstrap, settings, topics=topics) as worker:
            await worker.run_once()

    asyncio.run(run())
