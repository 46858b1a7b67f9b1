"""Programs to be killed: they sum a stream into SQLite, each message exactly once.

    python -m tests.support.stream_workers positions|ids URL STREAM DATABASE
    python -m tests.support.stream_workers immediate URL STREAM

`positions` keeps the position of each shard in the transaction of its sum; `ids` keeps the id of
each message, for groups whose members see interleaved ids. Both print a line for each transaction,
so that whoever watches can kill them in the middle, and go on whenever they are started again.
`immediate` fetches ten messages at most once, prints a line for each of the first three, and hangs.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from typing import TYPE_CHECKING

from ottla.offsets import OffsetKey, SqliteOffsetStore
from ottla.streams import (
    AutoCommit,
    ConnectOptions,
    ConsumerOptions,
    KafkaOptions,
    Mode,
    RedisOptions,
    Reset,
    connect,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

GROUP = "summing"
QUICK = KafkaOptions(session_timeout=1.0, extra={"fetch.wait.max.ms": 50, "log_level": 0})
IMMEDIATE = ConsumerOptions(
    mode=Mode.RESUMABLE, group=GROUP, reset=Reset.EARLIEST, auto_commit=AutoCommit.IMMEDIATE
)

SUMS = "CREATE TABLE IF NOT EXISTS sums (shard INTEGER PRIMARY KEY, total INTEGER)"
ADD = (
    "INSERT INTO sums VALUES (?, ?) "
    "ON CONFLICT (shard) DO UPDATE SET total = total + excluded.total"
)


async def by_position(url: str, stream: str, database: str) -> None:
    connection = sqlite3.connect(database)
    store = SqliteOffsetStore(database)
    store.create_table(connection)
    connection.execute(SUMS)
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
                    connection.execute(ADD, (message.shard, int(message.payload)))
                    transaction.save(key, message.seq + 1, expected=previous)
                consumer.ack(message)
                print(message.shard, message.seq, flush=True)


async def by_id(url: str, stream: str, database: str) -> None:
    connection = sqlite3.connect(database, timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(SUMS)
    connection.execute("CREATE TABLE IF NOT EXISTS processed (seq INTEGER PRIMARY KEY)")
    connection.commit()
    redis = RedisOptions(block=0.2, auto_claim_interval=0.2, auto_claim_idle=0.5)
    options = ConsumerOptions(
        mode=Mode.LOAD_BALANCED,
        group=GROUP,
        reset=Reset.EARLIEST,
        auto_commit=AutoCommit.DISABLED,
        redis=redis,
    )
    async with connect(url) as streamer, streamer.consumer(stream, options=options) as consumer:
        while True:
            for message in await consumer.batch(5, 1.0):
                with connection:
                    insert = "INSERT OR IGNORE INTO processed VALUES (?)"
                    if connection.execute(insert, (message.seq,)).rowcount:
                        connection.execute(ADD, (message.shard, int(message.payload)))
                consumer.ack(message)
                print(message.seq, flush=True)
            await consumer.commit()


async def at_most_once(url: str, stream: str) -> None:
    async with (
        connect(url, ConnectOptions(kafka=QUICK)) as streamer,
        streamer.consumer(stream, options=IMMEDIATE) as consumer,
    ):
        fetched = [await consumer.next() for _ in range(10)]
        for message in fetched[:3]:
            print(message.seq, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    how, *where = sys.argv[1:]
    programs: dict[str, Callable[..., Coroutine[object, object, None]]] = {
        "positions": by_position,
        "ids": by_id,
        "immediate": at_most_once,
    }
    asyncio.run(programs[how](*where))
