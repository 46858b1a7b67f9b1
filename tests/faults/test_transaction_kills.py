"""Exactly once through transactions: broker and client are killed again and again.

A worker reads numbers and writes each of them to two partitions, offsets and all in transactions.
Judged from outside, by readers of committed records: every number is there once, in both partitions
or (while it was not committed) in none, and the group is where the numbers are.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess, soak
from tests.support.raw_client import LATEST, RawClient
from tests.support.raw_transactions import producers_of
from tests.support.topics import create_topic, read_all

KILLS: Final = 200 if soak() else 6
RECORDS: Final = 20_000 if soak() else 300
NAME: Final = "worker"
SOURCE, SINK = "source", "sink"
MAX_LIFE_SECONDS: Final = 0.3  # of broker and worker, once the worker has got on
CONFIG: Final = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "log.segment.bytes": str(1024 * 1024),
}


class WorkerProcess:
    """`tests.support.transaction_worker`, started again whenever it has ended too early."""

    def __init__(self, bootstrap: str, seed: int, ends: list[int]) -> None:
        self._bootstrap = bootstrap
        self._seed = seed
        self._ends = ends
        self.started = 0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.started += 1
        arguments = [self._bootstrap, SOURCE, SINK, NAME, str(self._seed + self.started)]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.transaction_worker", *arguments]
            + [str(end) for end in self._ends],
            stdout=subprocess.PIPE,
            bufsize=0,  # what Python has read ahead, `select` does not see
            cwd=Path(__file__).parents[2],
        )

    def progress(self) -> bool:
        """Wait for a transaction, by one that gave up or another; False when all is done."""
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        while time.monotonic() < deadline:
            stream = self._process.stdout
            assert stream is not None
            if select.select([stream], [], [], 1.0)[0]:
                if stream.readline():
                    return True
                if self._reap() == 0:
                    return False
                self._process = self._start()
        raise AssertionError("the worker does not get on")

    def kill(self) -> None:
        self._process.kill()
        self._reap()
        self._process = self._start()

    def _reap(self) -> int:
        status = self._process.wait(PATIENCE_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def close(self) -> None:
        self._process.kill()
        self._reap()


def fill(bootstrap: str) -> list[int]:
    """Numbers in two partitions; where each of them ends."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(RECORDS):
        producer.produce(SOURCE, b"%d" % number, partition=number % 2)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return [(RECORDS + 1) // 2, RECORDS // 2]


def check(bootstrap: str, ends: list[int]) -> None:
    found: dict[int, list[int]] = {0: [], 1: []}
    for partition, record in read_all(bootstrap, SINK, isolation="read_committed"):
        found[partition].append(int(record.value or b""))
    assert found[0] == found[1], "a transaction is torn"
    assert sorted(found[0]) == list(range(RECORDS)), "not once each"
    for parity in (0, 1):
        mine = [number for number in found[0] if number % 2 == parity]
        assert mine == sorted(mine), "out of order"
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": NAME, "isolation.level": "read_committed"}
    )
    asked = [TopicPartition(SOURCE, partition) for partition in (0, 1)]
    assert [at.offset for at in consumer.committed(asked, PATIENCE_SECONDS)] == ends
    consumer.close()
    with RawClient(bootstrap) as raw:
        for partition in (0, 1):
            end, stable = (
                raw.offset(SINK, LATEST, partition=partition, isolation_level=level).offset
                for level in (0, 1)
            )
            assert end == stable, "a transaction hangs"
            for producer in producers_of(raw, SINK, partition).values():
                assert producer.current_txn_start_offset == -1


def test_read_process_write_survives_kill_9(tmp_path: Path) -> None:
    seed = int(os.environ.get("OTTLA_SEED", "0")) or random.randrange(1, 2**31)
    print(f"OTTLA_SEED={seed}")
    chance = random.Random(seed)
    with BrokerProcess(tmp_path, config=CONFIG) as broker:
        for topic in (SOURCE, SINK):
            create_topic(broker.bootstrap, topic, partitions=2)
        ends = fill(broker.bootstrap)
        worker = WorkerProcess(broker.bootstrap, seed, ends)
        try:
            kills = 0
            while worker.progress() and kills < KILLS:
                time.sleep(chance.uniform(0, MAX_LIFE_SECONDS))
                kills += 1
                kill = chance.choice(["broker", "broker", "worker", "both"])
                if kill != "worker":
                    broker.kill()
                if kill != "broker":
                    worker.kill()
                if kill != "worker":
                    broker.start()
            while worker.progress():
                pass
        finally:
            worker.close()
        assert kills == KILLS, f"all was done after {kills} kills"
        check(broker.bootstrap, ends)
        assert "Traceback" not in broker.log_text()
    print(f"{kills} kills, {worker.started} workers")
