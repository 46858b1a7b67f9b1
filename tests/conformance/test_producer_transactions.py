"""The producer's transactions on Ottla's broker and on Apache Kafka, judged by librdkafka.

What is committed is what librdkafka reads in read_committed mode, and what the Admin client says
of groups, transactions and producers is what both brokers have to agree on.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from confluent_kafka import KafkaError as RdkafkaError
from confluent_kafka import TopicPartition as Assignment

from ottla import (
    Admin,
    ConsumerGroupMetadata,
    EmbeddedBroker,
    OffsetAndMetadata,
    Producer,
    ProducerRecord,
    TopicPartition,
)
from ottla.client.admin.transactions import NoSuchTransaction
from ottla.client.cluster.cluster import Client
from ottla.client.errors import KafkaError
from ottla.client.producer.batches import Identity
from ottla.client.producer.types import DeliveredRange, RecordTooLarge
from ottla.client.transactions.requests import TransactionCoordinator
from ottla.client.transactions.types import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFenced,
    TransactionAborted,
)
from ottla.sync import Producer as SyncProducer
from ottla.wire.error_codes import ErrorCode
from tests.support.jvm import ApacheKafka, why_no_jvm
from tests.support.ports import free_port
from tests.support.raw_client import RawClient, batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

PATIENCE: Final = 60.0
SCAN: Final = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
VERIFY: Final = "transaction.partition.verification.enable"
CONFIG: Final = {SCAN: "200", "group.initial.rebalance.delay.ms": "0"}

_numbers = count(1)


class Place(NamedTuple):
    """A broker, and names on it that no other test uses."""

    bootstrap: str
    name: str

    async def topic(self, partitions: int = 1, **configs: str) -> str:
        name = f"{self.name}-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        async with Admin(self.bootstrap) as admin:
            await admin.create_topic(name, partitions=partitions, configs=settings)
        return name

    def producer(self, **options: Any) -> Producer:
        return Producer(self.bootstrap, **{"transactional_id": self.name, **options})

    async def committed(self, topic: str, partitions: int = 1) -> list[bytes]:
        return await asyncio.to_thread(read_committed, self.bootstrap, topic, partitions)

    async def shows(self, topic: str, *values: bytes, partitions: int = 1) -> None:
        """Wait until these are what is committed: markers follow the answer to a commit."""
        found: list[bytes] = []
        async with asyncio.timeout(PATIENCE):
            while len(found) < len(values):
                found = await self.committed(topic, partitions)
        assert found == [*values]

    async def offsets(self, group: str) -> dict[int, tuple[int, str | None]]:
        async with Admin(self.bootstrap) as admin:
            found = await admin.list_group_offsets(group)
        return {one.partition: (one.offset, one.metadata) for one in found}


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """All that librdkafka reads up to the ends of what is stable, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([Assignment(topic, index, 0) for index in range(partitions)])
    found: list[bytes] = []
    ended = 0
    try:
        while ended < partitions:
            message = consumer.poll(PATIENCE)
            assert message is not None, "no end"
            if (error := message.error()) is not None:
                assert error.code() == RdkafkaError._PARTITION_EOF, error
                ended += 1
            else:
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return sorted(found)


@pytest.fixture(scope="module")
def own() -> Iterator[str]:
    with EmbeddedBroker(config=CONFIG) as broker:
        yield broker.bootstrap


@pytest.fixture(params=["ottla", "apache"])
def place(request: pytest.FixtureRequest) -> Place:
    """On each of the brokers that must not make a difference."""
    fixture = "apache_bootstrap" if request.param == "apache" else "own"
    return Place(request.getfixturevalue(fixture), f"txn-{next(_numbers)}")


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Ask until the answer is yes; nothing tells when it changes."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110  # see above
            await asyncio.sleep(0.05)


