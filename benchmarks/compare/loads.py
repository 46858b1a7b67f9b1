"""What `benchmarks.compare` measures: one program per load, run with the source tree it is given.

    PYTHONPATH=TREE/src python loads.py LOAD ADDRESS COUNT

Prints the processor seconds that this process used for COUNT records, in the best of some rounds;
a smaller round before them imports, compiles and fills caches. The file imports nothing but public
names of `ottla`, inside the loads, so that it runs with any tree that has them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WARM_UP: Final = 10  # the first round has this part of the records
ROUNDS: Final = 3  # others on the machine disturb a round, and only ever make it slower
SIZE: Final = 256
PARTITIONS: Final = 3
TOPIC: Final = "records"
VALUE: Final = b"v" * 100
KEYS: Final = 10_000
WAITING: Final = 30.0

Meter = list[float]
"""Processor seconds when the clock started, and when it stopped."""


def tick(meter: Meter) -> None:
    meter.append(time.process_time())


async def file_write(path: str, count: int, meter: Meter) -> None:
    from ottla.streams import ConnectOptions, Create, FileOptions, connect

    options = ConnectOptions(file=FileOptions(create=Create.IF_MISSING))
    payload = b"x" * SIZE
    file = f"{path}.{os.getpid()}"
    tick(meter)
    async with connect(f"file://{file}", options) as streamer, streamer.producer("bench") as p:
        for number in range(count):
            await p.send(payload)
            if number % 10_000 == 9_999:
                await p.flush()
    tick(meter)
    await asyncio.to_thread(Path(file).unlink)


async def file_read(path: str, count: int, meter: Meter) -> None:
    from ottla.streams import ConsumerOptions, Reset, connect

    options = ConsumerOptions(reset=Reset.EARLIEST)
    tick(meter)
    async with (
        connect(f"file://{path}") as streamer,
        streamer.consumer("bench", options=options) as consumer,
    ):
        async for message in consumer:
            assert len(message.payload) == SIZE
            count -= 1
            if not count:
                break
    tick(meter)


async def streams_kafka(bootstrap: str, count: int, meter: Meter) -> None:
    await _streams(f"kafka://{bootstrap}/{TOPIC}", "next", count, meter)


async def streams_redis_next(url: str, count: int, meter: Meter) -> None:
    await _streams(f"{url}/{TOPIC}", "next", count, meter)


async def streams_redis_rolling(url: str, count: int, meter: Meter) -> None:
    await _streams(f"{url}/{TOPIC}", "rolling", count, meter)


async def _streams(url: str, policy: str, count: int, meter: Meter) -> None:
    from ottla.streams import AutoCommit, ConsumerOptions, Mode, Reset, connect

    options = ConsumerOptions(
        mode=Mode.RESUMABLE,
        group=_new_name(),
        reset=Reset.EARLIEST,
        auto_commit=AutoCommit(policy),
    )
    async with connect(url) as streamer, streamer.consumer(options=options) as consumer:
        first = await consumer.next()
        if policy == "rolling":
            consumer.ack(first)
        count -= 1
        tick(meter)
        async for message in consumer:
            if policy == "rolling":
                consumer.ack(message)
            count -= 1
            if not count:
                break
        await consumer.commit()
        tick(meter)


async def send_arrow(bootstrap: str, count: int, meter: Meter) -> None:
    import pyarrow as pa

    await _send_arrow(bootstrap, pa.table({"value": pa.array([VALUE] * count, pa.binary())}), meter)


async def send_arrow_keyed(bootstrap: str, count: int, meter: Meter) -> None:
    import pyarrow as pa

    keys = pa.array([b"key-%d" % (number % KEYS) for number in range(count)], pa.binary())
    values = pa.array([VALUE] * count, pa.binary())
    await _send_arrow(bootstrap, pa.table({"key": keys, "value": values}), meter)


async def _send_arrow(bootstrap: str, table: Any, meter: Meter) -> None:
    from ottla import Admin, Producer

    topic = _new_name()
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, partitions=PARTITIONS)
        await producer.connect()
        tick(meter)
        await producer.send_arrow(topic, table)
        tick(meter)


async def send_one_by_one(bootstrap: str, count: int, meter: Meter) -> None:
    from ottla import Admin, Producer

    topic = _new_name()
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, partitions=PARTITIONS)
        await producer.send(topic, VALUE)
        tick(meter)
        for _ in range(count):
            await producer.send(topic, VALUE)
        tick(meter)


async def reader(bootstrap: str, count: int, meter: Meter) -> None:
    from ottla import Reader

    tick(meter)
    async with Reader(bootstrap, TOPIC, start="earliest", stop="latest") as source:
        async for batch in source:
            count -= batch.num_rows
            if count <= 0:
                break
    tick(meter)


async def consumer_arrow(bootstrap: str, count: int, meter: Meter) -> None:
    from ottla import Consumer

    group = _new_name()
    async with Consumer(bootstrap, group=group, topics=[TOPIC], auto_commit=False) as consumer:
        async for batch in consumer.batches():
            if not meter:
                tick(meter)
            count -= batch.num_rows
            if count <= 0:
                break
        tick(meter)


async def consumer_records(bootstrap: str, count: int, meter: Meter) -> None:
    from ottla import Consumer

    group = _new_name()
    async with Consumer(bootstrap, group=group, topics=[TOPIC], auto_commit=False) as consumer:
        async for record in consumer:
            if not meter:
                tick(meter)
            _ = (record.key, record.value, record.offset, record.timestamp_ms)
            count -= 1
            if not count:
                break
        tick(meter)


async def share_arrow(bootstrap: str, count: int, meter: Meter) -> None:
    async def columns(consumer: Any) -> None:
        left = count
        while left > 0:
            left -= (await consumer.poll_arrow()).num_rows

    await _share(bootstrap, "implicit", columns, meter)


async def share_records(bootstrap: str, count: int, meter: Meter) -> None:
    async def records(consumer: Any) -> None:
        left = count
        while left > 0:
            for record in await consumer.poll():
                _ = (record.key, record.value, record.offset, record.delivery_count)
                consumer.acknowledge(record)
                left -= 1

    await _share(bootstrap, "explicit", records, meter)


async def _share(
    bootstrap: str, mode: Any, work: Callable[[Any], Awaitable[None]], meter: Meter
) -> None:
    """Each round is a group of its own, whose member is assigned before the clock starts."""
    from ottla import Admin, ShareConsumer

    group = _new_name()
    async with Admin(bootstrap) as admin:
        await admin.alter_share_group_offsets(
            group, {(TOPIC, number): 0 for number in range(PARTITIONS)}
        )
        async with ShareConsumer(bootstrap, group=group, topics=[TOPIC], ack_mode=mode) as consumer:
            async with asyncio.timeout(WAITING):
                while True:
                    [found] = await admin.describe_share_groups([group])
                    if any(member.assignment for member in found.members):
                        break
                    await asyncio.sleep(0.05)
            tick(meter)
            await work(consumer)
            await consumer.commit()
            tick(meter)


def _new_name() -> str:
    return f"compare-{os.getpid()}-{time.monotonic_ns()}"


LOADS: Final[dict[str, Callable[[str, int, Meter], Awaitable[None]]]] = {
    load.__name__: load
    for load in (
        file_write,
        file_read,
        streams_kafka,
        streams_redis_next,
        streams_redis_rolling,
        send_arrow,
        send_arrow_keyed,
        send_one_by_one,
        reader,
        consumer_arrow,
        consumer_records,
        share_arrow,
        share_records,
    )
}


async def _run(name: str, address: str, count: int) -> float:
    await LOADS[name](address, max(count // WARM_UP, 1), [])
    spent = []
    for _ in range(ROUNDS):
        gc.collect()
        meter: Meter = []
        await LOADS[name](address, count, meter)
        began, ended = meter
        spent.append(ended - began)
    return min(spent)


if __name__ == "__main__":
    print(asyncio.run(_run(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
