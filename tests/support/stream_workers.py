"""A program to be killed: it sums a stream into SQLite, position and sum in one transaction.

    python -m tests.support.stream_workers URL STREAM DATABASE

It prints a line for each transaction, so that whoever watches can kill it in the middle, and goes
on from the stored position whenever it is started again.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys

from ottla.offsets import OffsetKey, SqliteOffsetStore
from ottla.streams import AutoCommit, ConnectOptions, ConsumerOptions, KafkaOptions, Mode, connect

GROUP = "summing"
QUICK = KafkaOptions(session_timeout=1.0, extra={"fetch.wait.max.ms": 50, "log_level": 0})


async def main(url: str, stream: str, database: str) -> None:
    connection = sqlite3.connect(database)
    store = SqliteOffsetStore(database)
    store.create_table(connection)
    connection.execute("CREATE TABLE IF NOT EXISTS sums (shard INTEGER PRIMARY KEY, total INTEGER)")
    connection.commit()
    options = ConsumerOptions(
        mode=Mode.RESUMABLE, group=GROUP, offsets=store, auto_commit=AutoCommit.DISABLED
    )
    async with (
        connect(url, ConnectOptions(kafka=QUICK)) as streamer,
        streamer.consumer(stream, options=options) as consumer,
    ):
        while True:
            for message in await consumer.batch(7, 1.0):
                key = OffsetKey(GROUP, message.stream, message.shard)
                with store.transaction(connection) as transaction:
                    previous = transaction.load(key)
                    connection.execute(
                        "INSERT INTO sums VALUES (?, ?) "
                        "ON CONFLICT (shard) DO UPDATE SET total = total + excluded.total",
                        (message.shard, int(message.payload)),
                    )
                    transaction.save(key, message.seq + 1, expected=previous)
                consumer.ack(message)
                print(message.shard, message.seq, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
