"""The ShareConsumer against confluent-kafka's: the same broker, the same records, in turns.

    python -m benchmarks._share_rows [--quick]

Each turn is a group of its own that reads a topic from its beginning. The member joins first; the
clock runs from the first poll until every record has come and is accepted, and the lag is checked
to be nought. Both have their defaults, and both look at key, value, offset and count of a record.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from itertools import count
from typing import TYPE_CHECKING, Final

import confluent_kafka
from confluent_kafka import AcknowledgeType

from benchmarks._harness import Row, Timing, faster, rate, report
from benchmarks._ottla import OttlaProcess
from ottla import Admin, ShareConsumer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

QUICK: Final = "--quick" in sys.argv
RECORDS: Final = 200_000 if QUICK else 500_000
ROUNDS: Final = 3 if QUICK else 5
TOPIC: Final = "orders"
VALUE: Final = b"v" * 100
PATIENCE: Final = 60.0
AS_KAFKA: Final = {"ottla.flush.mode": "os"}

_groups = count(1)


def share_rows() -> list[Row]:
    """Columns with implicit acknowledgements, and records accepted one by one."""
    with OttlaProcess(AS_KAFKA) as broker:
        fill(broker.bootstrap)
        return [
            compare(
                broker.bootstrap,
                "ShareConsumer.poll_arrow, implicit, 100 B, peer confluent-kafka's ShareConsumer",
                columns,
                "implicit",
                2.0,
            ),
            compare(
                broker.bootstrap,
                "ShareConsumer, accept one by one, 100 B, peer confluent-kafka's, explicit",
                one_by_one,
                "explicit",
                0.7,
            ),
        ]


def compare(
    bootstrap: str,
    what: str,
    ours: Callable[[ShareConsumer], Awaitable[None]],
    mode: str,
    target: float,
) -> Row:
    """One row, in turns; the first turn of each fills caches."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(-1, ROUNDS):
        gc.collect()
        mine = asyncio.run(consume(bootstrap, ours, mode))
        gc.collect()
        peer = consume_with_peer(bootstrap, mode)
        if turn >= 0:
            seconds[0].append(mine)
            seconds[1].append(peer)
    return faster(what, Timing(tuple(seconds[0])), Timing(tuple(seconds[1])), target, rate(RECORDS))


def fill(bootstrap: str) -> None:
    """Write the records, and see that they are there."""
    asyncio.run(_create(bootstrap))
    settings = {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": RECORDS}
    producer = confluent_kafka.Producer({**settings, "linger.ms": 20, "batch.num.messages": 500})
    for number in range(RECORDS):
        producer.produce(TOPIC, VALUE, b"key-%04d" % (number % 10_000))
    assert producer.flush(120) == 0


async def _create(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC)


async def consume(
    bootstrap: str, work: Callable[[ShareConsumer], Awaitable[None]], mode: str
) -> float:
    """Seconds from the first poll to the last acknowledgement."""
    group = await _new_group(bootstrap)
    async with ShareConsumer(bootstrap, group=group, topics=[TOPIC], ack_mode=mode) as consumer:  # type: ignore[arg-type]  # one of the two
        await _assigned(bootstrap, group)
        began = time.perf_counter()
        await work(consumer)
        await consumer.commit()
        seconds = time.perf_counter() - began
    await _nothing_left(bootstrap, group)
    return seconds


async def columns(consumer: ShareConsumer) -> None:
    rows = 0
    while rows < RECORDS:
        rows += (await consumer.poll_arrow()).num_rows


async def one_by_one(consumer: ShareConsumer) -> None:
    rows = 0
    while rows < RECORDS:
        for record in await consumer.poll():
            _ = (record.key, record.value, record.offset, record.delivery_count)
            consumer.acknowledge(record)
            rows += 1


def consume_with_peer(bootstrap: str, mode: str) -> float:
    """The same with librdkafka."""
    group = asyncio.run(_new_group(bootstrap))
    consumer = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": mode,
            "log_level": 3,
        }
    )
    consumer.subscribe([TOPIC])
    asyncio.run(_assigned(bootstrap, group))
    began = time.perf_counter()
    rows = 0
    while rows < RECORDS:
        for record in consumer.poll(1.0):
            _ = (record.key(), record.value(), record.offset(), record.delivery_count())
            if mode == "explicit":
                consumer.acknowledge(record, AcknowledgeType.ACCEPT)
            rows += 1
    consumer.commit_sync(PATIENCE)
    seconds = time.perf_counter() - began
    consumer.close()
    asyncio.run(_nothing_left(bootstrap, group))
    return seconds


async def _new_group(bootstrap: str) -> str:
    """With its state made before it has members: they are assigned as they join."""
    group = f"bench-{next(_groups)}"
    async with Admin(bootstrap) as admin:
        await admin.alter_share_group_offsets(group, {(TOPIC, 0): 0})
    return group


async def _assigned(bootstrap: str, group: str) -> None:
    async with Admin(bootstrap) as admin, asyncio.timeout(PATIENCE):
        while True:
            [found] = await admin.describe_share_groups([group])
            if any(member.assignment for member in found.members):
                return
            await asyncio.sleep(0.05)


async def _nothing_left(bootstrap: str, group: str) -> None:
    async with Admin(bootstrap) as admin:
        [place] = await admin.list_share_group_offsets(group)
    assert place.lag == 0, f"{place.lag} of {RECORDS} records are left"


if __name__ == "__main__":
    report("client: share groups", share_rows(), ("confluent-kafka", "pyarrow"))
