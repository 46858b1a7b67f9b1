"""kill -9 at any moment: what was acknowledged is there afterwards, once and in order.

Producers, a committer of group offsets, an administrator of topics and one of users, ACLs and
quotas (case 115 of the security specification) work without pause while the broker is killed and
started again, now and then before it is ready. A process that is killed leaves to the system what
it wrote. In one of the runs the logs lose some of what was not synced, as if the power were cut,
and it comes back from the journal.

`make soak` kills 1,000 times in each run; OTTLA_TEST_KILLS says how often, to do that in pieces.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess, soak
from tests.support.faults_client import PlainClient
from tests.support.faults_guardian import Guardian
from tests.support.faults_workers import (
    CREATE_TOPICS,
    Administrator,
    Committer,
    SequenceProducer,
    Worker,
    at_work,
)
from tests.support.power import lose_power
from tests.support.seeds import run_seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS: Final = 1_000 if soak() else 20
ROUNDS: Final = int(os.environ.get("OTTLA_TEST_KILLS", KILLS))
MIN_ACKED: Final = ROUNDS * (1_000 if soak() else 250)
MAX_LIFE_SECONDS: Final = 0.6  # from ready to killed
TOPIC: Final = "numbers"
PARTITIONS: Final = 3
# Small segments and frequent checkpoints, so that kills meet rolls and checkpoints too.
CONFIG: Final = {
    "log.segment.bytes": str(1024 * 1024),
    "log.flush.offset.checkpoint.interval.ms": "100",
    "authorizer.class.name": "standard",
    "super.users": "User:ANONYMOUS",
}
Log = list[tuple[str, int]]
"""(producer, sequence) by offset."""


def read_log(bootstrap: str, partition: int) -> Log:
    """Everything in the partition; offsets must run from 0 without a gap."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        log: Log = []
        while len(log) < end:
            messages = consumer.consume(min(10_000, end - len(log)), timeout=30)
            assert messages, f"partition {partition} ends at {len(log)}, not at {end}"
            for message in messages:
                assert message.error() is None, message.error()
                assert message.offset() == len(log)
                value = message.value()
                assert value is not None
                name, sequence = value.decode().split()
                log.append((name, int(sequence)))
        return log
    finally:
        consumer.close()


def check_log(log: Log, producer: SequenceProducer, partition: int) -> int:
    """Nothing acknowledged is lost or moved, nothing is out of order; the number of duplicates."""
    for sequence, offset in producer.acked[partition].items():
        assert log[offset] == (producer.name, sequence), f"{sequence} is not at {offset}"
    found = [sequence for name, sequence in log if name == producer.name]
    first_times = list(dict.fromkeys(found))
    assert first_times == list(range(producer.sent[partition])), "lost or out of order"
    return len(found) - len(first_times)


def wait_for_progress(producers: list[SequenceProducer]) -> None:
    """Each has something acknowledged that was not before."""
    before = [producer.acknowledged for producer in producers]
    deadline = time.monotonic() + PATIENCE_SECONDS
    for producer, count in zip(producers, before, strict=True):
        while producer.acknowledged == count:
            producer.check()
            assert time.monotonic() < deadline, f"{producer.name} is not served"
            time.sleep(0.001)


def kill_again_and_again(
    broker: BrokerProcess,
    workers: list[Worker],
    chance: random.Random,
    after_kill: Callable[[random.Random], None],
) -> None:
    producers = [worker for worker in workers if isinstance(worker, SequenceProducer)]
    wait_for_progress(producers)
    for _ in range(ROUNDS):
        time.sleep(chance.uniform(0, MAX_LIFE_SECONDS))
        broker.kill()
        for worker in workers:
            worker.check()
        after_kill(chance)
        broker.spawn()
        # Mostly it gets to work again; now and then the next kill meets its start or recovery.
        if chance.random() < 0.8:
            broker.wait_until_ready()
            wait_for_progress(producers)
    broker.wait_until_ready()


@pytest.mark.parametrize(
    ("mode", "loses_power"), [("journal", False), ("journal", True), ("group", False)]
)
def test_what_was_acknowledged_survives_kill_9(
    tmp_path: Path, mode: str, loses_power: bool
) -> None:
    seed = run_seed()
    lost = 0

    def after_kill(chance: random.Random) -> None:
        nonlocal lost
        if loses_power:
            lost += lose_power(tmp_path / "data", chance)

    with BrokerProcess(tmp_path, config={**CONFIG, "ottla.flush.mode": mode}) as broker:
        with PlainClient(broker.port) as client:
            request = CreateTopicsRequest((CreatableTopic(TOPIC, PARTITIONS, -1),))
            client.ask(CREATE_TOPICS, 5, request)
        where = broker.bootstrap, TOPIC, PARTITIONS
        once = SequenceProducer("once", *where, {"enable.idempotence": True})
        # With one request at a time even a producer that repeats itself keeps the order.
        plain = SequenceProducer("plain", *where, {"max.in.flight": 1})
        committer = Committer(broker.port, seed, TOPIC)
        administrator = Administrator(broker.port, seed)
        guardian = Guardian(broker.port, seed)
        workers: list[Worker] = [once, plain, committer, administrator, guardian]
        with at_work(workers):
            kill_again_and_again(broker, workers, random.Random(seed), after_kill)
        logs = [read_log(broker.bootstrap, partition) for partition in range(PARTITIONS)]
    duplicates = 0
    for partition, log in enumerate(logs):
        assert check_log(log, once, partition) == 0
        duplicates += check_log(log, plain, partition)
    print(f"{ROUNDS} kills; {once.acknowledged} records of an idempotent producer acknowledged")
    print(f"{plain.acknowledged} records of a plain producer, {duplicates} duplicates")
    print(f"{committer.acknowledged} commits, {administrator.acknowledged} changes of topics")
    assert once.acknowledged + plain.acknowledged >= MIN_ACKED
    assert committer.looks > ROUNDS // 2
    assert administrator.looks > ROUNDS // 2
    assert guardian.looks > ROUNDS // 2
    print(f"{guardian.acknowledged} changes of users, ACLs and quotas (case 115)")
    print(f"{lost} bytes of the logs were lost")
    assert bool(lost) == loses_power
    assert "Traceback" not in broker.log_text()
