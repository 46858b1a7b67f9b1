"""The clients against confluent-kafka and aiokafka, on one Ottla broker in the same run.

    python -m benchmarks.client [--quick]

The broker writes to the page cache, as Kafka does, so that the clients are what is compared. Counts
are checked at the end offsets: what a client has buffered is not throughput.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import TYPE_CHECKING

import aiokafka
import confluent_kafka
import pyarrow as pa

from benchmarks._consumer_rows import consumer_rows
from benchmarks._harness import Row, Timing, faster, micros, rate, report
from benchmarks._ottla import OttlaProcess
from benchmarks._reader_rows import reader_rows
from benchmarks._share_rows import share_rows
from ottla import Producer
from ottla.client.admin.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

QUICK = "--quick" in sys.argv
ROUNDS = 3 if QUICK else 5
PARTITIONS = 6
VALUE = b"v" * 100
RECORDS = 200_000 if QUICK else 1_000_000
SENDS = 500 if QUICK else 2_000
AS_KAFKA = {"ottla.flush.mode": "os"}
EVERYTHING_BUFFERED = {
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}


def main() -> None:
    with OttlaProcess(AS_KAFKA) as broker:
        rows = producer_rows(broker.bootstrap)
    rows += reader_rows()
    rows += consumer_rows()
    rows += share_rows()
    report("client: on one broker", rows, ("confluent-kafka", "aiokafka", "pyarrow"))


def producer_rows(bootstrap: str) -> list[Row]:
    """What `Producer` is measured by."""
    return [
        *send_arrow_rows(bootstrap),
        asyncio.run(send_row(bootstrap)),
    ]


def send_arrow_rows(bootstrap: str) -> list[Row]:
    """Columns against a loop over records, without and with keys."""
    keys = [b"key-%d" % (number % 10_000) for number in range(RECORDS)]
    values = pa.array([VALUE] * RECORDS, pa.binary())
    plain = pa.table({"value": values})
    keyed = pa.table({"key": pa.array(keys, pa.binary()), "value": values})
    rows: list[Row] = []
    for name, table, keyed_by in (("", plain, None), (", with keys", keyed, keys)):
        ours, theirs = [], []
        for turn in range(-1, ROUNDS):
            topic = f"arrow-{len(rows)}-{turn}"
            mine = asyncio.run(_send_arrow(bootstrap, f"{topic}-a", table))
            peer = _produce_loop(bootstrap, f"{topic}-b", keyed_by)
            if turn >= 0:  # the first one compiles and fills caches
                ours.append(mine)
                theirs.append(peer)
        what = f"send_arrow, 100 B{name}, peer confluent-kafka's produce loop"
        timings = Timing(tuple(ours)), Timing(tuple(theirs))
        rows.append(faster(what, *timings, 3.0, rate(RECORDS)))
    return rows


async def _send_arrow(bootstrap: str, topic: str, table: pa.Table) -> float:
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, partitions=PARTITIONS)
        await producer.connect()
        began = time.perf_counter()
        await producer.send_arrow(topic, table)
        seconds = time.perf_counter() - began
    _check_ends(bootstrap, topic)
    return seconds


def _produce_loop(bootstrap: str, topic: str, keys: list[bytes] | None) -> float:
    asyncio.run(_create(bootstrap, topic))
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, **EVERYTHING_BUFFERED}
    )
    producer.list_topics(topic, timeout=20)
    produce = producer.produce
    began = time.perf_counter()
    if keys is None:
        for _ in range(RECORDS):
            produce(topic, VALUE)
    else:
        for key in keys:
            produce(topic, VALUE, key)
    assert producer.flush(120) == 0
    seconds = time.perf_counter() - began
    _check_ends(bootstrap, topic)
    return seconds


async def send_row(bootstrap: str) -> Row:
    """Seconds from the call to the acknowledgement, one record at a time, in the median."""
    await _create(bootstrap, "one-by-one")
    ours, theirs = [], []
    peer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await peer.start()
    async with Producer(bootstrap) as producer:
        for turn in range(-1, ROUNDS):
            mine = await _median(lambda: producer.send("one-by-one", VALUE))
            other = await _median(lambda: peer.send_and_wait("one-by-one", VALUE))
            if turn >= 0:
                ours.append(mine)
                theirs.append(other)
    await peer.stop()
    what = "await send one by one, p50, peer aiokafka's send_and_wait"
    return faster(what, Timing(tuple(ours)), Timing(tuple(theirs)), 1.0, micros)


async def _median(call: Callable[[], Awaitable[object]]) -> float:
    seconds = []
    for _ in range(SENDS):
        began = time.perf_counter()
        await call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


async def _create(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=PARTITIONS)


def _check_ends(bootstrap: str, topic: str) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    ends = [
        consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, index), timeout=20)[1]
        for index in range(PARTITIONS)
    ]
    consumer.close()
    assert sum(ends) == RECORDS, f"{sum(ends)} of {RECORDS} records in {topic}"


if __name__ == "__main__":
    main()
