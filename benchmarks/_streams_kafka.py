"""Kafka rows of `benchmarks.streams`: our consumer against confluent-kafka's own asyncio consumer.

Both read the same topic of an Ottla broker to its end in a group of their own. The peer is the loop
its documentation shows, one `poll` per message.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.aio import AIOConsumer

from benchmarks._harness import ROUNDS, Row, Timing, faster
from benchmarks._ottla import OttlaProcess
from ottla.streams import ConsumerOptions, Mode, Reset, connect

TOPIC: Final = "records"
PAYLOAD: Final = b"v" * 256
AT_LEAST: Final = 2.0


def rows(messages: int, rounds: int = ROUNDS) -> list[Row]:
    """One row, from a broker in a process of its own."""
    with OttlaProcess() as broker:
        _fill(broker.bootstrap, messages)
        return asyncio.run(_rows(broker.bootstrap, messages, rounds))


def _fill(bootstrap: str, messages: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for _ in range(messages):
        while True:
            try:
                producer.produce(TOPIC, PAYLOAD)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


async def _rows(bootstrap: str, messages: int, rounds: int) -> list[Row]:
    ours, peer = [], []
    for turn in range(rounds + 1):
        gc.collect()
        peer.append(await _polled(bootstrap, f"peer-{turn}", messages))
        gc.collect()
        ours.append(await _ours(bootstrap, f"ours-{turn}", messages))
    # The first turn of each fills caches.
    timings = Timing(tuple(ours[1:])), Timing(tuple(peer[1:]))
    what = f"Kafka group, NEXT, {len(PAYLOAD)} bytes"
    return [faster(what, *timings, AT_LEAST, _rate(messages))]


async def _ours(bootstrap: str, group: str, messages: int) -> float:
    options = ConsumerOptions(mode=Mode.RESUMABLE, group=group, reset=Reset.EARLIEST)
    seen = 0
    async with (
        connect(f"kafka://{bootstrap}/{TOPIC}") as streamer,
        streamer.consumer(options=options) as consumer,
    ):
        await consumer.next()
        start = time.perf_counter()
        async for _ in consumer:
            seen += 1
            if seen == messages - 1:
                break
        return time.perf_counter() - start


async def _polled(bootstrap: str, group: str, messages: int) -> float:
    consumer = await _peer(bootstrap, group)
    seen = 0
    start = time.perf_counter()
    while seen < messages - 1:
        message = await consumer.poll(1.0)
        seen += message is not None and message.error() is None
    elapsed = time.perf_counter() - start
    await consumer.close()
    return elapsed


async def _peer(bootstrap: str, group: str) -> Any:
    """A consumer that has been given its partition and the first message."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer: Any = AIOConsumer(config)
    await consumer.subscribe([TOPIC])
    while await consumer.poll(1.0) is None:
        pass
    return consumer


def _rate(messages: int) -> Any:
    return lambda timing: f"{messages / timing.median / 1e3:.1f} k msg/s"
