"""Exactly once into SQLite: totals per account, however often the worker dies.

    python examples/exactly_once_sqlite.py

A transaction holds the rows of one batch and the position after it. A worker that dies leaves both
or neither; the next one goes on at the stored position. `expected` stops a worker that has been
replaced and does not know it yet.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

import ottla
from ottla.offsets import OffsetKey, SqliteOffsetStore

TOPIC: Final = "payments"
PARTITIONS: Final = 3
PAYMENTS: Final = 3_000
BATCH: Final = 100


class WorkerDied(Exception):
    """Stands for a power cut, an out-of-memory kill, a pulled plug."""


async def pay(bootstrap: str) -> dict[str, int]:
    """Produce payments; the totals are what the database must show in the end."""
    dice = random.Random(7)
    totals: dict[str, int] = {}
    records = []
    for _ in range(PAYMENTS):
        account, amount = f"account-{dice.randrange(10)}", dice.randrange(1, 100)
        totals[account] = totals.get(account, 0) + amount
        records.append(ottla.ProducerRecord(str(amount).encode(), account.encode()))
    async with ottla.Producer(bootstrap) as producer:
        await producer.send_many(TOPIC, records)
    return totals


async def work(bootstrap: str, database: Path, dies_after: int) -> None:
    """Read all partitions to their end, a transaction per batch."""
    store = SqliteOffsetStore()
    keys = {number: OffsetKey("totals", TOPIC, number) for number in range(PARTITIONS)}
    with closing(sqlite3.connect(database)) as connection:
        stored = {number: store.bind(connection).load(key) for number, key in keys.items()}
        start = {number: position or 0 for number, position in stored.items()}
        async with ottla.Reader(
            bootstrap, TOPIC, start=start, stop="latest", max_batch_rows=BATCH
        ) as reader:
            async for batch in reader:
                with store.transaction(connection) as transaction:
                    connection.executemany(
                        "INSERT INTO totals VALUES (?, ?) "
                        "ON CONFLICT DO UPDATE SET total = total + excluded.total",
                        [
                            (row["key"].decode(), int(row["value"]))
                            for row in batch.select(["key", "value"]).to_pylist()
                        ],
                    )
                    dies_after -= 1
                    if dies_after == 0:
                        raise WorkerDied
                    partition = batch["partition"][0].as_py()
                    following = batch["offset"][-1].as_py() + 1
                    transaction.save(keys[partition], following, expected=stored[partition])
                stored[partition] = following


def main() -> int:
    with tempfile.TemporaryDirectory() as directory, ottla.EmbeddedBroker() as broker:
        database = Path(directory) / "totals.db"
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("CREATE TABLE totals (account TEXT PRIMARY KEY, total INTEGER)")
            SqliteOffsetStore().create_table(connection)
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        expected = asyncio.run(pay(broker.bootstrap))
        deaths = 0
        while True:
            try:
                asyncio.run(work(broker.bootstrap, database, dies_after=deaths % 5 + 2))
                break
            except WorkerDied:
                deaths += 1
        with closing(sqlite3.connect(database)) as connection:
            totals = dict(connection.execute("SELECT account, total FROM totals"))
    print(f"{PAYMENTS} payments, {deaths} deaths of the worker")
    print("each payment counted exactly once" if totals == expected else "the totals are wrong")
    return 0 if totals == expected else 1


if __name__ == "__main__":
    sys.exit(main())
