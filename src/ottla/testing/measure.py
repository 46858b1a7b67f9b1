"""Measure the speed of a cluster, for `ottla bench` and for programs.

A topic of its own is made, filled, read as a log and as a queue, and removed again. Records go in
and out as Arrow columns where the `arrow` extra is installed, one by one where it is not: the
figures say which.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.client.reader.reader import Reader
from ottla.client.security import PLAINTEXT, Security
from ottla.client.share.consumer import ShareConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pyarrow as pa

ROUND_TRIPS: Final = 500
AT_ONCE: Final = 10_000  # records that are handed over in one call
PATIENCE: Final = 30.0  # seconds a share consumer may wait for records before the run has failed


class Figure(NamedTuple):
    """One measurement; missing numbers are None."""

    what: str
    records_per_second: int | None = None
    mib_per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


class Stalled(Exception):
    """Written records cannot be read back."""


async def measure(
    bootstrap: str,
    *,
    records: int,
    size: int,
    partitions: int,
    api_timeout: float,
    security: Security = PLAINTEXT,
) -> AsyncIterator[Figure]:
    """Yield the figures one by one; deletes the topic at the end."""
    topic = f"ottla-bench-{os.urandom(4).hex()}"
    async with Admin(bootstrap, api_timeout=api_timeout, security=security) as admin:
        await admin.connect()
        await admin.create_topic(topic, partitions=partitions)
        try:
            bench = _Bench(bootstrap, topic, size, security)
            yield await bench.round_trips()
            # Compiled code is loaded when it is first used, which is not what is measured.
            await bench.produce(1)
            await bench.read()
            yield await bench.produce(records)
            yield await bench.read()
            yield await bench.share()
        finally:
            await admin.delete_share_groups([topic], return_errors=True)
            await admin.delete_topics([topic], return_errors=True)


class _Bench:
    def __init__(self, bootstrap: str, topic: str, size: int, security: Security) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._topic = topic
        self._written = 0
        self._size = size
        self._value = os.urandom(size)
        self._arrow = find_spec("pyarrow") is not None and find_spec("numba") is not None
        self._how = "in columns" if self._arrow else "one by one"

    async def round_trips(self) -> Figure:
        """Single records, each after the answer to the one before."""
        times = []
        async with Producer(self._bootstrap, security=self._security) as producer:
            for _ in range(ROUND_TRIPS):
                began = time.perf_counter()
                await producer.send(self._topic, self._value)
                times.append((time.perf_counter() - began) * 1000)
        self._written += ROUND_TRIPS
        times.sort()
        return Figure(
            "await send, one at a time",
            p50_ms=round(times[len(times) // 2], 3),
            p99_ms=round(times[len(times) * 99 // 100], 3),
        )

    async def produce(self, records: int) -> Figure:
        """Produce records and wait for their acknowledgements."""
        self._written += records
        left = records
        table = self._columns() if self._arrow else None
        async with Producer(self._bootstrap, security=self._security) as producer:
            began = time.perf_counter()
            while left > 0:
                count = min(left, AT_ONCE)
                if table is not None:
                    await producer.send_arrow(self._topic, table.slice(0, count))
                else:
                    await producer.send_many(self._topic, [ProducerRecord(self._value)] * count)
                left -= count
            return self._figure("produce", records, began)

    def _columns(self) -> pa.RecordBatch:
        import pyarrow as pa

        return pa.record_batch([pa.array([self._value] * AT_ONCE, pa.binary())], names=["value"])

    async def read(self) -> Figure:
        """The whole topic, as a log."""
        count = 0
        async with Reader(
            self._bootstrap, self._topic, stop="latest", security=self._security
        ) as reader:
            began = time.perf_counter()
            if self._arrow:
                async for batch in reader:
                    count += batch.num_rows
            else:
                while found := await reader.read_many(AT_ONCE):
                    count += len(found)
            return self._figure("read", count, began)

    async def share(self) -> Figure:
        """The whole topic, as a queue with one worker."""
        count, total = 0, self._written
        async with ShareConsumer(
            self._bootstrap,
            group=self._topic,
            topics=[self._topic],
            auto_offset_reset="earliest",
            security=self._security,
        ) as consumer:
            began = time.perf_counter()
            while count < total:
                found = (
                    (await consumer.poll_arrow(timeout=PATIENCE)).num_rows
                    if self._arrow
                    else len(await consumer.poll(timeout=PATIENCE))
                )
                if not found:
                    raise Stalled(f"{count} of {total} records came in {PATIENCE:g} s of waiting")
                count += found
            figure = self._figure("share", count, began)
            await consumer.commit()
        return figure

    def _figure(self, what: str, count: int, began: float) -> Figure:
        rate = count / (time.perf_counter() - began)
        return Figure(f"{what}, {self._how}", int(rate), round(rate * self._size / 2**20, 1))