async def test_all_ways_to_send_are_committed_and_aborted_together(place: Place) -> None:
    topic, other = await place.topic(3), await place.topic()
    async with place.producer() as producer:

        async def send(tag: bytes) -> None:
            await producer.send(other, tag)
            await producer.send_many(topic, [ProducerRecord(tag, partition=n) for n in range(3)])
            table = pa.table({"key": [b"a", b"b", b"c"], "value": [tag] * 3})
            await producer.send_arrow(topic, table)

        async def fail() -> None:
            async with producer.transaction():
                await send(b"aborted")
                await place.shows(other, b"first")
                raise KeyError

        async with producer.transaction():
            await send(b"first")
            assert await place.committed(topic, 3) == []
        await place.shows(topic, *[b"first"] * 6, partitions=3)
        with pytest.raises(KeyError):
            await fail()
        for _ in range(3):
            async with producer.transaction():
                await send(b"more")
    await place.shows(topic, *[b"first"] * 6, *[b"more"] * 18, partitions=3)
    await place.shows(other, b"first", *[b"more"] * 3)


async def test_the_newest_producer_fences_the_others(place: Place) -> None:
    topic = await place.topic()
    async with place.producer() as first, place.producer() as second:

        async def overtaken() -> None:
            async with first.transaction():
                await first.send(topic, b"zombie")
                async with second.transaction():
                    await second.send(topic, b"kept")
                await first.send(topic, b"zombie")

        with pytest.raises(ProducerFenced, match="an id of its own"):
            await overtaken()
        with pytest.raises(ProducerFenced):
            await first.transaction().__aenter__()
        async with second.transaction():
            await second.send(topic, b"kept")
    await place.shows(topic, b"kept", b"kept")


async def test_offsets_are_committed_with_the_records_or_not_at_all(place: Place) -> None:
    topic = await place.topic()
    source = TopicPartition(topic, 0)
    group = f"{place.name}-g"
    async with place.producer() as producer:

        async def fail() -> None:
            async with producer.transaction() as transaction:
                await transaction.send_offsets(group, {source: 9})
                raise KeyError

        async with producer.transaction() as transaction:
            await producer.send(topic, b"v")
            await transaction.send_offsets(group, {source: OffsetAndMetadata(3, "note")})
            assert await place.offsets(group) == {}
        await until(lambda: place.offsets(group))
        assert await place.offsets(group) == {0: (3, "note")}
        with pytest.raises(KeyError):
            await fail()
        async with producer.transaction() as transaction:
            await transaction.send_offsets(group, {source: 5})

        async def moved() -> bool:
            return await place.offsets(group) == {0: (5, "")}

        await until(moved)


async def test_only_members_commit_for_their_group(place: Place) -> None:
    topic = await place.topic()
    group = f"{place.name}-g"
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=place.bootstrap, group_id=group)
    await consumer.start()
    try:
        coordinator = consumer._coordinator  # aiokafka has no public way to ask
        member = ConsumerGroupMetadata(group, coordinator.generation, coordinator.member_id)
        offsets = {TopicPartition(topic, 0): 1}
        async with place.producer() as producer:
            async with producer.transaction() as transaction:
                await transaction.send_offsets(member, offsets)
            stale = [
                member._replace(generation_id=member.generation_id + 1),
                member._replace(member_id="somebody"),
            ]
            for one in stale:
                with pytest.raises(AbortableTransactionError, match="repeat the work"):
                    async with producer.transaction() as transaction:
                        await transaction.send_offsets(one, offsets)
            async with producer.transaction() as transaction:
                await transaction.send_offsets(member, offsets)
    finally:
        await consumer.stop()


async def test_a_transaction_that_takes_too_long_is_aborted(place: Place) -> None:
    topic = await place.topic()
    async with Admin(place.bootstrap) as admin, place.producer(transaction_timeout_ms=100) as slow:

        async def is_aborted() -> bool:
            [found] = await admin.describe_transactions([place.name])
            return found.state == "CompleteAbort"

        async def dawdle() -> None:
            async with slow.transaction():
                await slow.send(topic, b"late")
                await until(is_aborted)

        with pytest.raises(ProducerFenced, match="outlived transaction_timeout_ms"):
            await dawdle()
    async with place.producer() as next_one, next_one.transaction():
        await next_one.send(topic, b"kept")
    await place.shows(topic, b"kept")


async def test_after_a_failed_send_the_epoch_is_raised(place: Place) -> None:
    topic = await place.topic(max_message_bytes="1000")
    async with Admin(place.bootstrap) as admin, place.producer() as producer:

        async def fail() -> None:
            async with producer.transaction():
                await producer.send(topic, b"small")
                with pytest.raises(RecordTooLarge):
                    await producer.send(topic, bytes(2000))

        with pytest.raises(TransactionAborted):
            await fail()
        [before] = await admin.describe_transactions([place.name])
        async with producer.transaction():
            await producer.send(topic, b"kept")
        [after] = await admin.describe_transactions([place.name])
    assert (after.producer_id, after.producer_epoch) > (before.producer_id, before.producer_epoch)
    await place.shows(topic, b"kept")


