"""The ShareConsumer under faults: nothing is lost, and nothing accepted comes back.

Fifty runs with seeds of their own, ten of each fault: records, three consumers that accept, release
and commit as chance has it, one fault when some of the records are delivered, and then a consumer
that takes the rest. `History` is the judge.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

import ottla
from ottla import Admin, Producer, ProducerRecord, ShareConsumer
from ottla.broker.topics import create_topic
from ottla.client.share.types import Acknowledged
from ottla.errors import ClientError
from ottla.wire.schema import API_NAMES
from tests.support.faults_broker import soak
from tests.support.ports import free_port
from tests.support.share_history import History
from tests.support.share_member import LOCK_MS, SHARE_CONFIG
from tests.support.share_nodes import Nodes, wait_for
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

RUNS: Final = 200 if soak() else 10  # of each fault
QUICK_RUNS: Final = 3  # of these in `make test`
RECORDS: Final = 40
CONSUMERS: Final = 3
PATIENCE: Final = 30.0
CONFIG: Final = {**SHARE_CONFIG, "group.share.delivery.count.limit": "10"}
MAX_RELEASES: Final = 4  # by chance; faults take some of the ten attempts
HEARTBEAT: Final = {name: key for key, name in API_NAMES.items()}["share_group_heartbeat"]


class Run:
    """One seed: a topic, a group, and what happens to its records."""

    def __init__(self, bootstrap: str, name: str, seed: int, *, forgets: bool = False) -> None:
        self.bootstrap = bootstrap
        self.topic, self.group = name, f"{name}-readers"
        self.chance = random.Random(seed)
        self.history = History(RECORDS, forgets=forgets)

    def consumer(self, **options: Any) -> ottla.ShareConsumer:
        return ShareConsumer(
            self.bootstrap,
            group=self.group,
            topics=[self.topic],
            ack_mode="explicit",
            auto_offset_reset="earliest",
            max_wait=0.05,
            request_timeout=1.0,
            on_acknowledge=self.history.note,
            **options,
        )

    async def prepare(self) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.alter_configs(
                "group",
                self.group,
                {
                    "share.record.lock.duration.ms": str(LOCK_MS),
                    "share.heartbeat.interval.ms": "100",
                    "share.session.timeout.ms": "500",
                },
            )
        async with Producer(self.bootstrap, batch_size=200) as producer:
            values = [ProducerRecord(b"%d" % number) for number in range(RECORDS)]
            await producer.send_many(self.topic, values)

    async def work(self) -> None:
        """A consumer in the middle of things, until all is decided."""
        chance = random.Random(self.chance.random())
        strict = {"acquire_mode": "record_limit", "max_poll_records": chance.randint(1, 6)}
        async with self.consumer(**strict) as consumer:
            while not self.history.is_complete:
                await self.work_once(consumer, chance)

    async def work_once(self, consumer: ottla.ShareConsumer, chance: random.Random) -> None:
        found = await consumer.poll(timeout=0.05)
        self.history.deliver(found)
        for record in found:
            await asyncio.sleep(chance.choice((0.0, 0.001, 0.01)))
            if record.delivery_count < MAX_RELEASES and chance.random() < 0.15:
                consumer.acknowledge(record, "release")
            else:
                self.history.say(record.offset)
                consumer.acknowledge(record)
        if chance.random() < 0.5:
            await consumer.commit(return_errors=True)

    async def settle(self) -> None:
        """Take what is left until the broker has nothing more."""
        chance = random.Random(0)
        async with self.consumer() as consumer, Admin(self.bootstrap) as admin:
            while True:
                await self.work_once(consumer, chance)
                await consumer.commit(return_errors=True)
                [place] = await admin.list_share_group_offsets(self.group)
                if place.lag == 0 and self.history.is_complete:
                    return

    async def go(self, fault: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.timeout(PATIENCE):
            workers = [asyncio.create_task(self.work()) for _ in range(CONSUMERS)]
            try:
                moment = self.chance.randrange(RECORDS * 3 // 4)
                while self.history.seen < moment:  # noqa: ASYNC110  # nobody signals it
                    await asyncio.sleep(0.001)
                await fault()
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.wait(workers)
            await self.settle()
        self.history.check()


seeds = pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.long] * (n >= QUICK_RUNS)) for n in range(RUNS)]
)


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(config=CONFIG) as broker:
        yield broker


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ottla.EmbeddedBroker]:
    """One that can be stopped and started, with its data and its port."""
    path = tmp_path_factory.mktemp("broker")
    broker = ottla.EmbeddedBroker(path, config=CONFIG, port=free_port())
    with broker:
        yield broker


@seeds
async def test_a_broker_restarts(lasting: ottla.EmbeddedBroker, seed: int) -> None:
    run = Run(lasting.bootstrap, f"restarts-{seed}", seed, forgets=True)
    lasting.create_topic(run.topic)

    async def restart() -> None:
        await asyncio.to_thread(lasting.stop)
        await asyncio.to_thread(lasting.start)

    await run.prepare()
    await run.go(restart)


@pytest.fixture
async def proxied() -> AsyncIterator[tuple[ottla.EmbeddedBroker, TcpProxy]]:
    """A broker that tells its clients the address of a proxy."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(TcpProxy())
        told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        broker = ottla.EmbeddedBroker(config={**CONFIG, **told})
        await asyncio.to_thread(broker.start)
        try:
            proxy.upstream = int(broker.bootstrap.rpartition(":")[2])
            yield broker, proxy
        finally:
            await asyncio.to_thread(broker.stop)


