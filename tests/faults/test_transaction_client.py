"""The producer's transactions under faults: every number once, in both partitions, in order.

A worker writes numbers, each to two partitions and with the group's offset after it in one
transaction; some it aborts. What its producer survives it does again, otherwise it makes a new one
and goes on at the committed offset. Meanwhile connections are cut in the middle of answers, or the
broker restarts.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from ottla import Admin, EmbeddedBroker, Producer, ProducerRecord, Reader, TopicPartition
from ottla.errors import ClientError, FatalTransactionError, TransactionUnresolved
from tests.support.faults_broker import soak
from tests.support.ports import free_port
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from pathlib import Path

RUNS: Final = 100 if soak() else 1
NUMBERS: Final = 25
FAULTS: Final = 6
PATIENCE: Final = 120.0
TOPIC, GROUP = "numbers", "counting"
# Few partitions, since a broker that restarts reads all of them.
CONFIG: Final = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


class ChangeOfMind(Exception):
    """Aborts a transaction."""


def many(number: int) -> list[bytes]:
    return [b"%d.%d" % (number, part) for part in range(8)]


class Worker:
    """Writes all numbers, with as many producers as it takes."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self._bootstrap = bootstrap
        self._chance = chance
        self.began = asyncio.Event()

    async def work(self) -> None:
        while True:
            with suppress(ClientError):
                async with (
                    # A batch for each record, so that several are under way.
                    Producer(
                        self._bootstrap, transactional_id=TOPIC, max_block_ms=20_000, batch_size=1
                    ) as producer,
                    Admin(self._bootstrap) as admin,
                ):
                    await producer.connect()
                    found = await admin.list_group_offsets(GROUP)
                    await self._write(producer, found[0].offset if found else 0)
                    return

    async def _write(self, producer: Producer, number: int) -> None:
        while number < NUMBERS:
            try:
                await self._write_one(producer, number)
            except (FatalTransactionError, TransactionUnresolved):
                raise
            except (ChangeOfMind, ClientError):
                continue
            number += 1
            self.began.set()

    async def _write_one(self, producer: Producer, number: int) -> None:
        async with producer.transaction() as transaction:
            await asyncio.gather(
                producer.send_many(TOPIC, [ProducerRecord(v, partition=0) for v in many(number)]),
                producer.send_arrow(TOPIC, pa.table({"value": [b"%d" % number]}), partition=1),
            )
            if self._chance.random() < 0.1:
                raise ChangeOfMind
            await transaction.send_offsets(GROUP, {TopicPartition(TOPIC, 0): number + 1})


async def check(bootstrap: str) -> None:
    expected = {
        0: [value for number in range(NUMBERS) for value in many(number)],
        1: [b"%d" % number for number in range(NUMBERS)],
    }
    found: dict[int, list[bytes]] = {0: [], 1: []}
    while any(len(found[one]) < len(expected[one]) for one in found):
        found = {0: [], 1: []}
        async with Reader(
            bootstrap, TOPIC, stop="latest", isolation_level="read_committed"
        ) as reader:
            async for record in reader.records():
                found[record.partition].append(record.value or b"")
    assert found == expected


@pytest.mark.parametrize("seed", range(RUNS))
async def test_connections_are_cut_in_mid_answer(seed: int) -> None:
    chance = random.Random(seed)
    async with asyncio.timeout(PATIENCE), TcpProxy() as proxy:
        told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        async with EmbeddedBroker(config={**CONFIG, **told}) as broker:
            broker.create_topic(TOPIC, partitions=2)
            proxy.upstream = int(broker.bootstrap.rpartition(":")[2])
            worker = Worker(f"127.0.0.1:{proxy.port}", chance)
            working = asyncio.create_task(worker.work())
            await worker.began.wait()
            while proxy.cuts < FAULTS and not working.done():
                if proxy.cut_after is None:
                    # An answer of a transaction is small; the first ones of a connection are not.
                    proxy.cut_after = chance.choice((100, 5000)) + chance.randrange(100)
                await asyncio.wait([working], timeout=0.01)
            await working
            assert proxy.cuts > 0
            await check(f"127.0.0.1:{proxy.port}")


@pytest.mark.parametrize("seed", range(RUNS))
async def test_a_broker_restarts(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    broker = EmbeddedBroker(tmp_path, config=CONFIG, port=free_port())
    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(broker.start)
        try:
            broker.create_topic(TOPIC, partitions=2)
            worker = Worker(broker.bootstrap, chance)
            working = asyncio.create_task(worker.work())
            await worker.began.wait()
            for _ in range(FAULTS // 2):
                await asyncio.wait([working], timeout=chance.random() * 0.05)
                await asyncio.to_thread(broker.stop)
                await asyncio.to_thread(broker.start)
            await working
            await check(broker.bootstrap)
        finally:
            await asyncio.to_thread(broker.stop)
