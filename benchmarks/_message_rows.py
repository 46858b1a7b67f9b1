"""The decoder against confluent-kafka's Message objects: processor time for each record.

    python -m benchmarks._message_rows [--quick]

The peer reads a topic from a broker in another process: its figure is all the time its process
uses from the first fetch to the last record, reading the socket included. Ours is the decoder alone
(CRC, decompression, Arrow columns), over batches of the same records and size. Both check CRCs.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from benchmarks._harness import Row, Timing, faster, rate, report
from benchmarks._ottla import OttlaProcess
from ottla import Admin, Producer
from ottla.wire.arrow import arrow_to_batches, batches_to_arrow
from ottla.wire.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = "--quick" in sys.argv
RECORDS = 200_000 if QUICK else 500_000
ROUNDS = 3 if QUICK else 5
BATCH_BYTES = 512 * 1024
NOW_MS = 1_700_000_000_000
TARGETS = {Codec.NONE: 15.0, Codec.LZ4: 5.0, Codec.ZSTD: 5.0, Codec.SNAPPY: 5.0}


def message_rows() -> list[Row]:
    table = _records()
    with OttlaProcess({"ottla.flush.mode": "os"}) as broker:
        asyncio.run(_fill(broker.bootstrap, table))
        return [_row(broker.bootstrap, table, codec) for codec in TARGETS]


def _records() -> pa.Table:
    """Values of 100 bytes, of which some repeat."""
    note = b"x" * 39
    values = [
        b'{"shop": "%03d", "amount": %022d, "note": "%s"}' % (n % 500, n * 7919**3, note)
        for n in range(RECORDS)
    ]
    keys = [b"%08d" % n for n in range(RECORDS)]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


async def _fill(bootstrap: str, table: pa.Table) -> None:
    async with Admin(bootstrap) as admin:
        for codec in TARGETS:
            await admin.create_topic(codec.name)
            async with Producer(
                bootstrap, compression_type=codec.name.lower(), batch_size=BATCH_BYTES
            ) as producer:
                await producer.send_arrow(codec.name, table)


def _row(bootstrap: str, table: pa.Table, codec: Codec) -> Row:
    batches = arrow_to_batches(
        table, now_ms=NOW_MS, key="key", codec=codec, max_batch_bytes=BATCH_BYTES
    )
    data = b"".join(batches)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
            "queued.min.messages": RECORDS,
            "fetch.queue.backoff.ms": 0,
        }
    )

    def ours() -> None:
        assert batches_to_arrow(data, codec.name, 0).num_rows == RECORDS

    def theirs() -> None:
        consumer.assign([TopicPartition(codec.name, 0, 0)])
        taken = 0
        while taken < RECORDS:
            for record in consumer.consume(10_000, timeout=10):
                assert record.error() is None
                _ = (record.key(), record.value(), record.offset(), record.timestamp())
                taken += 1
        consumer.unassign()

    own, peer = _processor_time(ours, theirs)
    consumer.close()
    what = f"decode with CRC, codec {codec.name.lower()}, peer confluent-kafka Messages, CPU"
    return faster(what, own, peer, TARGETS[codec], rate(RECORDS))


def _processor_time(*candidates: Callable[[], None]) -> list[Timing]:
    """Seconds of processor time of this process, all threads, for each call; in turns."""
    seconds: list[list[float]] = [[] for _ in candidates]
    for candidate in candidates:
        candidate()
    for _ in range(ROUNDS):
        for index, candidate in enumerate(candidates):
            gc.collect()
            start = time.process_time()
            candidate()
            seconds[index].append(time.process_time() - start)
    return [Timing(tuple(values)) for values in seconds]


if __name__ == "__main__":
    report("wire: decoding", message_rows(), ("confluent-kafka", "pyarrow", "numba"))