async def test_several_producers_share_one_transaction(place: Place) -> None:
    topic = await place.topic(2)
    group = f"{place.name}-g"
    async with Client(place.bootstrap) as client:
        transactions = TransactionCoordinator(client, place.name)
        identity = await transactions.init(60_000)

        async def task(partition: int) -> list[DeliveredRange]:
            async with place.producer(identity=identity) as guest:
                rows = pa.table({"value": [b"%d" % partition] * 3})
                return await guest.send_arrow(topic, rows, partition=partition)

        written = await asyncio.gather(task(0), task(1))
        assert [*written] == [[DeliveredRange(topic, n, 0, 3)] for n in range(2)]
        await transactions.commit_offsets(identity, group, {TopicPartition(topic, 0): 1})
        assert await place.committed(topic, 2) == []
        assert await transactions.end(identity, commit=True) == identity
        # Asked once more, as after an answer that was lost.
        await transactions.end(identity, commit=True)
        with pytest.raises(FatalTransactionError, match="INVALID_TXN_STATE"):
            await transactions.end(identity, commit=False)
        await place.shows(topic, *[b"0"] * 3, *[b"1"] * 3, partitions=2)
        # Whoever comes with the old identity is told.
        fresh = await transactions.init(60_000, identity)
        assert fresh.epoch == identity.epoch + 1
        async with place.producer(identity=identity) as guest:
            with pytest.raises(ProducerFenced):
                await guest.send(topic, b"late", partition=0)
        for one in (identity, Identity(identity.producer_id + 100, 0)):
            with pytest.raises(FatalTransactionError):
                await transactions.add_partitions(one, [TopicPartition(topic, 0)])
        with pytest.raises(ProducerFenced):
            await transactions.init(60_000, Identity(identity.producer_id, fresh.epoch + 5))


async def test_what_cannot_be_asked_for(place: Place) -> None:
    async with place.producer(transaction_timeout_ms=2**31 - 1) as producer:
        with pytest.raises(FatalTransactionError, match="lower transaction_timeout_ms"):
            await producer.transaction().__aenter__()
    async with Client(place.bootstrap) as client:
        transactions = TransactionCoordinator(client, place.name)
        identity = await transactions.init(60_000)
        for commit in (True, False):
            with pytest.raises(FatalTransactionError, match="INVALID_TXN_STATE"):
                await transactions.end(identity, commit=commit)
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await transactions.add_partitions(identity, [TopicPartition("no-such-topic", 0)])


def test_without_async(place: Place) -> None:
    topic = asyncio.run(place.topic())
    with SyncProducer(place.bootstrap, transactional_id=place.name) as producer:

        def fail() -> None:
            with producer.transaction():
                producer.send(topic, b"aborted")
                raise KeyError

        with producer.transaction() as transaction:
            producer.send(topic, b"kept")
            transaction.send_offsets(f"{place.name}-g", {TopicPartition(topic, 0): 1})
        with pytest.raises(KeyError):
            fail()
    asyncio.run(place.shows(topic, b"kept"))


async def test_admin_sees_transactions_where_they_are(place: Place) -> None:
    topic = await place.topic(2)
    async with Admin(place.bootstrap) as admin, place.producer() as producer:
        async with producer.transaction():
            await producer.send(topic, b"a", partition=1)
            [listed] = await admin.list_transactions(states=["Ongoing"], pattern=place.name)
            [found] = await admin.describe_transactions([place.name])
            producers = await admin.describe_producers([topic])
            assert await admin.list_transactions(longer_than=3600) == []
            # Open, and old enough, but its coordinator knows of it.
            assert await admin.find_hanging_transactions([topic], longer_than=0) == []
        assert (listed.transactional_id, listed.state) == (place.name, "Ongoing")
        assert listed.producer_id == found.producer_id
        assert found.partitions == [TopicPartition(topic, 1)]
        assert found.start_time_ms is not None
        assert producers[TopicPartition(topic, 0)] == []
        [writer] = producers[TopicPartition(topic, 1)]
        assert (writer.producer_id, writer.transaction_start_offset) == (found.producer_id, 0)
        await until(lambda: ended(admin, place.name))
        [writer] = (await admin.describe_producers([(topic, 1)]))[TopicPartition(topic, 1)]
        assert writer.transaction_start_offset is None
        with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            await admin.describe_transactions(["nobody"])
        with pytest.raises(NoSuchTransaction, match="no transaction is open"):
            await admin.abort_transaction(topic, 1, 0)


