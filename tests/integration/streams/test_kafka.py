"""The Kafka backend on Ottla's broker and, where there is a JVM, on Apache Kafka."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from ottla import EmbeddedBroker
from ottla.offsets import MemoryOffsetStore, OffsetKey
from ottla.streams import (
    BEGINNING,
    END,
    At,
    AutoCommit,
    ConnectOptions,
    ConsumerOptions,
    KafkaOptions,
    Mode,
    ProducerOptions,
    Reset,
    ShardKey,
    connect,
)
from ottla.streams.backends import kafka_source
from ottla.streams.backends.kafka_thread import ConsumerThread
from ottla.streams.errors import (
    CommitNotAllowed,
    ConfigError,
    ConnectError,
    DeliveryError,
    Evicted,
    GroupIsSet,
    GroupNotSet,
    NoStoredPosition,
    PositionOutOfRange,
    SeekOutOfRange,
    StreamError,
    StreamKeyNotFound,
    Unsupported,
)
from ottla.wire.schema.describe_groups import DescribeGroupsRequest
from ottla.wire.schema.leave_group import LeaveGroupRequest, MemberIdentity
from tests.support import stream_rebalance
from tests.support.raw_client import RawClient
from tests.support.stream_brokers import StreamBroker, kafka_contract
from tests.support.streams_contract import CONTRACT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ottla.streams import Consumer, Message, Streamer
    from tests.support.streams_contract import Store

EARLIEST = ConsumerOptions(reset=Reset.EARLIEST)


@pytest.fixture(scope="module", params=["ottla", "apache"])
def kafka(request: pytest.FixtureRequest) -> Iterator[StreamBroker]:
    if request.param == "apache":
        yield StreamBroker(request.getfixturevalue("apache_bootstrap"))
        return
    with EmbeddedBroker() as own:
        yield StreamBroker(own.bootstrap)


APACHE = pytest.mark.parametrize("kafka", ["apache"], indirect=True)
OTTLA = pytest.mark.parametrize("kafka", ["ottla"], indirect=True)
"""For what happens in the client alone, so that one broker is enough."""


def resumable(**more: Any) -> ConsumerOptions:
    options = {"auto_commit": AutoCommit.DISABLED, "reset": Reset.EARLIEST, "group": "g", **more}
    return ConsumerOptions(mode=Mode.RESUMABLE, **options)


def balanced(**more: Any) -> ConsumerOptions:
    options = {"auto_commit": AutoCommit.ROLLING, "reset": Reset.EARLIEST, **more}
    return ConsumerOptions(mode=Mode.LOAD_BALANCED, **options)


def open_(kafka: StreamBroker, *topics: str) -> Streamer:
    # Members hear of a rebalance by their heartbeats, which come three times per session timeout; a
    # fetch that waits for data at the end holds up the next one.
    quick = KafkaOptions(session_timeout=1.0, extra={"fetch.wait.max.ms": 50})
    options = ConnectOptions(timeout=30, kafka=quick)
    return connect(f"{kafka.url}/{','.join(topics)}", options)


async def fill(streamer: Streamer, topic: str, end: int, shards: int = 1) -> None:
    async with streamer.producer(topic) as producer:
        for number in range(end):
            await producer.send(b"%d" % number, shard=number % shards)
        await producer.flush()


async def take(consumer: Consumer, number: int) -> list[Message]:
    return [await consumer.next(10) for _ in range(number)]


def committed(kafka: StreamBroker, group: str, topic: str, shard: int = 0) -> int:
    client = KafkaConsumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        offset: int = client.committed([TopicPartition(topic, shard)], timeout=10)[0].offset
        return offset
    finally:
        client.close()


@APACHE  # the other has it elsewhere
@pytest.mark.parametrize("case", CONTRACT, ids=lambda case: case.__name__)
async def test_the_contract(kafka: StreamBroker, case: Callable[[Store], Awaitable[None]]) -> None:
    await case(kafka_contract(kafka.bootstrap, kafka.topic()))


async def test_t38_commit_is_a_position(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 8)
        options = resumable(group=f"{topic}-g")
        async with streamer.consumer(options=options) as consumer:
            for message in await take(consumer, 5):
                consumer.ack(message)
            assert await consumer.commit() == {ShardKey(topic, 0): 5}
        assert await asyncio.to_thread(committed, kafka, f"{topic}-g", topic) == 5
        async with streamer.consumer(options=options) as consumer:
            assert [one.seq for one in await take(consumer, 3)] == [5, 6, 7]


@OTTLA
async def test_t39_real_time_consumers_share_nothing(kafka: StreamBroker) -> None:
    topic = kafka.topic(2)
    async with (
        open_(kafka, topic) as streamer,
        streamer.consumer() as one,
        streamer.consumer() as two,
    ):
        await fill(streamer, topic, 20, shards=2)
        for consumer in (one, two):
            assert {m.payload for m in await take(consumer, 20)} == {b"%d" % n for n in range(20)}
            assert consumer.group is None
            with pytest.raises(CommitNotAllowed):
                await consumer.commit()


async def test_t40_two_members_share_four_partitions(kafka: StreamBroker) -> None:
    topic = kafka.topic(4)
    options = balanced(group=f"{topic}-g", auto_commit_interval=0.1)
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 40, shards=4)
        seen: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}

        async def work(name: str, consumer: Consumer) -> None:
            async for message in consumer:
                seen[name].append((message.shard, message.seq))
                consumer.ack(message)

        async with streamer.consumer(options=options) as a:
            worker = asyncio.create_task(work("a", a))
            await _until(lambda: len(seen["a"]) == 40)
            async with streamer.consumer(options=options) as b:
                other = asyncio.create_task(work("b", b))
                await _until(lambda: _owned(a) == _owned(b) == 2)
                await fill(streamer, topic, 40, shards=4)
                await _until(lambda: len(seen["a"]) + len(seen["b"]) >= 80)
                assert len({shard for shard, _ in seen["b"]}) == 2
                other.cancel()
                with suppress(asyncio.CancelledError):
                    await other
            await _until(lambda: _owned(a) == 4)
            await fill(streamer, topic, 40, shards=4)
            await _until(lambda: len(seen["a"]) + len(seen["b"]) >= 120)
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker
    assert len(seen["a"] + seen["b"]) == len(set(seen["a"] + seen["b"])) == 120


async def test_t41_external_positions_are_sought_at_assignment(kafka: StreamBroker) -> None:
    topic = kafka.topic(2)
    store = MemoryOffsetStore()
    await store.save(OffsetKey("g", topic, 0), 3)
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 10, shards=2)
        async with streamer.consumer(options=resumable(offsets=store)) as consumer:
            taken = await take(consumer, 7)
            assert [one.seq for one in taken if one.shard == 0] == [3, 4]
            assert [one.seq for one in taken if one.shard == 1] == [0, 1, 2, 3, 4]
            for message in taken:
                consumer.ack(message)
            await consumer.commit()
        assert await store.list_all() == {OffsetKey("g", topic, 0): 5, OffsetKey("g", topic, 1): 5}
        assert await asyncio.to_thread(committed, kafka, "g", topic) < 0
        # A shard of which the store knows nothing begins where it is told to, or not at all.
        latest = resumable(offsets=MemoryOffsetStore(), start_position=END)
        async with streamer.consumer(options=latest) as consumer:
            await fill(streamer, topic, 1)
            assert [one.seq for one in await take(consumer, 1)] == [5]
        with pytest.raises(NoStoredPosition):
            async with streamer.consumer(
                options=resumable(offsets=MemoryOffsetStore(), reset=Reset.NONE)
            ):
                pass
        await store.save(OffsetKey("g", topic, 0), 99)
        with pytest.raises(PositionOutOfRange, match="on_out_of_range"):
            async with streamer.consumer(options=resumable(offsets=store)):
                pass


async def test_t42_a_revoked_partition_waits_for_the_ack_in_flight(kafka: StreamBroker) -> None:
    topic = kafka.topic(2)
    group = f"{topic}-g"
    options = balanced(group=group, auto_commit_interval=60.0)
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 2, shards=2)
        async with streamer.consumer(options=options) as a:
            held = await take(a, 2)
            joining = asyncio.create_task(streamer.consumer(options=options).__aenter__())
            await asyncio.sleep(0.5)
            assert _owned(a) in {1, 2}  # the revocation is under way, or waits for the acks
            before = [await asyncio.to_thread(committed, kafka, group, topic, n) for n in (0, 1)]
            assert max(before) < 0
            for message in held:
                a.ack(message)
            b = await joining
            await _until(lambda: _owned(a) == _owned(b) == 1)
            (moved,) = _shards(b)
            position = await asyncio.to_thread(committed, kafka, group, topic, moved.shard)
            assert position == 1  # committed by the revocation: the interval is a minute
            assert await b.batch(1, 0.5) == []
            await b.close()


async def test_t42_a_lost_partition_is_not_committed(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    group = f"{topic}-g"
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 1)
        options = balanced(group=group, auto_commit_interval=60.0, drain_timeout=0)
        async with streamer.consumer(options=options) as consumer:
            a_message = (await take(consumer, 1))[0]
            source: Any = consumer._source
            consumer.ack(a_message)
            await source._revoke([ShardKey(topic, 0)], lost=True)
            assert consumer.positions() == {}
            consumer.ack(a_message)
            assert consumer.dropped_acks == 1
        assert await asyncio.to_thread(committed, kafka, group, topic) < 0


async def test_t20_rewind_and_seek(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer:
        async with streamer.producer(topic) as producer:
            for number in range(6):
                when = _at(number // 2)
                await producer.send(b"%d" % number, timestamp=when)
            await producer.flush()
        for options in (EARLIEST, resumable(group=f"{topic}-g")):
            async with streamer.consumer(options=options) as consumer:
                every = await take(consumer, 6)
                await consumer.rewind(At(3))
                assert (await consumer.next(10)).seq == 3
                await consumer.seek(every[0].timestamp)
                assert (await consumer.next(10)).payload == b"2"
                await consumer.seek(datetime.now(UTC) + timedelta(days=1))
                assert await consumer.batch(1, 0.3) == []
                await consumer.rewind(BEGINNING)
                assert (await consumer.next(10)).seq == 0
                await consumer.rewind(END)
                await fill(streamer, topic, 1)
                assert (await consumer.next(10)).timestamp > every[-1].timestamp
                await consumer.rewind(At(2))
                if options is not EARLIEST:
                    consumer.ack(await consumer.next(10))
                    assert await consumer.commit() == {ShardKey(topic, 0): 3}


@OTTLA
async def test_a_rewind_past_the_end_is_refused_and_changes_nothing(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 3)
        async with streamer.consumer(options=EARLIEST) as consumer:
            assert (await consumer.next(10)).seq == 0
            with pytest.raises(SeekOutOfRange, match="there is no offset 1099511627776 yet"):
                await consumer.rewind(At(1 << 40))
            assert (await consumer.next(10)).seq == 1
            await consumer.rewind(At(3))
            await fill(streamer, topic, 1)
            assert (await consumer.next(10)).seq == 3


async def test_a_balanced_member_that_seeks_leaves_its_group(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 1)
        options = balanced(group=f"{topic}-g", drain_timeout=0)
        async with streamer.consumer(options=options) as consumer:
            assert consumer.group == f"{topic}-g"
            await consumer.rewind(BEGINNING)
            assert consumer.group is None
            assert (await consumer.next(10)).seq == 0
            with pytest.raises(CommitNotAllowed, match="out of its group"):
                await consumer.commit()


@OTTLA
async def test_t09_cancelling_next_loses_nothing(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    rng = random.Random(9)
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 3000)
        got: list[bytes] = []
        async with streamer.consumer(options=EARLIEST) as consumer:

            async def one() -> None:
                got.append((await consumer.next()).payload)

            for _ in range(1000):
                task = asyncio.create_task(one())
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            while len(got) < 3000:
                await asyncio.wait_for(one(), 10)
    assert got == [b"%d" % number for number in range(3000)]


@OTTLA
async def test_t08_ten_readers_get_each_message_once(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 1000)
        got: list[int] = []
        async with streamer.consumer(options=EARLIEST) as consumer:

            async def read() -> None:
                while len(got) < 1000:
                    got.extend(one.seq for one in await consumer.batch(1, 0.2))

            await asyncio.gather(*(read() for _ in range(10)))
    assert sorted(got) == list(range(1000))


@OTTLA
async def test_a_slow_reader_bounds_what_is_read_ahead(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 20_000)
        async with streamer.consumer(options=EARLIEST) as consumer:
            first = await consumer.next(10)
            source: Any = consumer._source
            await asyncio.sleep(2.0)  # long enough to pause
            ahead = sum(len(batch) for batch in source._thread._batches)
            assert ahead + len(source._spare) + len(consumer._queue) < 8000
            rest = 1
            async for message in consumer:
                assert message.seq == first.seq + rest
                rest += 1
                if rest == 20_000:
                    break


@OTTLA
@pytest.mark.parametrize(
    ("options", "most"),
    [({"prefetch": 1}, 4), ({"prefetch_bytes": 2_000_000}, 20), ({"prefetch_bytes": 1}, 6)],
)
async def test_what_is_read_ahead_is_bounded_in_bytes(
    kafka: StreamBroker, options: dict[str, int], most: int
) -> None:
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer:
        async with streamer.producer(topic) as producer:
            for _ in range(100):
                await producer.send(bytes(400_000))
        chosen = ConsumerOptions(reset=Reset.EARLIEST, **options)  # type: ignore[arg-type]  # by name
        async with streamer.consumer(options=chosen) as consumer:
            await consumer.next(10)
            source: Any = consumer._source

            def held() -> int:
                ahead = sum(len(batch) for batch in source._thread._batches)
                return ahead + len(source._spare) + len(consumer._queue)

            before = -1
            while before != held():  # until nothing more is read
                before = held()
                await asyncio.sleep(0.5)
            assert before <= most
            for number in range(1, 10):  # with one byte, each takes a fetch of half a second
                assert (await consumer.next(10)).seq == number


async def test_partitions_that_appear_later_are_read_from_their_beginning(
    kafka: StreamBroker,
) -> None:
    topic = kafka.topic()
    options = ConsumerOptions(kafka=KafkaOptions(metadata_refresh=0.2))
    async with open_(kafka, topic) as streamer, streamer.consumer(options=options) as consumer:
        kafka.grow(topic, 2)
        await fill(streamer, topic, 2, shards=2)
        assert {one.shard for one in await take(consumer, 2)} == {0, 1}


async def test_null_headers_keys_and_lag(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer:
        async with streamer.producer(topic) as producer:
            receipt = await (await producer.send(b"v", key=b"k", headers=(("h", b"1"),)))
        raw = KafkaProducer({"bootstrap.servers": kafka.bootstrap})
        raw.produce(topic, None, b"tombstone")
        raw.flush(10)
        async with streamer.consumer(options=EARLIEST) as consumer:
            one, two = await take(consumer, 2)
            assert (one.key, one.headers, one.seq) == (b"k", (("h", b"1"),), receipt.seq)
            assert one.timestamp_ns == receipt.timestamp_ns
            assert (two.payload, two.is_null) == (b"", True)
            assert await consumer.lag() == {ShardKey(topic, 0): 0}


async def test_share_groups_deliver_release_and_accept(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    group = f"{topic}-share"
    options = ConsumerOptions(
        mode=Mode.SHARED, group=group, reset=Reset.EARLIEST, auto_commit=AutoCommit.ROLLING
    )
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 3)
        async with streamer.consumer(options=options) as consumer:
            first = await take(consumer, 3)
            assert [one.delivery for one in first] == [1, 1, 1]
            consumer.nack(first[1])
            for message in (first[0], first[2]):
                consumer.ack(message)
            again = await consumer.next(10)
            assert (again.seq, again.delivery) == (first[1].seq, 2)
            consumer.ack(again)
            for call in (consumer.rewind(BEGINNING), consumer.lag()):
                with pytest.raises(Unsupported, match="no position"):
                    await call
        async with streamer.consumer(options=options) as consumer:
            assert await consumer.batch(1, 1.0) == []


@OTTLA
async def test_what_is_not_there_is_named(kafka: StreamBroker) -> None:
    async with open_(kafka, "nothing-here") as streamer:
        with pytest.raises(StreamKeyNotFound, match="create it"):
            async with streamer.consumer(options=resumable()):
                pass
        topic = kafka.topic()
        async with streamer.producer(topic) as producer:
            with pytest.raises(DeliveryError, match="partition"):
                await (await producer.send(b"x", shard=99))
    with pytest.raises(ConnectError, match="address"):
        async with connect("kafka://127.0.0.1:1/a", ConnectOptions(timeout=1)):
            pass


async def test_t43_transactions(kafka: StreamBroker) -> None:
    source, target = kafka.topic(), kafka.topic()
    group = f"{source}-g"
    named = ProducerOptions(kafka=KafkaOptions(transactional_id=f"{source}-t"))
    async with open_(kafka, source) as streamer:
        await fill(streamer, source, 4)
        producer = streamer.producer(target, options=named)
        async with producer, streamer.consumer(options=resumable(group=group)) as consumer:
            first, second = await take(consumer, 2)
            async with producer.transaction(consumer):
                await producer.send(b"kept")
                consumer.ack(first)
            assert await asyncio.to_thread(committed, kafka, group, source) == 1
            with suppress(ZeroDivisionError):
                async with producer.transaction(consumer):
                    await producer.send(b"aborted")
                    consumer.ack(second)
                    raise ZeroDivisionError
            assert await asyncio.to_thread(committed, kafka, group, source) == 1
            with pytest.raises(CommitNotAllowed, match="did not take effect"):
                await consumer.commit()
            with pytest.raises(CommitNotAllowed, match="open another"):
                async with producer.transaction(consumer):
                    pass
        async with streamer.consumer(options=resumable(group=group)) as another:
            assert (await another.next(10)).seq == second.seq
        settled = KafkaOptions(extra={"isolation.level": "read_committed"})
        options = ConsumerOptions(reset=Reset.EARLIEST, kafka=settled)
        async with streamer.consumer(target, options=options) as reader:
            assert [one.payload for one in await reader.batch(9, 10)] == [b"kept"]
            assert await reader.batch(9, 1.0) == []


@OTTLA
async def test_a_transaction_needs_a_name_and_a_manual_consumer(kafka: StreamBroker) -> None:
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer, streamer.producer() as producer:
        with pytest.raises(ConfigError, match="transactional_id"):
            async with producer.transaction():
                pass
        with pytest.raises(ConfigError, match="DISABLED"):
            async with producer.transaction(streamer.consumer(options=balanced(group="g"))):
                pass


def test_t05_groups_and_options() -> None:
    streamer = connect("kafka://h/a")
    with pytest.raises(GroupIsSet):
        streamer.consumer(options=ConsumerOptions(group="g"))
    with pytest.raises(GroupNotSet):
        streamer.consumer(options=ConsumerOptions(mode=Mode.LOAD_BALANCED))
    with pytest.raises(ConfigError, match="auto_commit"):
        streamer.consumer(options=resumable(kafka=KafkaOptions(extra={"enable.auto.commit": True})))


def _owned(consumer: Consumer) -> int:
    return len(_shards(consumer))


def _shards(consumer: Consumer) -> set[ShardKey]:
    source: Any = consumer._source
    owned: set[ShardKey] = source._owned
    return owned


def _at(milliseconds: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110  # a test looks on
            await asyncio.sleep(0.02)


def evict(bootstrap: str, group: str) -> None:
    """Let the members of a group leave it without their knowledge."""
    with RawClient(bootstrap) as raw:
        described = raw.ask("describe_groups", 5, DescribeGroupsRequest([group])).groups[0]
        leaving = [MemberIdentity(member.member_id) for member in described.members]
        left = raw.ask("leave_group", 5, LeaveGroupRequest(group, members=leaving))
    assert [member.error_code for member in left.members] == [0]


async def test_a_commit_after_eviction_is_not_said_to_be_durable(kafka: StreamBroker) -> None:
    topic, group = kafka.topic(), "evicted"
    # A long session, so that no heartbeat tells the consumer before its commit does.
    options = ConnectOptions(timeout=30, kafka=KafkaOptions(session_timeout=30.0))
    async with connect(f"{kafka.url}/{topic}", options) as streamer:
        await fill(streamer, topic, 1)
        async with streamer.consumer(topic, options=resumable(group=group)) as consumer:
            consumer.ack(await consumer.next(20))
            await asyncio.to_thread(evict, kafka.bootstrap, group)
            with pytest.raises(Evicted, match="delivered again"):
                await consumer.commit()


@pytest.mark.long
@OTTLA
@pytest.mark.parametrize("what", ["seek", "together"])
def test_two_callbacks_in_one_read_do_not_abort_the_process(kafka: StreamBroker, what: str) -> None:
    """confluent-kafka asserts (`CallState_get: cs != NULL`) if a callback asks for topics."""
    topic = kafka.topic(stream_rebalance.SHARDS)
    done = subprocess.run(
        [sys.executable, "-m", stream_rebalance.__name__, what, kafka.bootstrap, topic],
        check=False,
        capture_output=True,
        text=True,
        timeout=2 * stream_rebalance.PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@OTTLA
async def test_a_commit_during_a_seek_waits_for_it(
    kafka: StreamBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer that the seek closes cannot commit, its successor does."""
    topic = kafka.topic()
    leave = ConsumerThread.close
    commits = []

    async def close(thread: ConsumerThread) -> None:
        await leave(thread)
        commits.append(asyncio.create_task(consumer._commits.now()))
        await asyncio.wait(commits, timeout=0.1)  # it has come to the closed consumer

    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 2)
        async with streamer.consumer(options=resumable(group=f"{topic}-g")) as consumer:
            consumer.ack(await consumer.next(10))
            with monkeypatch.context() as patch:
                patch.setattr(ConsumerThread, "close", close)
                async with asyncio.timeout(30):
                    await consumer.seek(_at(0))
                    assert await commits[0] == {ShardKey(topic, 0): 1}
    assert await asyncio.to_thread(committed, kafka, f"{topic}-g", topic) == 1


