"""Exactly once through transactions: broker and client are killed again and again.

A worker reads numbers and writes each of them to two partitions, offsets and all in transactions.
Judged from outside, by readers of committed records: every number is there once, in both partitions
or (while it was not committed) in none, and the group is where the numbers are.

The logs lose what was not synced, too, and get it back from the journal: batches, markers and the
coordinators' records (case 9 of the journal).

The clients of Python speak the first version of the protocol. For the second there is a producer
here that sends whatever was not answered again, until it is.
"""

from __future__ import annotations

import random
import select
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.end_txn import EndTxnRequest
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess, soak
from tests.support.power import lose_power
from tests.support.raw_client import LATEST, RawClient
from tests.support.raw_transactions import RawProducer, producers_of
from tests.support.seeds import run_seed
from tests.support.topics import create_topic, read_all

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS: Final = 200 if soak() else 6
RAW_KILLS: Final = 200 if soak() else 4
RECORDS: Final = 20_000 if soak() else 300
NAME: Final = "worker"
SOURCE, SINK = "source", "sink"
MAX_LIFE_SECONDS: Final = 0.3  # of broker and worker, once the worker has got on
CONFIG: Final = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "log.segment.bytes": str(1024 * 1024),
}


TRY_AGAIN: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


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


def committed_numbers(bootstrap: str) -> list[int]:
    """In the order of the log, which is that of both partitions."""
    found: dict[int, list[int]] = {0: [], 1: []}
    for partition, record in read_all(bootstrap, SINK, isolation="read_committed"):
        found[partition].append(int(record.value or b""))
    assert found[0] == found[1], "a transaction is torn"
    return found[0]


def check_nothing_hangs(bootstrap: str) -> None:
    with RawClient(bootstrap) as raw:
        for partition in (0, 1):
            end, stable = (
                raw.offset(SINK, LATEST, partition=partition, isolation_level=level).offset
                for level in (0, 1)
            )
            assert end == stable, "a transaction hangs"
            for producer in producers_of(raw, SINK, partition).values():
                assert producer.current_txn_start_offset == -1


def check(bootstrap: str, ends: list[int]) -> None:
    found = committed_numbers(bootstrap)
    assert sorted(found) == list(range(RECORDS)), "not once each"
    for parity in (0, 1):
        mine = [number for number in found if number % 2 == parity]
        assert mine == sorted(mine), "out of order"
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": NAME, "isolation.level": "read_committed"}
    )
    asked = [TopicPartition(SOURCE, partition) for partition in (0, 1)]
    assert [at.offset for at in consumer.committed(asked, PATIENCE_SECONDS)] == ends
    consumer.close()
    check_nothing_hangs(bootstrap)


def test_read_process_write_survives_kill_9(tmp_path: Path) -> None:
    seed = run_seed()
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
                    lose_power(tmp_path / "data", chance)
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


class StubbornProducer(RawProducer):
    """Of the second version: Produce adds the partition, each end gives a new epoch."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(RawClient(bootstrap), NAME)
        self._bootstrap = bootstrap
        self.resent = 0

    def insist(self, api: str, version: int, request: Any, code_of: Callable[[Any], int]) -> Any:
        """The answer, when it is a success; anything else but a reason to try again is none."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                answer = self.raw.ask(api, version, request)
            except OSError:
                self.resent += 1
                self._reconnect(deadline)
                continue
            if code_of(answer) == ErrorCode.NONE:
                return answer
            assert code_of(answer) in TRY_AGAIN, answer
            time.sleep(0.005)
        raise AssertionError(f"{api} is not answered")

    def _reconnect(self, deadline: float) -> None:
        self.raw.close()
        while True:
            try:
                self.raw = RawClient(self._bootstrap)
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            else:
                return

    def write(self, value: bytes) -> None:
        for partition in (0, 1):
            request = self.request(SINK, {partition: self.batch(SINK, partition, value)})
            self.insist(
                "produce", 12, request, lambda a: a.responses[0].partition_responses[0].error_code
            )

    def finish(self, *, commit: bool) -> None:
        request = EndTxnRequest(self.name, self.producer_id, self.epoch, commit)
        answer = self.insist("end_txn", 5, request, lambda a: a.error_code)
        assert (answer.producer_id, answer.producer_epoch) == (self.producer_id, self.epoch + 1)
        self.epoch += 1
        self.sequences.clear()


def test_t54_the_second_version_survives_kill_9(tmp_path: Path) -> None:
    seed = run_seed()
    chance = random.Random(seed)
    with BrokerProcess(tmp_path, config=CONFIG) as broker:
        create_topic(broker.bootstrap, SINK, partitions=2)
        producer = StubbornProducer(broker.bootstrap)
        assert producer.init().error_code == ErrorCode.NONE
        kept: list[int] = []
        ended = threading.Event()
        pause = random.Random(seed + 1)  # of the killer, in a thread of its own

        def produce() -> None:
            for number in count():
                if ended.is_set():
                    return
                producer.write(b"%d" % number)
                commit = chance.random() < 0.8
                producer.finish(commit=commit)
                if commit:
                    kept.append(number)

        with ThreadPoolExecutor(1) as pool:
            producing = pool.submit(produce)
            try:
                for _ in range(RAW_KILLS):
                    before = len(kept)
                    while len(kept) == before and not producing.done():
                        time.sleep(0.001)
                    time.sleep(pause.uniform(0, 0.1))
                    broker.kill()
                    lose_power(tmp_path / "data", pause)
                    broker.start()
            finally:
                ended.set()
            producing.result(PATIENCE_SECONDS)
        producer.raw.close()
        with RawClient(broker.bootstrap) as raw:
            producer.raw = raw
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not producer.describe().transaction_state.startswith("Complete"):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert committed_numbers(broker.bootstrap) == kept
        check_nothing_hangs(broker.bootstrap)
        assert "Traceback" not in broker.log_text()
    print(
        f"{RAW_KILLS} kills, {len(kept)} transactions kept, {producer.resent} requests sent again"
    )