async def ended(admin: Admin, transactional_id: str) -> bool:
    [found] = await admin.describe_transactions([transactional_id])
    return found.state == "CompleteCommit"


async def test_admin_fences_a_producer(place: Place) -> None:
    topic = await place.topic()
    async with Admin(place.bootstrap) as admin, place.producer() as producer:

        async def fenced() -> None:
            async with producer.transaction():
                await producer.send(topic, b"aborted")
                await admin.fence_producer(place.name)

        with pytest.raises(ProducerFenced):
            await fenced()
    assert await place.committed(topic) == []


@pytest.mark.parametrize("kind", ["ottla", "apache"])
async def test_case_55_a_hanging_transaction_is_found_and_aborted(kind: str) -> None:
    """A batch of a transaction that no coordinator knows of: brokers that verify refuse it."""
    trusting = {VERIFY: "false"}
    with ExitStack() as stack:
        if kind == "ottla":
            bootstrap = stack.enter_context(EmbeddedBroker(config=trusting)).bootstrap
        else:
            if (reason := why_no_jvm()) is not None:
                pytest.skip(reason)
            kafka = ApacheKafka(
                heap="512m", config=trusting, jvm_options=("-XX:TieredStopAtLevel=1",)
            )
            bootstrap = stack.enter_context(kafka).bootstrap
        place = Place(bootstrap, f"txn-{next(_numbers)}")
        topic = await place.topic()
        async with Admin(bootstrap) as admin:
            await produce_unannounced(place, topic)
            async with Producer(bootstrap) as plain:
                await plain.send(topic, b"behind")
            assert await place.committed(topic) == []
            [hanging] = await admin.find_hanging_transactions([topic], longer_than=0)
            assert (hanging.topic, hanging.partition, hanging.producer.producer_id) == (
                topic,
                0,
                4711,
            )
            assert await admin.find_hanging_transactions([topic]) == []
            assert await admin.find_hanging_transactions([topic], longer_than=math.inf) == []
            start = hanging.producer.transaction_start_offset
            assert start == 0
            await admin.abort_transaction(topic, 0, start)
            assert await admin.find_hanging_transactions([topic], longer_than=0) == []
        await place.shows(topic, b"behind")


async def produce_unannounced(place: Place, topic: str) -> None:
    data = batch(b"hangs", producer_id=4711, producer_epoch=0, base_sequence=0, transactional=True)
    request = produce_request(topic, {0: data})._replace(transactional_id=place.name)
    async with asyncio.timeout(PATIENCE):
        with RawClient(place.bootstrap) as raw:
            while True:
                answer = await asyncio.to_thread(raw.ask, "produce", 9, request)
                code = answer.responses[0].partition_responses[0].error_code
                if code == ErrorCode.NONE:
                    return
                # The new partition has no leader yet.
                await asyncio.sleep(0.05)


async def test_a_broker_that_restarts_ends_no_transaction(tmp_path: Path) -> None:
    port = free_port()
    broker = EmbeddedBroker(tmp_path, port=port, config=CONFIG).start()
    place = Place(broker.bootstrap, "restarts")
    try:
        topic = await place.topic(2)
        async with place.producer() as producer:
            async with producer.transaction() as transaction:
                await producer.send(topic, b"before", partition=0)
                await transaction.send_offsets("g", {TopicPartition(topic, 0): 1})
                await asyncio.to_thread(broker.stop)
                broker = EmbeddedBroker(tmp_path, port=port, config=CONFIG)
                await asyncio.to_thread(broker.start)
                await producer.send(topic, b"after", partition=1)
            async with producer.transaction():
                await producer.send(topic, b"next", partition=0)
        await place.shows(topic, b"after", b"before", b"next", partitions=2)
        await until(lambda: place.offsets("g"))
        assert await place.offsets("g") == {0: (1, "")}
    finally:
        await asyncio.to_thread(broker.stop)
