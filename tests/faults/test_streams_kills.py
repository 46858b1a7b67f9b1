"""Exactly once into SQLite over a real stream: a worker is killed again and again."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

from ottla.streams import connect
from tests.support.faults_broker import soak

if TYPE_CHECKING:
    from pathlib import Path

    from ottla import EmbeddedBroker

KILLS: Final = 50 if soak() else 6
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


async def _work(url: str, database: Path, lines: int) -> int:
    """Kill a worker once it has said that many lines; how many transactions it has made."""
    before = _positions(database)
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.stream_workers", url, "summed", str(database)),
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
    return _positions(database) - before


def _positions(database: Path) -> int:
    """Positions count from nought, so their sum is how many records were applied."""
    with closing(sqlite3.connect(database)) as connection:
        try:
            rows = connection.execute("SELECT position FROM stream_offsets").fetchall()
        except sqlite3.OperationalError:  # no worker has made the table yet
            return 0
    return sum(int(position) for (position,) in rows)
