"""Transactions of other people's clients: case 49 with each of them, offsets, tools, restarts.

What a client commits all of them read, and nobody sees what it aborts. Where a JVM cannot run, the
reason is the skip's reason.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPosition
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Position

with warnings.catch_warnings():
    # kafka-python reads its own schemas with a function that Python is about to drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

import ottla
from ottla.broker.running.node import FEATURES
from ottla.wire.error_codes import ErrorCode
from ottla.wire.records import NO_TIMESTAMP, Record
from tests.support.java_client import JavaClient
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.raw_client import LATEST, RawClient, now_ms
from tests.support.raw_transactions import RawProducer, producers_of
from tests.support.topics import PATIENCE, read_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

HOUR_MS: Final = 3_600_000
VALUES: Final = [b"%d" % number for number in range(10)]
HALF: Final = len(VALUES) // 2
OFFSETS: Final = [3, 4]

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    """Without verification a transaction can be left that no coordinator knows of."""
    config = {"transaction.partition.verification.enable": "false"}
    with ottla.EmbeddedBroker(config=config) as broker:
        yield broker


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with kept_tools() as kept:
        yield kept


@pytest.fixture
def topic(broker: ottla.EmbeddedBroker) -> str:
    name = f"transacted-{next(_numbers)}"
    broker.create_topic(name, partitions=2)
    return name


def by_confluent(bootstrap: str, topic: str, name: str, *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, partition=number % 2)
    if commit:
        producer.commit_transaction(PATIENCE)
    else:
        assert producer.flush(PATIENCE) == 0
        producer.abort_transaction(PATIENCE)


@contextmanager
def kafka_python(bootstrap: str, name: str, *, commit: bool) -> Iterator[kafka.KafkaProducer]:
    """A transaction of kafka-python."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        yield producer
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    finally:
        producer.close()


@asynccontextmanager
async def aiokafka(bootstrap: str, name: str, *, commit: bool) -> AsyncIterator[AIOKafkaProducer]:
    """A transaction of aiokafka."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await producer.start()
    try:
        await producer.begin_transaction()
        yield producer
        if commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
    finally:
        await producer.stop()


def by_kafka_python(bootstrap: str, topic: str, name: str, *, commit: bool) -> None:
    with kafka_python(bootstrap, name, commit=commit) as producer:
        for number, value in enumerate(VALUES):
            producer.send(topic, value, partition=number % 2)
        producer.flush(PATIENCE)


def by_aiokafka(bootstrap: str, topic: str, name: str, *, commit: bool) -> None:
    async def run() -> None:
        async with aiokafka(bootstrap, name, commit=commit) as producer:
            for number, value in enumerate(VALUES):
                await producer.send_and_wait(topic, value, partition=number % 2)

    asyncio.run(run())


PYTHON_CLIENTS: Final = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    placed = read_all(bootstrap, topic, isolation="read_committed")
    return sorted(one.record.value or b"" for one in placed)


def uncommitted_count(bootstrap: str, topic: str) -> int:
    return len(read_all(bootstrap, topic))


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_t49_commit_and_abort(broker: ottla.EmbeddedBroker, topic: str, client: str) -> None:
    run: Callable[..., None] = PYTHON_CLIENTS[client]
    run(broker.bootstrap, topic, f"{client}-{topic}", commit=False)
    run(broker.bootstrap, topic, f"{client}-{topic}", commit=True)
    assert committed_values(broker.bootstrap, topic) == VALUES
    assert uncommitted_count(broker.bootstrap, topic) == 2 * len(VALUES)
    with RawClient(broker.bootstrap) as raw:
        for index in (0, 1):
            ends = [
                raw.offset(topic, LATEST, partition=index, isolation_level=level).offset
                for level in (0, 1)
            ]
            assert ends == [2 * (HALF + 1)] * 2  # records and markers


def test_t49_commit_and_abort_in_java(
    broker: ottla.EmbeddedBroker, topic: str, tools: JavaTools
) -> None:
    """With the second version of the protocol, which it alone speaks."""
    java = JavaClient(broker.bootstrap, tools)
    records = [Record(0, NO_TIMESTAMP, None, value) for value in VALUES]
    config = {"transactional.id": f"java-{topic}"}
    java.produce(topic, records, partition=0, transaction="abort", config=config)
    java.produce(topic, records, partition=1, transaction="commit", config=config)
    read = java.consume(topic, len(VALUES), config={"isolation.level": "read_committed"})
    assert [one.record.value for one in read] == VALUES
    assert committed_values(broker.bootstrap, topic) == VALUES
    assert uncommitted_count(broker.bootstrap, topic) == 2 * len(VALUES)


async def test_t49_readers_stop_at_the_open_transaction(
    broker: ottla.EmbeddedBroker, topic: str
) -> None:
    """Of one that is open, and all that comes after its start, readers see nothing."""
    with RawClient(broker.bootstrap) as raw:
        by_confluent(broker.bootstrap, topic, topic, commit=True)
        open_one = RawProducer(raw)
        open_one.init()
        open_one.add_until_done(topic, 0)
        assert open_one.send(topic, 0, b"open").error_code == 0
        by_confluent(broker.bootstrap, topic, topic, commit=True)
        stable = raw.offset(topic, LATEST, isolation_level=1).offset
        assert stable == HALF + 1

        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, isolation_level="read_committed"
        )
        await consumer.start()
        try:
            partition = AioPosition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            found: list[bytes] = []
            while len(found) < HALF:
                found += await _values(consumer)
            assert found == VALUES[::2]
            assert await _values(consumer) == []
            assert open_one.end(commit=False).error_code == 0
            while len(found) < 2 * HALF:
                found += await _values(consumer)
            assert found == VALUES[::2] * 2
        finally:
            await consumer.stop()


async def _values(consumer: Any) -> list[bytes]:
    batches = await consumer.getmany(timeout_ms=300)
    return [message.value for batch in batches.values() for message in batch]


# -- offsets ---------------------------------------------------------------------------------------


def committed_offsets(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = consumer.committed([Position(topic, 0), Position(topic, 1)], PATIENCE)
        return [position.offset for position in found]
    finally:
        consumer.close()


def offsets_by_confluent(bootstrap: str, topic: str, group: str, *, commit: bool) -> None:
    settings = {"bootstrap.servers": bootstrap}
    producer = Producer({**settings, "transactional.id": group})
    consumer = Consumer({**settings, "group.id": group})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    positions = [Position(topic, index, offset) for index, offset in enumerate(OFFSETS)]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE)
    if commit:
        producer.commit_transaction(PATIENCE)
    else:
        producer.abort_transaction(PATIENCE)
    consumer.close()


def offsets_by_kafka_python(bootstrap: str, topic: str, group: str, *, commit: bool) -> None:
    positions = {
        kafka.TopicPartition(topic, index): kafka.structs.OffsetAndMetadata(offset, "", -1)
        for index, offset in enumerate(OFFSETS)
    }
    with kafka_python(bootstrap, group, commit=commit) as producer:
        producer.send_offsets_to_transaction(positions, group)


def offsets_by_aiokafka(bootstrap: str, topic: str, group: str, *, commit: bool) -> None:
    positions = {AioPosition(topic, index): at for index, at in enumerate(OFFSETS)}

    async def run() -> None:
        async with aiokafka(bootstrap, group, commit=commit) as producer:
            await producer.send_offsets_to_transaction(positions, group)

    asyncio.run(run())


@pytest.mark.parametrize(
    "run", [offsets_by_confluent, offsets_by_kafka_python, offsets_by_aiokafka]
)
def test_t52_offsets_are_part_of_the_transaction(
    broker: ottla.EmbeddedBroker, topic: str, run: Callable[..., None]
) -> None:
    group = f"group-of-{topic}"
    run(broker.bootstrap, topic, group, commit=False)
    assert committed_offsets(broker.bootstrap, group, topic) == [OFFSET_INVALID] * 2
    run(broker.bootstrap, topic, group, commit=True)
    assert committed_offsets(broker.bootstrap, group, topic) == OFFSETS


def test_t54_offsets_of_the_java_client(
    broker: ottla.EmbeddedBroker, topic: str, tools: JavaTools
) -> None:
    """A consumer's records and positions go into one transaction."""
    by_confluent(broker.bootstrap, topic, topic, commit=True)
    group, sink = f"group-of-{topic}", f"sink-of-{topic}"
    broker.create_topic(sink)
    java = JavaClient(broker.bootstrap, tools)
    java.copy(topic, sink, len(VALUES), group=group, transactional_id=group)
    assert committed_values(broker.bootstrap, sink) == VALUES
    # Past the last record; the marker behind it may or may not have been passed by then.
    for offset in committed_offsets(broker.bootstrap, group, topic):
        assert offset in (HALF, HALF + 1)


