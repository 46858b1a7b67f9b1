"""Exactly once from topic to topic: orders become invoices, however often the worker is killed.

    python examples/transactions.py

A transaction holds the invoices of one batch and the offset after it. A worker that is killed
leaves a transaction open; the next one fences it, which aborts that, and goes on at the committed
offset. Readers of committed records see each invoice once.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

import ottla
from ottla import TopicPartition

SOURCE: Final = "orders"
TARGET: Final = "invoices"
GROUP: Final = "billing"
PARTITIONS: Final = 2
ORDERS: Final = 2_000
BATCH: Final = 100
DEATHS: Final = (3, 5)
"""The batch in the middle of which each worker is killed; the last worker is not."""


async def work(bootstrap: str, dies_in: int) -> None:
    """Read all orders that have no invoice yet, a transaction for each batch."""
    async with (
        ottla.Producer(bootstrap, transactional_id=f"{GROUP}-0") as producer,
        ottla.Admin(bootstrap) as admin,
    ):
        await producer.connect()  # from here on no other worker can change the offsets
        start = dict.fromkeys(range(PARTITIONS), 0)
        start |= {one.partition: one.offset for one in await admin.list_group_offsets(GROUP)}
        async with ottla.Reader(
            bootstrap, SOURCE, start=start, stop="latest", max_batch_rows=BATCH
        ) as reader:
            async for batch in reader:
                place = TopicPartition(SOURCE, batch["partition"][0].as_py())
                following = batch["offset"][-1].as_py() + 1
                async with producer.transaction() as transaction:
                    await producer.send_arrow(TARGET, invoices(batch))
                    dies_in -= 1
                    if dies_in == 0:
                        os._exit(9)  # as a power cut: nothing is cleaned up
                    await transaction.send_offsets(GROUP, {place: following})


def invoices(orders: pa.RecordBatch) -> pa.Table:
    values = pc.binary_join_element_wise(orders["key"], b"paid", b" ")
    return pa.table({"key": orders["key"], "value": values})


async def order(bootstrap: str) -> None:
    async with ottla.Admin(bootstrap) as admin:
        for topic in (SOURCE, TARGET):
            await admin.create_topic(topic, partitions=PARTITIONS)
    async with ottla.Producer(bootstrap) as producer:
        keys = [b"order %d" % number for number in range(ORDERS)]
        await producer.send_arrow(SOURCE, pa.table({"key": keys, "value": keys}))


async def read(
    bootstrap: str, isolation: Literal["read_committed", "read_uncommitted"]
) -> list[bytes]:
    async with ottla.Reader(bootstrap, TARGET, stop="latest", isolation_level=isolation) as reader:
        return [key async for batch in reader for key in batch["key"].to_pylist()]


def main() -> int:
    with ottla.EmbeddedBroker() as broker:
        asyncio.run(order(broker.bootstrap))
        for dies_in in (*DEATHS, 0):
            worker = [sys.executable, __file__, broker.bootstrap, str(dies_in)]
            status = subprocess.run(worker, check=False).returncode
            print("worker", f"killed in batch {dies_in}" if status else "done")
        committed = asyncio.run(read(broker.bootstrap, "read_committed"))
        everything = asyncio.run(read(broker.bootstrap, "read_uncommitted"))
    print(f"{len(everything) - len(committed)} invoices of workers that were killed are not seen")
    once = len(committed) == len(set(committed)) == ORDERS
    print(f"{len(committed)} invoices for {ORDERS} orders, each once: {once}")
    return 0 if once else 1


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(work(sys.argv[1], int(sys.argv[2])))
    else:
        sys.exit(main())
