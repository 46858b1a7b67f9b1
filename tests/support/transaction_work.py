"""A process that reads, writes and commits in transactions, and what must be true of its work."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.faults_broker import PATIENCE_SECONDS
from tests.support.topics import read_all

NAME: Final = "worker"
SOURCE, SINK = "source", "sink"


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

    def reach(self, ends: list[int]) -> None:
        """Wait until all before `ends` is committed, by one that gave up or another."""
        settings = {"bootstrap.servers": self._bootstrap, "group.id": NAME, "log_level": 0}
        consumer = Consumer(settings)
        asked = [TopicPartition(SOURCE, partition) for partition in (0, 1)]
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        at: list[int] = []
        while at != ends:
            stream = self._process.stdout
            assert stream is not None
            said = not stream.closed and select.select([stream], [], [], 0.1)[0]
            if said and not stream.readline() and self._reap():
                self._process = self._start()
            with suppress(KafkaException):  # its coordinator has just died
                at = [max(0, one.offset) for one in consumer.committed(asked, 5)]
            assert time.monotonic() < deadline, f"the worker does not get on from {at} to {ends}"
        consumer.close()

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


def fill(bootstrap: str, records: int, first: int = 0) -> list[int]:
    """Numbers from the first one on, in two partitions; where each of them ends."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True}
    )
    for number in range(first, first + records):
        producer.produce(SOURCE, b"%d" % number, partition=number % 2)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return ends_of(first + records)


def ends_of(records: int) -> list[int]:
    """Where the partitions end that have so many numbers."""
    return [(records + 1) // 2, records // 2]


def committed_numbers(bootstrap: str) -> list[int]:
    """In the order of the log, which is that of both partitions."""
    found: dict[int, list[int]] = {0: [], 1: []}
    for partition, record in read_all(bootstrap, SINK, isolation="read_committed"):
        found[partition].append(int(record.value or b""))
    assert found[0] == found[1], "a transaction is torn"
    return found[0]


def check_work(bootstrap: str, ends: list[int]) -> None:
    """Every number is there once, in order, and the group is where the numbers are."""
    found = committed_numbers(bootstrap)
    assert sorted(found) == list(range(sum(ends))), "not once each"
    for parity in (0, 1):
        mine = [number for number in found if number % 2 == parity]
        assert mine == sorted(mine), "out of order"
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": NAME, "isolation.level": "read_committed"}
    )
    asked = [TopicPartition(SOURCE, partition) for partition in (0, 1)]
    assert [at.offset for at in consumer.committed(asked, PATIENCE_SECONDS)] == ends
    consumer.close()