# -- fencing, tools and restarts -------------------------------------------------------------------


def test_t48_a_second_producer_fences_the_first(broker: ottla.EmbeddedBroker, topic: str) -> None:
    first = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    first.init_transactions(PATIENCE)
    first.begin_transaction()
    first.produce(topic, b"lost", partition=0)
    assert first.flush(PATIENCE) == 0
    by_confluent(broker.bootstrap, topic, topic, commit=True)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(PATIENCE)
    assert fenced.value.args[0].fatal()
    assert committed_values(broker.bootstrap, topic) == VALUES


def test_t54_the_feature_is_shown(broker: ottla.EmbeddedBroker, tools: JavaTools) -> None:
    shown = tools.run("kafka-features", "describe", bootstrap=broker.bootstrap)
    line = next(line for line in shown.stdout.splitlines() if "transaction.version" in line)
    assert f"FinalizedVersionLevel: {FEATURES['transaction.version']}" in line


def test_t55_a_hanging_transaction(
    broker: ottla.EmbeddedBroker, topic: str, tools: JavaTools
) -> None:
    """Found by Kafka's tool, and ended by it."""

    def run(*args: str) -> str:
        done = tools.run("kafka-transactions", *args, bootstrap=broker.bootstrap)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with RawClient(broker.bootstrap) as raw:
        producer = RawProducer(raw)
        producer.init()
        sent = producer.send(topic, 1, timestamp=now_ms() - HOUR_MS)
        assert sent.error_code == 0
        assert raw.offset(topic, LATEST, partition=1, isolation_level=1).offset == 0
        listed = run("list")
        assert [line.split() for line in listed.splitlines() if producer.name in line] == [
            [producer.name, "1", str(producer.producer_id), "Empty"]
        ]
        described = run("describe", "--transactional-id", producer.name)
        assert "Empty" in described
        hanging = run("find-hanging", "--broker-id", "1")
        assert [line.split()[:3] for line in hanging.splitlines() if topic in line] == [
            [topic, "1", str(producer.producer_id)]
        ]
        run(
            *("abort", "--topic", topic, "--partition", "1"),
            *("--start-offset", str(sent.base_offset)),
        )
        assert topic not in run("find-hanging", "--broker-id", "1")
        assert raw.offset(topic, LATEST, partition=1, isolation_level=1).offset == 2
        found = producers_of(raw, topic, 1)[producer.producer_id]
        assert found.current_txn_start_offset == -1
        assert producer.end(commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    assert committed_values(broker.bootstrap, topic) == []
