"""The Reader against confluent-kafka's consumer: the same broker, the same records, in turns.

    python -m benchmarks._reader_rows [--quick]

Both read a topic from its beginning to its end and check the count. confluent-kafka hands out
Message objects, whose keys, values, offsets and timestamps are read, and is set not to pause; the
Reader hands out columns of the same with its defaults.
"""

from __future__ import annotations

import asyncio
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks._harness import Row, faster, rate, report, take_turns
from benchmarks._ottla import OttlaProcess
from ottla import Reader

QUICK = "--quick" in sys.argv
RECORDS = 300_000 if QUICK else 1_000_000
ROUNDS = 3 if QUICK else 7
PARTITIONS = 3
TOPIC = "orders"
VALUE = b"v" * 100
TARGET = 5.0


def reader_rows() -> list[Row]:
    """Reading to Arrow; the broker is a process of its own, as it would be."""
    with OttlaProcess({"num.partitions": str(PARTITIONS)}) as broker:
        fill(broker.bootstrap)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "log_level": 0,
                # By default it pauses for a second whenever 100,000 records wait to be taken.
                "queued.min.messages": RECORDS,
                "fetch.queue.backoff.ms": 0,
            }
        )
        start = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
        own, theirs = take_turns(
            lambda: asyncio.run(read(broker.bootstrap)),
            lambda: consume(consumer, start),
            rounds=ROUNDS,
        )
        consumer.close()
    what = "Reader to Arrow, 100-byte records, peer confluent-kafka consume(10000)"
    return [faster(what, own, theirs, TARGET, rate(RECORDS))]


def fill(bootstrap: str) -> None:
    """Write the records, and see that they are there."""
    settings = {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": RECORDS}
    producer = Producer({**settings, "linger.ms": 20, "batch.num.messages": 10_000})
    for number in range(RECORDS):
        producer.produce(TOPIC, VALUE, b"key-%04d" % (number % 10_000))
    assert producer.flush(120) == 0


async def read(bootstrap: str) -> None:
    """From the beginning to the end, the connection included."""
    rows = 0
    async with Reader(bootstrap, TOPIC, start="earliest", stop="latest") as reader:
        async for batch in reader:
            rows += batch.num_rows
    assert rows == RECORDS


def consume(consumer: Consumer, start: list[TopicPartition]) -> None:
    """The same with a consumer that is connected already."""
    consumer.assign(start)
    rows = 0
    while rows < RECORDS:
        for record in consumer.consume(10_000, timeout=10):
            assert record.error() is None
            _ = (record.key(), record.value(), record.offset(), record.timestamp())
            rows += 1
    consumer.unassign()


if __name__ == "__main__":
    report("client: reading", reader_rows(), ("confluent-kafka", "pyarrow", "numba"))
