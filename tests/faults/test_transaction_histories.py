"""Transactions of many clients at once, under faults, judged by what they did and what was seen.

Two processes with clients of several makes work on one topic (`transaction_clients`): writers and
transformers, with ids of their own and one that both processes use. Meanwhile the broker is
killed, or kills itself between a decision and its markers, or processes are, or connections are
cut. `transaction_histories` judges the records, and the scans that were made meanwhile.

OTTLA_TEST_SEED=n runs the history of that seed alone.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ottla import Reader
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess, soak
from tests.support.ports import free_port
from tests.support.raw_client import LATEST, RawClient
from tests.support.raw_offsets import RawOffsets
from tests.support.raw_transactions import RawProducer, wait_for
from tests.support.tcp_proxy import TcpProxy
from tests.support.topics import create_topic
from tests.support.transaction_clients import PARTITIONS, seen_of
from tests.support.transaction_histories import Position, Scan, Seen, check
from tests.support.transaction_prepare_broker import MARKERS_BEFORE_KILL
from tests.support.transaction_recording import Recorder, answers, read_history
from tests.support.transaction_sessions import KINDS, LIBRDKAFKA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEEDS: Final = (
    [int(os.environ["OTTLA_TEST_SEED"])]
    if "OTTLA_TEST_SEED" in os.environ
    else list(range(100 if soak() else 1))
)
TOPIC: Final = "lists"
CONTESTED: Final = "contested"
ROUNDS: Final = 4 if soak() else 2
ANSWERS_PER_ROUND: Final = 40 if soak() else 12
MAX_LIFE_SECONDS: Final = 0.3  # of whatever is killed, once transactions have ended
CONFIG: Final = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}


class Clients:
    """A process of `transaction_clients`, started again under another name when it was killed."""

    def __init__(self, bootstrap: str, path: Path, name: str, seed: int, tasks: list[str]) -> None:
        self._bootstrap, self._path, self._tasks = bootstrap, path, tasks
        self._name, self._seed = name, seed
        self._lives = 0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._lives += 1
        life = [str(self._path), f"{self._name}{self._lives}", str(self._seed), *self._tasks]
        module = "tests.support.transaction_clients"
        return subprocess.Popen(
            [sys.executable, "-m", module, self._bootstrap, TOPIC, *life],
            stdin=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )

    def kill(self) -> None:
        self.close()
        self._process = self._start()

    def finish(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(4 * PATIENCE_SECONDS) == 0

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)


class Scanner:
    """Reads whole partitions with librdkafka."""

    def __init__(self, bootstrap: str, *, committed: bool) -> None:
        self._committed = committed
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "not joined",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                **LIBRDKAFKA,
            }
        )

    def scan(self, patience: float) -> list[Scan] | None:
        """None if that takes too long."""
        begun_at = time.monotonic_ns()
        self._consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        messages: dict[int, list[Message]] = {index: [] for index in range(PARTITIONS)}
        ends: dict[int, int] = {}
        deadline = time.monotonic() + patience
        while len(ends) < PARTITIONS:
            message = self._consumer.poll(0.1)
            if time.monotonic() > deadline:
                return None
            if message is None:
                continue
            partition, error = message.partition(), message.error()
            assert partition is not None or error is not None
            if partition in ends:
                continue
            if error is None and partition is not None:
                messages[partition].append(message)
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                ends[partition or 0] = message.offset() or 0
        return [
            Scan("librdkafka", self._committed, index, begun_at, 0, ends[index], tuple(seen))
            for index, seen in ((index, seen_of(found)) for index, found in messages.items())
        ]

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def scanning(bootstrap: str, recorder: Recorder) -> Iterator[None]:
    """Scans in the background, as many as come to an end."""
    done = threading.Event()

    def work() -> None:
        scanner = Scanner(bootstrap, committed=True)
        while not done.wait(0.05):
            for scan in scanner.scan(2.0) or ():
                recorder.scan(scan)
        scanner.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def cutting(upstream: int) -> Iterator[tuple[int, Callable[[int], None]]]:
    """A proxy on a loop of its own: its port, and how to have it cut after so many bytes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = TcpProxy()
    proxy.upstream = upstream
    asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(PATIENCE_SECONDS)

    def cut(after: int) -> None:
        loop.call_soon_threadsafe(setattr, proxy, "cut_after", after)

    try:
        yield proxy.port, cut
    finally:
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(), loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Run:
    """One history: what is needed to make it, and to end it."""

    def __init__(self, directory: Path, seed: int, stack: ExitStack, *, proxied: bool) -> None:
        self.chance = random.Random(seed)
        self.path = directory / "history"
        self.recorder = Recorder(self.path)
        port = free_port()
        config = CONFIG
        bootstrap = f"127.0.0.1:{port}"
        self.cut: Callable[[int], None] = lambda _: None
        if proxied:
            proxy_port, self.cut = stack.enter_context(cutting(port))
            bootstrap = f"127.0.0.1:{proxy_port}"
            config = CONFIG | {"advertised.listeners": f"PLAINTEXT://{bootstrap}"}
        self.broker = stack.enter_context(
            BrokerProcess(
                directory,
                config=config,
                port=port,
                module="tests.support.transaction_prepare_broker",
            )
        )
        self.bootstrap = bootstrap
        create_topic(self.broker.bootstrap, TOPIC, partitions=PARTITIONS)
        self.ids = [CONTESTED]
        self.clients = [self._clients(name, seed) for name in "ab"]
        for clients in self.clients:
            stack.callback(clients.close)

    def _clients(self, name: str, seed: int) -> Clients:
        contested = self.chance.choice(KINDS)
        tasks = [f"{contested}:transformer:{CONTESTED}"]
        kinds = ["ottla", "raw-1"] if name == "a" else ["confluent", "raw-2"]
        self.chance.shuffle(kinds)
        for kind, role in zip(kinds, ("writer", "transformer"), strict=True):
            tasks.append(f"{kind}:{role}:{role}-{name}")
            self.ids.append(f"{role}-{name}")
        return Clients(self.bootstrap, self.path, name, seed, tasks)

    def progress(self) -> None:
        """Wait until some more transactions have ended."""
        before = answers(self.path)
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        while answers(self.path) < before + ANSWERS_PER_ROUND:
            assert time.monotonic() < deadline, "the clients do not get on"
            time.sleep(0.05)

    def pause(self) -> None:
        time.sleep(self.chance.uniform(0, MAX_LIFE_SECONDS))

    def finish(self) -> None:
        """Let everything end, and look at it."""
        for clients in self.clients:
            clients.finish()
        with RawClient(self.broker.bootstrap) as raw:
            for name in self.ids:
                assert RawProducer(raw, name).init().error_code == 0
            wait_for(lambda: all(self._is_stable(raw, index) for index in range(PARTITIONS)))
            for group in self.ids:
                self._record_position(RawOffsets(raw, TOPIC, group))
        for committed in (False, True):
            scanner = Scanner(self.broker.bootstrap, committed=committed)
            scans = scanner.scan(PATIENCE_SECONDS)
            scanner.close()
            assert scans is not None
            for scan in scans:
                self.recorder.scan(scan)
        for scan in asyncio.run(self._read()):
            self.recorder.scan(scan)

    def _is_stable(self, raw: RawClient, partition: int) -> bool:
        end, stable = (
            raw.offset(TOPIC, LATEST, partition=partition, isolation_level=level).offset
            for level in (0, 1)
        )
        return end == stable

    def _record_position(self, group: RawOffsets) -> None:
        asked_at = time.monotonic_ns()
        code, offset = group.offset(stable=True)
        assert code == 0
        self.recorder.position(
            Position(group.name, 0, max(0, offset), asked_at, time.monotonic_ns())
        )

    async def _read(self) -> list[Scan]:
        """The same with a reader of our own."""
        begun_at = time.monotonic_ns()
        found: dict[int, list[Seen]] = {index: [] for index in range(PARTITIONS)}
        async with Reader(
            self.broker.bootstrap, TOPIC, stop="latest", isolation_level="read_committed"
        ) as reader:
            async for record in reader.records():
                seen = Seen(record.offset, (record.value or b"").decode())
                found[record.partition].append(seen)
            ends = reader.positions
        return [
            Scan("ottla", True, index, begun_at, 0, ends.get(index, 0), tuple(seen))
            for index, seen in found.items()
        ]


