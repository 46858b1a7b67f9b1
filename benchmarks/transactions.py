"""Transactions: the broker against Apache Kafka, and the clients against each other.

    python -m benchmarks.transactions [--quick]

A transaction is RECORDS records of 100 bytes into PARTITIONS partitions, and its commit. Brokers
are driven by the same confluent-kafka client; clients all talk to the same broker, one that keeps
what it was given in the page cache, as Kafka does. What was committed is counted at the end by a
reader of committed records. A turn of the asyncio clients has their start in it. Nobody has set
targets.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from benchmarks._harness import Row, faster, report, skipped, take_turns
from benchmarks._ottla import OttlaProcess
from benchmarks._peers import apache_kafka, why_no_jvm
from benchmarks.broker import AS_KAFKA, create_topic
from ottla import Producer as OttlaProducer
from ottla import ProducerRecord
from ottla.sync import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks._harness import Timing

QUICK = "--quick" in sys.argv
ROUNDS: Final = 5 if QUICK else 11
TRANSACTIONS: Final = 100
RECORDS: Final = 10
PARTITIONS: Final = 2
VALUE: Final = b"v" * 100
TOPIC: Final = "transactions"


def main() -> None:
    with ExitStack() as stack:
        ours = stack.enter_context(OttlaProcess(AS_KAFKA)).bootstrap
        synced = stack.enter_context(OttlaProcess()).bootstrap
        peer = apache_kafka()
        if peer is None:
            skipped("Apache Kafka", str(why_no_jvm()))
        kafka = None if peer is None else stack.enter_context(peer).bootstrap
        rows = [] if kafka is None else broker_rows(ours, synced, kafka)
        rows += client_rows(ours)
    report(f"transactions: {RECORDS} records, {PARTITIONS} partitions", rows, ("confluent-kafka",))


def broker_rows(ours: str, synced: str, kafka: str) -> list[Row]:
    brokers = (ours, synced, kafka)
    own, durable, theirs = take_turns(*(confluent(one) for one in brokers), rounds=ROUNDS)
    for bootstrap in brokers:
        check(bootstrap)
    return [
        faster("page cache as Kafka, peer Apache Kafka", own, theirs, None, per_second),
        faster("synced to disk, peer Apache Kafka", durable, theirs, None, per_second),
    ]


def client_rows(bootstrap: str) -> list[Row]:
    with asyncio.Runner() as runner:
        own, rdkafka, aiokafka = take_turns(
            lambda: runner.run(ottla(bootstrap)),
            confluent(bootstrap),
            lambda: runner.run(asyncio_peer(bootstrap)),
            rounds=ROUNDS,
        )
    check(bootstrap)
    return [
        faster("ottla.Producer, peer confluent-kafka", own, rdkafka, None, per_second),
        faster("ottla.Producer, peer aiokafka", own, aiokafka, None, per_second),
    ]


def confluent(bootstrap: str) -> Callable[[], None]:
    """A turn of one producer, which is there from before the first turn."""
    create_topic(bootstrap, TOPIC, PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "confluent", "linger.ms": 0}
    )
    producer.init_transactions(60)

    def turn() -> None:
        for _ in range(TRANSACTIONS):
            producer.begin_transaction()
            for number in range(RECORDS):
                producer.produce(TOPIC, VALUE, partition=number % PARTITIONS)
            producer.commit_transaction(60)

    return turn


async def ottla(bootstrap: str) -> None:
    records = [ProducerRecord(VALUE, partition=number % PARTITIONS) for number in range(RECORDS)]
    async with OttlaProducer(bootstrap, transactional_id="ottla") as producer:
        for _ in range(TRANSACTIONS):
            async with producer.transaction():
                await producer.send_many(TOPIC, records)


async def asyncio_peer(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aio") as producer:
        for _ in range(TRANSACTIONS):
            async with producer.transaction():
                for number in range(RECORDS):
                    await producer.send(TOPIC, VALUE, partition=number % PARTITIONS)


def check(bootstrap: str) -> None:
    """Raise unless whole transactions are there, and nothing else."""
    with Reader(bootstrap, TOPIC, isolation_level="read_committed", stop="latest") as reader:
        found = sum(len(table) for table in reader)
    assert found, "nothing is committed"
    assert found % (TRANSACTIONS * RECORDS) == 0, f"{found} records are committed"


def per_second(timing: Timing) -> str:
    return f"{TRANSACTIONS / timing.median:,.0f} /s"


if __name__ == "__main__":
    main()
