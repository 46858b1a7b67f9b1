"""Where streams are: a topic of the broker, a key of Redis, a file, a pair of pipes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final

from ottla.streams import (
    AutoCommit,
    ConnectOptions,
    ConsumerOptions,
    Create,
    FileOptions,
    KafkaOptions,
    Mode,
    RedisOptions,
    Reset,
    StdioOptions,
    connect,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from ottla import EmbeddedBroker
    from ottla.streams import Consumer, Message, Receipt, Streamer

PATIENCE: Final = 20.0  # seconds that a store gets for what takes milliseconds
SHORT: Final = 0.15  # seconds after which nothing more is expected

BACKENDS: Final = ("kafka", "redis", "file", "stdio")
STORES: Final = ("kafka", "redis", "file")
"""Those that keep what was sent."""
SERVERS: Final = ("kafka", "redis")
"""Those that keep positions."""

EARLIEST: Final = ConsumerOptions(reset=Reset.EARLIEST)
_numbers = count(1)


def new_name(kind: str = "stream") -> str:
    return f"{kind}-{next(_numbers)}"


def in_group(mode: Mode = Mode.LOAD_BALANCED, group: str | None = None) -> ConsumerOptions:
    """In a group, from the beginning, with acknowledgement by the user."""
    return ConsumerOptions(
        mode=mode,
        group=group or new_name("group"),
        reset=Reset.EARLIEST,
        auto_commit=AutoCommit.ROLLING,
        drain_timeout=0.1,
        # It hears of rebalances at once.
        kafka=KafkaOptions(extra={"heartbeat.interval.ms": 100, "fetch.wait.max.ms": 20}),
    )


@dataclass(frozen=True)
class Place:
    """A store and a stream in it."""

    backend: str
    url: str
    stream: str
    options: ConnectOptions
    broker: EmbeddedBroker | None = None

    def connect(self) -> Streamer:
        return connect(self.url, self.options)

    def another_stream(self) -> str:
        """A second stream of the same store."""
        name = new_name()
        if self.broker is not None:
            self.broker.create_topic(name)
        return name

    def with_shards(self, shards: int) -> Place:
        """The same store, and a stream of so many shards."""
        name = new_name()
        if self.broker is not None:
            self.broker.create_topic(name, partitions=shards)
        return replace(self, stream=name)


def place(backend: str, where: str, broker: EmbeddedBroker | None = None) -> Place:
    """A place with a new stream."""
    stream = new_name()
    if broker is not None:
        broker.create_topic(stream)
    options = ConnectOptions(
        # A seek waits for a fetch that is under way. Producers would warn of that setting.
        kafka=KafkaOptions(extra={"fetch.wait.max.ms": 20, "log_level": 3}),
        redis=RedisOptions(mkstream=True, block=0.5),
        file=FileOptions(create=Create.IF_MISSING),
        stdio=StdioOptions(loopback=True),
    )
    return Place(backend, where, stream, options, broker)


async def send(
    streamer: Streamer,
    stream: str,
    *payloads: str,
    shard: int | None = None,
    timestamps: Sequence[datetime] | None = None,
) -> list[Receipt]:
    """Send, and wait until all is with the store."""
    async with streamer.producer(stream) as producer:
        deliveries = [
            await producer.send(
                payload, shard=shard, timestamp=None if timestamps is None else timestamps[number]
            )
            for number, payload in enumerate(payloads)
        ]
        return [await one for one in deliveries]


async def send_everywhere(streamer: Streamer, to: Place, payloads: str) -> None:
    """The same letters twice, in two shards where shards are what members divide."""
    for shard in (0, 1):
        await send(streamer, to.stream, *payloads, shard=shard if to.backend == "kafka" else None)


async def take(consumer: Consumer, number: int) -> list[str]:
    """The texts of so many messages."""
    return [message.text() for message in await messages(consumer, number)]


async def messages(consumer: Consumer, number: int) -> list[Message]:
    """So many messages, acknowledged where the user does that."""
    found: list[Message] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < number:
            found += await consumer.batch(number - len(found), 1)
    if consumer.options.auto_commit in (AutoCommit.ROLLING, AutoCommit.DISABLED):
        for message in found:
            consumer.ack(message)
    return found


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Ask a server until it says so: it tells nobody."""
    async with asyncio.timeout(PATIENCE):
        while not await true():  # noqa: ASYNC110  # the same
            await asyncio.sleep(0.01)


async def nothing_more(consumer: Consumer) -> bool:
    """Whether no message comes for a while."""
    return await consumer.batch(1, SHORT) == []
