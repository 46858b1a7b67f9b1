"""The share source beside the log source: one stream over the same records, to the end of them.

    python -m benchmarks._spark_share [--quick]

The group may lock a million records of each partition. Every run has a group and a checkpoint of
its own; what is measured is the time from the start of a query to its end, which for a share group
includes joining, locking and accepting.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final

from benchmarks._harness import Row, Timing, faster, rate, report
from benchmarks._ottla import OttlaProcess
from ottla import Admin, Producer
from tests.support.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK: Final = "--quick" in sys.argv
RECORDS: Final = 1_000_000 if QUICK else 5_000_000
PARTITIONS: Final = 2
ROUNDS: Final = 3
WINDOW: Final = 1_000_000
BROKER: Final = {"group.share.max.partition.max.record.locks": str(WINDOW)}
GROUP: Final = {
    "share.auto.offset.reset": "earliest",
    "share.partition.max.record.locks": str(WINDOW),
    "share.record.lock.duration.ms": "60000",
}

_numbers = itertools.count(1)


def share_rows(spark: SparkSession, bootstrap: str, topic: str, records: int) -> list[Row]:
    """How the two sources compare on a topic with so many records."""
    share: list[float] = []
    log: list[float] = []
    for warms_up in [True] + [False] * ROUNDS:
        group = f"bench-{next(_numbers)}"
        asyncio.run(_configure(bootstrap, group))
        took = seconds(spark, bootstrap, topic, records, shareGroup=group)
        beside = seconds(spark, bootstrap, topic, records, startingOffsets="earliest")
        if not warms_up:
            share.append(took)
            log.append(beside)
    what = "share source, all columns, noop, beside our log source"
    return [faster(what, Timing(tuple(share)), Timing(tuple(log)), 0.5, rate(records))]


def seconds(spark: SparkSession, bootstrap: str, topic: str, records: int, **options: str) -> float:
    """One stream from the first record to the last."""
    checkpoint = tempfile.mkdtemp()
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.options(subscribe=topic, **options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    began = time.perf_counter()
    try:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took = time.perf_counter() - began
        read = sum(one["numInputRows"] for one in query.recentProgress)
        assert read == records, f"{read} rows of {records} in {len(query.recentProgress)} batches"
    finally:
        shutil.rmtree(checkpoint)
    return took


async def _configure(bootstrap: str, group: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_configs("group", group, GROUP)


async def _fill(bootstrap: str) -> None:
    from benchmarks.spark import records

    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic("records", partitions=PARTITIONS)
        table = records(200_000)
        for _ in range(RECORDS // table.num_rows):
            await producer.send_arrow("records", table)


def main() -> None:
    with OttlaProcess({"ottla.flush.mode": "os", **BROKER}) as broker:
        asyncio.run(_fill(broker.bootstrap))
        with session() as spark:
            rows = share_rows(spark, broker.bootstrap, "records", RECORDS)
    report("spark share source", rows, ("pyspark", "pyarrow"))
    print(f"  load average {os.getloadavg()[0]:.1f}; {RECORDS:,} records")


if __name__ == "__main__":
    main()
