"""The Consumer against aiokafka's: the same broker, the same records, in turns, as groups of one.

    python -m benchmarks._consumer_rows [--quick]

Each round is a new group that reads the topic from its beginning; joining is not measured: the
clock starts with the first record. Both read keys, values, offsets and timestamps.
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import count

import aiokafka

from benchmarks._harness import Row, Timing, faster, rate, report
from benchmarks._ottla import OttlaProcess
from benchmarks._reader_rows import PARTITIONS, RECORDS, TOPIC, fill
from ottla import Consumer

QUICK = "--quick" in sys.argv
ROUNDS = 3 if QUICK else 5
ARROW_TARGET = 5.0
RECORD_TARGET = 1.0
_groups = count()


def consumer_rows() -> list[Row]:
    """Reading as a group, to Arrow and one by one."""
    with OttlaProcess({"num.partitions": str(PARTITIONS)}) as broker:
        fill(broker.bootstrap)
        return asyncio.run(_rows(broker.bootstrap))


async def _rows(bootstrap: str) -> list[Row]:
    seconds: dict[str, list[float]] = {"arrow": [], "records": [], "many": [], "one": []}
    for turn in range(ROUNDS + 1):
        taken = {
            "arrow": await _arrow(bootstrap),
            "records": await _records(bootstrap),
            "many": await _getmany(bootstrap),
            "one": await _getone(bootstrap),
        }
        if turn:  # the first compiles, imports and fills caches
            for name, one in taken.items():
                seconds[name].append(one)
    timings = {name: Timing(tuple(values)) for name, values in seconds.items()}
    show = rate(RECORDS)
    return [
        faster(
            "Consumer.batches to Arrow, peer aiokafka getmany",
            timings["arrow"],
            timings["many"],
            ARROW_TARGET,
            show,
        ),
        faster(
            "Consumer one by one, peer aiokafka async for",
            timings["records"],
            timings["one"],
            RECORD_TARGET,
            show,
        ),
    ]


def _ours(bootstrap: str) -> Consumer:
    return Consumer(bootstrap, group=f"bench-{next(_groups)}", topics=[TOPIC], auto_commit=False)


async def _arrow(bootstrap: str) -> float:
    rows, began = 0, 0.0
    async with _ours(bootstrap) as consumer:
        async for batch in consumer.batches():
            began = began or time.perf_counter()
            rows += batch.num_rows
            if rows == RECORDS:
                break
    return time.perf_counter() - began


async def _records(bootstrap: str) -> float:
    rows, began = 0, 0.0
    async with _ours(bootstrap) as consumer:
        async for record in consumer:
            began = began or time.perf_counter()
            _ = (record.key, record.value, record.offset, record.timestamp_ms)
            rows += 1
            if rows == RECORDS:
                break
    return time.perf_counter() - began


def _theirs(bootstrap: str) -> aiokafka.AIOKafkaConsumer:
    return aiokafka.AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=f"bench-{next(_groups)}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def _getmany(bootstrap: str) -> float:
    rows, began = 0, 0.0
    async with _theirs(bootstrap) as consumer:
        while rows < RECORDS:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=10_000)).values():
                began = began or time.perf_counter()
                for record in records:
                    _ = (record.key, record.value, record.offset, record.timestamp)
                rows += len(records)
    return time.perf_counter() - began


async def _getone(bootstrap: str) -> float:
    rows, began = 0, 0.0
    async with _theirs(bootstrap) as consumer:
        async for record in consumer:
            began = began or time.perf_counter()
            _ = (record.key, record.value, record.offset, record.timestamp)
            rows += 1
            if rows == RECORDS:
                break
    return time.perf_counter() - began


if __name__ == "__main__":
    report("client: consuming", consumer_rows(), ("aiokafka", "pyarrow", "numba"))