@seeds
async def test_connections_are_cut_in_mid_answer(
    proxied: tuple[ottla.EmbeddedBroker, TcpProxy], seed: int
) -> None:
    broker, proxy = proxied
    broker.create_topic("cut")
    run = Run(f"127.0.0.1:{proxy.port}", "cut", seed)

    async def cut() -> None:
        proxy.cut_after = run.chance.randrange(1000)
        async with asyncio.timeout(PATIENCE):
            while not proxy.cuts and not run.history.is_complete:  # noqa: ASYNC110  # no signal
                await asyncio.sleep(0.01)

    await run.prepare()
    await run.go(cut)


@seeds
async def test_heartbeats_are_lost(
    proxied: tuple[ottla.EmbeddedBroker, TcpProxy], seed: int
) -> None:
    broker, proxy = proxied
    broker.create_topic("lost")
    run = Run(f"127.0.0.1:{proxy.port}", "lost", seed)

    async def lose() -> None:
        proxy.swallowed_api = HEARTBEAT
        # Longer than a session lasts, or not.
        await asyncio.sleep(run.chance.choice((0.3, 0.8)))
        proxy.swallowed_api = None

    await run.prepare()
    await run.go(lose)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("nodes"))
    try:
        nodes.start(1)
        nodes.start(2)
        wait_for(lambda: len(nodes.running[1].image.brokers) == 2)
        yield nodes
    finally:
        nodes.close()


@seeds
async def test_the_leader_moves(nodes: Nodes, seed: int) -> None:
    run = Run(nodes.bootstrap(1), f"moves-{seed}", seed, forgets=True)
    first = nodes.running[1]
    await asyncio.to_thread(
        nodes.do, lambda: create_topic(first.cluster, run.topic, assignments={0: [1]})
    )

    await run.prepare()

    async def move() -> None:
        await asyncio.to_thread(nodes.set_leader, run.topic, 0, 2, by=1)

    await run.go(move)


WORKER: Final = """
import asyncio, sys, ottla

def note(result):
    print("ack", result.first_offset, result.last_offset, result.error is None, flush=True)

async def main():
    async with ottla.ShareConsumer(
        sys.argv[1], group=sys.argv[2], topics=[sys.argv[3]], ack_mode="explicit",
        auto_offset_reset="earliest", max_poll_records=3, max_wait=0.05, on_acknowledge=note,
    ) as consumer:
        while True:
            for record in await consumer.poll():
                print("got", record.offset, record.delivery_count, flush=True)
                consumer.acknowledge(record)

asyncio.run(main())
"""


def note_line(history: History, line: bytes) -> None:
    """What the consumer in the other process said of itself."""
    word, *numbers = line.decode().split()
    first, second = int(numbers[0]), int(numbers[1])
    if word == "got":
        history.delivered(first, second)
        history.say(first)
        # Until the broker's answer is told, nobody knows whether it came that far.
        history.unanswered.add(first)
    else:
        error = None if numbers[2] == "True" else ClientError("not accepted")
        history.note(Acknowledged("", 0, first, second, "accept", error))


@seeds
async def test_a_consumer_is_killed(broker: ottla.EmbeddedBroker, seed: int) -> None:
    run = Run(broker.bootstrap, f"killed-{seed}", seed)
    broker.create_topic(run.topic)
    await run.prepare()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", WORKER, run.bootstrap, run.group, run.topic),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    try:
        for _ in range(run.chance.randrange(1, 40)):
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
            note_line(run.history, line)
    finally:
        process.kill()
    said, _, _cut_off = (await process.communicate())[0].rpartition(b"\n")
    for line in said.splitlines():
        note_line(run.history, line)
    async with asyncio.timeout(PATIENCE):
        await run.settle()
    run.history.check()
