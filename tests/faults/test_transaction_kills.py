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
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.end_txn import EndTxnRequest
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess, soak
from tests.support.power import lose_power
from tests.support.raw_client import LATEST, RawClient
from tests.support.raw_transactions import RawProducer, producers_of
from tests.support.seeds import run_seed
from tests.support.topics import create_topic
from tests.support.transaction_work import (
    NAME,
    SINK,
    SOURCE,
    WorkerProcess,
    check_work,
    committed_numbers,
    fill,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS: Final = 200 if soak() else 6
RAW_KILLS: Final = 200 if soak() else 4
RECORDS: Final = 20_000 if soak() else 300
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


def test_read_process_write_survives_kill_9(tmp_path: Path) -> None:
    seed = run_seed()
    chance = random.Random(seed)
    with BrokerProcess(tmp_path, config=CONFIG) as broker:
        for topic in (SOURCE, SINK):
            create_topic(broker.bootstrap, topic, partitions=2)
        ends = fill(broker.bootstrap, RECORDS)
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
        check_work(broker.bootstrap, ends)
        check_nothing_hangs(broker.bootstrap)
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