def no_fault(_: Run) -> None:
    """Nothing but what clients do to each other."""


def kill_broker(run: Run) -> None:
    run.pause()
    run.broker.kill()
    run.broker.start()


def kill_clients(run: Run) -> None:
    run.pause()
    run.chance.choice(run.clients).kill()


def cut_connections(run: Run) -> None:
    for _ in range(4):
        # An answer of a transaction is small; the first ones of a connection are not.
        run.cut(run.chance.choice((100, 2000)) + run.chance.randrange(100))
        run.pause()


def kill_broker_in_prepare(run: Run) -> None:
    """In the long runs again, as soon as it has begun to recover from the first time."""
    run.broker.kill()
    for most in (10, 1) if soak() else (10,):
        os.environ[MARKERS_BEFORE_KILL] = str(run.chance.randint(0, most))
        try:
            run.broker.spawn()
        finally:
            del os.environ[MARKERS_BEFORE_KILL]
        run.broker.process.wait(2 * PATIENCE_SECONDS)
        run.broker.kill()
    run.broker.start()


FAULTS: Final = (no_fault, kill_broker, kill_clients, cut_connections, kill_broker_in_prepare)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_has_no_anomalies(
    tmp_path: Path, fault: Callable[[Run], None], seed: int
) -> None:
    with ExitStack() as stack:
        run = Run(tmp_path, seed, stack, proxied=fault is cut_connections)
        with scanning(run.bootstrap, run.recorder):
            for _ in range(ROUNDS):
                run.progress()
                fault(run)
            run.progress()
        run.finish()
        history = read_history(run.path)
        anomalies = check(history)
        assert not anomalies, "\n".join(f"{one.kind.value}: {one.evidence}" for one in anomalies)
        assert "Traceback" not in run.broker.log_text()
    committed = sum(transaction.is_committed for transaction in history.transactions)
    print(f"{len(history.transactions)} transactions, {committed} committed")
    assert committed
