"""Copying one stream to another: at least once, in order, resumable with an offset store.

A batch is acknowledged when the other side has given a receipt for each of its messages. SIGINT
and SIGTERM end the relay after the batch that is underway, with its positions committed.
"""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.streams.base import Operation
from ottla.streams.errors import ConfigError, StreamEnded
from ottla.streams.streamer import connect
from ottla.streams.types import (
    BEGINNING,
    END,
    AutoCommit,
    Backend,
    ConnectOptions,
    ConsumerOptions,
    Create,
    FileOptions,
    Mode,
    Reset,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.offsets import OffsetStore
    from ottla.streams.consumer import Consumer
    from ottla.streams.producer import Producer
    from ottla.streams.streamer import Streamer
    from ottla.streams.types import Message

BATCH = 1000
WAIT = 0.2
"""Seconds a batch waits for its first message: how long a signal may go unnoticed."""

CREATING = ConnectOptions(file=FileOptions(create=Create.IF_MISSING))


@dataclass
class Tally:
    """What was relayed so far."""

    total: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started

    @property
    def rate(self) -> float:
        """Messages a second, over all."""
        return self.total / max(self.seconds, 1e-9)


async def relay_streams(
    input_url: str,
    output_url: str,
    *,
    from_start: bool = True,
    until_end: bool = False,
    offsets: OffsetStore | None = None,
    name: str = "ottla-relay",
    tally: Tally | None = None,
    show: Callable[[Tally], None] | None = None,
) -> None:
    """Copy until the input ends (or is read up to its end now), or a signal comes."""
    tally = tally or Tally()
    if input_url == output_url and not input_url.startswith("stdio:"):
        raise ConfigError("input and output are the same stream; name another --output")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        async with (
            connect(input_url, ConnectOptions(file=FileOptions(follow=not until_end))) as source,
            connect(output_url, CREATING) as target,
            source.consumer(options=_options(source, offsets, name, from_start)) as consumer,
            target.producer() as producer,
        ):
            copy = _Copy(consumer, producer, frozenset(target.driver.unsupported))
            await copy.run(tally, stop, until_end=until_end, show=show)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _options(
    source: Streamer, offsets: OffsetStore | None, name: str, from_start: bool
) -> ConsumerOptions:
    unsupported = source.driver.unsupported
    reset = Reset.EARLIEST if from_start and Operation.EARLIEST not in unsupported else Reset.LATEST
    if offsets is None:
        return ConsumerOptions(reset=reset)
    return ConsumerOptions(
        mode=Mode.RESUMABLE,
        group=name,
        reset=reset,
        start_position=BEGINNING if from_start else END,
        auto_commit=AutoCommit.DISABLED,
        offsets=offsets,
    )


class _Copy:
    """From a consumer to a producer; keys and headers go along where the target can keep them."""

    def __init__(self, consumer: Consumer, producer: Producer, unsupported: frozenset[Operation]):
        self._consumer = consumer
        self._producer = producer
        self._keys = Operation.MESSAGE_KEYS not in unsupported
        self._headers = Operation.HEADERS not in unsupported

    async def run(
        self,
        tally: Tally,
        stop: asyncio.Event,
        *,
        until_end: bool,
        show: Callable[[Tally], None] | None,
    ) -> None:
        consumer = self._consumer
        while not stop.is_set():
            try:
                messages = await consumer.batch(BATCH, WAIT)
            except StreamEnded:
                return
            if messages:
                await self._deliver(messages)
                tally.total += len(messages)
                if consumer.options.offsets is not None:
                    for message in messages:
                        consumer.ack(message)
                    await consumer.commit()
            elif until_end and await self._caught_up():
                return
            if show is not None:
                show(tally)

    async def _deliver(self, messages: Sequence[Message]) -> None:
        deliveries = [
            await self._producer.send(
                message.payload,
                stream=self._producer.stream or message.stream,
                key=message.key if self._keys else None,
                headers=message.headers if self._headers else (),
            )
            for message in messages
        ]
        for delivery in deliveries:
            await delivery

    async def _caught_up(self) -> bool:
        """Nothing came for a while: whether that was the end. A pipe's end comes by itself."""
        if self._consumer.backend is Backend.STDIO:
            return False
        return all(not behind for behind in (await self._consumer.lag()).values())


async def tick(output_url: str, interval: float, count: int | None) -> None:
    """Send `tick-N` every interval."""
    async with connect(output_url, CREATING) as streamer, streamer.producer() as producer:
        number = 0
        while count is None or number < count:
            await (await producer.send(f"tick-{number}"))
            number += 1
            if number != count:
                await asyncio.sleep(interval)
