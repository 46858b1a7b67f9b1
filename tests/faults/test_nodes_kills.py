"""Nodes and their supervisor die, hang and fail again and again, under every kind of client.

An idempotent producer, a worker that reads, writes and commits in transactions, members of a
consumer group and of a share group work on `ottla broker --nodes 3`. Meanwhile nodes are killed,
stopped, and killed until their siblings take over, and the supervisor is killed, too. Afterwards no
acknowledged record is missing, none is there twice, no transaction is torn, nobody began below a
committed position, nothing that was accepted has come back, and everybody has got on after each
fault; how long that took is printed.

`OTTLA_TEST_SEED` repeats a run of `make soak`, `OTTLA_TEST_ROUNDS` makes it shorter.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from typing import TYPE_CHECKING, Final

from tests.support.faults_broker import soak
from tests.support.nodes_group import GroupMember, Progress
from tests.support.nodes_load import PARTITIONS, Load
from tests.support.nodes_process import NodesProcess, gone, wait_for
from tests.support.ports import free_base
from tests.support.seeds import run_seed
from tests.support.share_workers import Accepting, Ledger, produce_numbers, set_group
from tests.support.topics import create_topic
from tests.support.transaction_work import SINK, SOURCE, WorkerProcess, check_work, ends_of, fill

if TYPE_CHECKING:
    from pathlib import Path

NODES: Final = 3
ROUNDS: Final = int(os.environ.get("OTTLA_TEST_ROUNDS", "200")) if soak() else 20
SENT: Final = 40  # records in a round, before and after the fault
SHARED: Final = 100
NUMBERS: Final = 40  # for the worker in a round
ORDERS, QUEUE, GROUP, READERS = "orders", "queue", "sharers", "readers"
FAULTS: Final = ("kill", "kill", "kill", "stop", "crash loop", "supervisor")
OPTIONS: Final = ("--set", "broker.session.timeout.ms=2000")


class Delays:
    """How long each kind of client took to get on after each kind of fault."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], list[float]] = {}
        self._fault = ""
        self._since = 0.0

    def fault(self, fault: str) -> None:
        self._fault, self._since = fault, time.monotonic()

    def got_on(self, who: str) -> None:
        """The next one is waited for from now on."""
        now = time.monotonic()
        self._seconds.setdefault((self._fault, who), []).append(now - self._since)
        self._since = now

    def tell(self) -> None:
        print()
        for (fault, who), seconds in sorted(self._seconds.items()):
            middle, longest = statistics.median(seconds), max(seconds)
            print(f"{fault:10} x {len(seconds):3}  {who:9} {middle:6.2f} s, {longest:6.2f} s")


class Broker:
    """`ottla broker --nodes`, on ports that it has again after a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._port = free_base(NODES)
        self.process = self._start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def _start(self) -> NodesProcess:
        options = ("--port", str(self._port), *OPTIONS)
        return NodesProcess(self._path, NODES, *options).__enter__()

    def suffer(self, fault: str, chance: random.Random) -> None:
        # Not one that waits for its next start, which is up to a minute after many crash loops.
        wait_for(self.process.nodes, "a node runs")
        victim = chance.choice(sorted(self.process.nodes()))
        match fault:
            case "kill":
                self._kill(victim)
            case "stop":
                stopped = self._pid(victim)
                self.process.signal_node(victim, signal.SIGSTOP)
                wait_for(lambda: gone([stopped]), "a stopped node is killed")
            case "crash loop":
                before = self._taken_over(victim)
                while self._taken_over(victim) == before:
                    self._kill(victim)
            case "supervisor":
                nodes = list(self.process.nodes().values())
                self.process.kill()
                wait_for(lambda: gone(nodes), "nodes without a supervisor end")
                self.close()
                self.process = self._start()

    def _taken_over(self, node: int) -> int:
        """How often other nodes have taken over from it."""
        return self.process.errors().count(f"node {node} keeps failing")

    def _pid(self, node: int) -> int:
        wait_for(lambda: node in self.process.nodes(), f"node {node} runs")
        return self.process.nodes()[node]

    def _kill(self, node: int) -> None:
        killed = self._pid(node)
        told = self._ended(node)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: gone([killed]), "a killed node is gone")
        wait_for(lambda: self._ended(node) > told, "its supervisor knows of it")

    def _ended(self, node: int) -> int:
        return self.process.errors().count(f"node {node} ended with status")

    def close(self) -> None:
        self.process.__exit__(None, None, None)


def test_nothing_is_lost_or_doubled_while_nodes_die(tmp_path: Path) -> None:
    seed = run_seed()
    chance = random.Random(seed)
    broker = Broker(tmp_path / "data")
    ledger = Ledger()
    progress = Progress()
    delays = Delays()
    members: list[Accepting | GroupMember] = []
    worker: WorkerProcess | None = None
    try:
        bootstrap = broker.bootstrap
        create_topic(bootstrap, ORDERS, partitions=PARTITIONS)
        create_topic(bootstrap, QUEUE, partitions=1)
        for topic in (SOURCE, SINK):
            create_topic(bootstrap, topic, partitions=2)
        ends = ends_of(ROUNDS * NUMBERS)
        worker = WorkerProcess(bootstrap, seed, ends)
        set_group(bootstrap, GROUP, share_auto_offset_reset="earliest")
        members += [Accepting(bootstrap, GROUP, QUEUE, ledger) for _ in range(2)]
        members += [GroupMember(bootstrap, READERS, ORDERS, progress) for _ in range(2)]
        for member in members:
            member.start()
        load = Load(bootstrap, ORDERS)
        for turn in range(ROUNDS):
            fault = chance.choice(FAULTS)
            print(f"round {turn}: {fault}", flush=True)
            filled = fill(bootstrap, NUMBERS, turn * NUMBERS)
            load.send(SENT, wait=False)
            time.sleep(chance.uniform(0, 0.3))
            broker.suffer(fault, chance)
            delays.fault(fault)
            load.send(SENT)
            delays.got_on("producer")
            produce_numbers(bootstrap, QUEUE, range(turn * SHARED, (turn + 1) * SHARED))
            delays.got_on("another")
            worker.reach(filled)
            delays.got_on("worker")
            wait_for(
                lambda: len(ledger.accepted.keys() | ledger.in_doubt) == (turn + 1) * SHARED,  # noqa: B023
                f"all of the queue is accepted after {fault} in round {turn}",
            )
            delays.got_on("sharers")
            wait_for(
                lambda: len(progress.read) >= len(load.acked),
                f"all records are read after {fault} in round {turn}",
            )
            delays.got_on("readers")
            assert all(member.is_alive() for member in members)
        for member in members:
            member.stop()
        load.check(bootstrap)
        check_work(bootstrap, ends)
        assert progress.read == set(load.acked)
        assert not progress.fell_back
        assert not ledger.came_back
        assert set(ledger.accepted.values()) == {1}
    finally:
        delays.tell()
        if worker is not None:
            worker.close()
        broker.close()