@OTTLA
async def test_a_commit_does_not_wait_for_a_coordinator_again_and_again(
    kafka: StreamBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka waits as long as the session lasts before it says that there is none."""
    monkeypatch.setattr(kafka_source, "SETTLE_TIME", 0.0)
    topic, attempts = kafka.topic(), []

    def no_coordinator(*_: object) -> KafkaError:
        attempts.append(1)
        return KafkaError(KafkaError._WAIT_COORD)

    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 1)
        async with streamer.consumer(options=resumable(group=f"{topic}-g")) as consumer:
            consumer.ack(await consumer.next(10))
            with monkeypatch.context() as patch:
                patch.setattr(kafka_source, "_commit", no_coordinator)
                with pytest.raises(StreamError, match="tried again"):
                    await consumer.commit()
            assert len(attempts) == 1
            assert await consumer.commit() == {ShardKey(topic, 0): 1}


@OTTLA
@pytest.mark.parametrize("milliseconds", [-1, -2, -3, -62_135_596_800_000])
async def test_a_seek_before_1970_goes_to_the_beginning(
    kafka: StreamBroker, milliseconds: int
) -> None:
    """Kafka's request for the offset at a time takes -1 for the end."""
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer:
        await fill(streamer, topic, 2)
        async with streamer.consumer() as consumer:
            await consumer.seek(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, 0, 0, milliseconds))
            assert [one.seq for one in await take(consumer, 2)] == [0, 1]


@OTTLA
async def test_a_call_that_is_cancelled_before_its_turn_harms_nothing(kafka: StreamBroker) -> None:
    """Before, the consumer's thread ended when it had a result for a caller that was gone."""
    topic = kafka.topic()
    async with open_(kafka, topic) as streamer, streamer.consumer() as consumer:
        asking = asyncio.create_task(consumer.lag())
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await fill(streamer, topic, 1)
        assert (await consumer.next(10)).seq == 0
        assert await consumer.lag() == {ShardKey(topic, 0): 0}
