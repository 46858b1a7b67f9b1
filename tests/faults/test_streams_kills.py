"""Exactly once into SQLite over a real stream: a worker is killed again and again."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from ottla.streams import connect
from tests.support.faults_broker import soak
from tests.support.stream_workers import IMMEDIATE

if TYPE_CHECKING:
    from pathlib import Path

    from ottla import EmbeddedBroker
    from tests.services import RedisServer

KILLS: Final = 50 if soak() else 4
RECORDS: Final = 600
SHARDS: Final = 2


async def test_t76_a_sum_over_kafka_survives_kills(
    ottla_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    ottla_broker.create_topic("summed", partitions=SHARDS)
    url = f"kafka://{ottla_broker.bootstrap}/summed"
    async with connect(url) as streamer, streamer.producer() as producer:
        for number in range(RECORDS):
            await producer.send(b"%d" % number, shard=number % SHARDS)
        await producer.flush()
    rng = random.Random(76)
    database = tmp_path / "sums.db"
    applied = 0
    for _ in range(KILLS):
        # The last worker is killed too, but only when it has nothing left to do.
        applied += await _work(url, database, rng.randrange(1, RECORDS // KILLS))
    while applied < RECORDS:
        applied += await _work(url, database, RECORDS - applied)
    with closing(sqlite3.connect(database)) as connection:
        sums = connection.execute("SELECT total FROM sums ORDER BY shard").fetchall()
    ours = [sum(range(shard, RECORDS, SHARDS)) for shard in range(SHARDS)]
    assert [total for (total,) in sums] == ours


async def test_t77_a_sum_over_a_redis_group_survives_kills(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    database = tmp_path / "sums.db"
    stream = f"summed-{tmp_path.name}"
    url = f"{redis_server.url}/{stream}"
    async with connect(url) as streamer, streamer.producer() as producer:
        for number in range(RECORDS):
            await producer.send(b"%d" % number)
        await producer.flush()
    rng = random.Random(77)

    async def one_after_the_other() -> None:
        for _ in range(KILLS // 2):
            lines = rng.randrange(1, RECORDS // KILLS)  # together less than there are
            await _killed_after(lines, "ids", url, stream, str(database))

    await asyncio.gather(one_after_the_other(), one_after_the_other())
    # What the killed ones held is claimed by the last one, whose lines repeat some of theirs.
    last = asyncio.create_task(_killed_after(2 * RECORDS, "ids", url, stream, str(database)))
    async with asyncio.timeout(60):
        while _sum(database) < sum(range(RECORDS)):  # noqa: ASYNC110  # the database tells nobody
            await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)  # longer than the idle time: whatever is claimed again is skipped
    last.cancel()
    await asyncio.wait([last])
    assert _sum(database) == sum(range(RECORDS))


@pytest.mark.parametrize("backend", ["redis", "kafka"])
async def test_t15_immediate_loses_what_a_killed_worker_had_fetched(
    backend: str, redis_server: RedisServer, ottla_broker: EmbeddedBroker, ottla_topic: str
) -> None:
    """At most once, by design: ten are fetched, three of them were worked on, seven are lost."""
    stream = ottla_topic
    store = redis_server.url if backend == "redis" else f"kafka://{ottla_broker.bootstrap}"
    url = f"{store}/{stream}"
    async with connect(url) as streamer, streamer.producer() as producer:
        for number in range(15):
            await producer.send(b"%d" % number)
        await producer.flush()
        await _killed_after(3, "immediate", url, stream)
        async with streamer.consumer(options=IMMEDIATE) as consumer:
            left = [(await consumer.next(20)).payload for _ in range(5)]
    assert left == [b"%d" % number for number in range(10, 15)]


def _sum(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        (total,) = connection.execute("SELECT coalesce(sum(total), 0) FROM sums").fetchone()
    return int(total)


async def _work(url: str, database: Path, lines: int) -> int:
    """Kill a worker once it has said that many lines; how many transactions it has made."""
    before = _positions(database)
    await _killed_after(lines, "positions", url, "summed", str(database))
    return _positions(database) - before


async def _killed_after(lines: int, *args: str) -> None:
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.stream_workers", *args),
        stdout=asyncio.subprocess.PIPE,
    )
    assert worker.stdout is not None
    try:
        async with asyncio.timeout(60):
            for _ in range(lines):
                assert await worker.stdout.readline()
    finally:
        worker.kill()
        assert await worker.wait() == -signal.SIGKILL


def _positions(database: Path) -> int:
    """Positions count from nought, so their sum is how many records were applied."""
    with closing(sqlite3.connect(database)) as connection:
        try:
            rows = connection.execute("SELECT position FROM stream_offsets").fetchall()
        except sqlite3.OperationalError:  # no worker has made the table yet
            return 0
    return sum(int(position) for (position,) in rows)
