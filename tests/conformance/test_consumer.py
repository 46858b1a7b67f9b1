"""`ottla.Consumer` against Ottla and Apache Kafka, alone and beside other people's members."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

import ottla
from ottla import Consumer
from ottla.errors import (
    BadArgument,
    ClientClosed,
    ClientError,
    CommitFailed,
    NoOffset,
    NotSubscribed,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.client.reader.types import Record

PARTITIONS = 4
PROTOCOLS = ("consumer", "classic")
PATIENCE = 60.0
_numbers = count()


@pytest.fixture(params=["ottla", "apache"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == "apache":
        found: str = request.getfixturevalue("apache_bootstrap")
        return found
    broker: ottla.EmbeddedBroker = request.getfixturevalue("share_broker")
    return broker.bootstrap


@pytest.fixture
def own(share_broker: ottla.EmbeddedBroker) -> str:
    """Where it is the client alone that is tested."""
    return share_broker.bootstrap


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


async def new_topic(bootstrap: str, partitions: int = PARTITIONS) -> str:
    name = f"consumer-{next(_numbers)}"
    async with ottla.Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=partitions)
    return name


async def fill(bootstrap: str, topic: str, numbers: range, partitions: int = PARTITIONS) -> None:
    async with ottla.Producer(bootstrap) as producer:
        sends = [
            producer.send(topic, str(number).encode(), partition=number % partitions)
            for number in numbers
        ]
        await asyncio.gather(*sends)


async def until(what: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not (done if isinstance(done := what(), bool) else await done):  # noqa: ASYNC110  # of any kind
            await asyncio.sleep(0.02)


async def take(consumer: Consumer, wanted: int) -> list[Record]:
    """Records in the order they come, until there are this many."""
    found: list[Record] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < wanted:
            found += await consumer.poll()
    return found


def values(records: list[Record]) -> list[int]:
    return sorted(int(record.value or b"-1") for record in records)


async def test_a_group_reads_everything_and_goes_on_where_it_was(
    bootstrap: str, protocol: Any
) -> None:
    topic = await new_topic(bootstrap)
    await fill(bootstrap, topic, range(100))
    options: dict[str, Any] = {"group": topic, "topics": [topic], "protocol": protocol}
    async with Consumer(bootstrap, **options) as consumer:
        assert values(await take(consumer, 100)) == list(range(100))
        assert len(consumer.assignment) == PARTITIONS
        assert sum((await consumer.lag()).values()) == 0
    await fill(bootstrap, topic, range(100, 150))
    async with Consumer(bootstrap, **options) as consumer:
        assert values(await take(consumer, 50)) == list(range(100, 150))


@pytest.mark.long
async def test_members_share_partitions_as_they_come_and_go(bootstrap: str, protocol: Any) -> None:
    """Every record once, in order, whoever joins and leaves: nobody is killed here."""
    topic = await new_topic(bootstrap, 6)
    seen: dict[int, list[int]] = defaultdict(list)
    owners: dict[ottla.TopicPartition, int] = {}
    clashes: list[str] = []

    def listeners(me: int) -> dict[str, Any]:
        def assigned(partitions: frozenset[ottla.TopicPartition]) -> None:
            clashes.extend(f"{one}: {owners[one]}, {me}" for one in partitions if one in owners)
            owners.update(dict.fromkeys(partitions, me))

        def revoked(partitions: frozenset[ottla.TopicPartition]) -> None:
            for one in partitions:
                owners.pop(one, None)

        return {"on_assigned": assigned, "on_revoked": revoked}

    async def work(me: int, end: asyncio.Event) -> None:
        async with Consumer(
            bootstrap, group=topic, topics=[topic], protocol=protocol, **listeners(me)
        ) as consumer:
            while not end.is_set():
                for record in await consumer.poll(0.1):
                    seen[record.partition].append(record.offset)

    ends = [asyncio.Event() for _ in range(4)]
    async with asyncio.timeout(3 * PATIENCE), asyncio.TaskGroup() as tasks:
        tasks.create_task(work(0, ends[0]))
        await fill(bootstrap, topic, range(300), 6)
        await until(lambda: sum(map(len, seen.values())) == 300)
        tasks.create_task(work(1, ends[1]))
        tasks.create_task(work(2, ends[2]))
        await until(lambda: set(Counter(owners.values())) == {0, 1, 2} and len(owners) == 6)
        await fill(bootstrap, topic, range(300), 6)
        ends[0].set()
        tasks.create_task(work(3, ends[3]))
        await until(lambda: set(Counter(owners.values())) == {1, 2, 3} and len(owners) == 6)
        await fill(bootstrap, topic, range(300), 6)
        await until(lambda: sum(map(len, seen.values())) >= 900)
        for end in ends:
            end.set()
    assert clashes == []
    assert dict(seen.items()) == {number: list(range(150)) for number in range(6)}


@pytest.mark.long
async def test_members_of_librdkafka_are_in_the_same_group(bootstrap: str, protocol: Any) -> None:
    topic = await new_topic(bootstrap)
    foreign = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        | ({"partition.assignment.strategy": "cooperative-sticky"} if protocol == "classic" else {})
    )
    foreign.subscribe([topic])
    theirs: list[int] = []

    def poll() -> bool:
        message = foreign.poll(0.1)
        if message is not None and message.error() is None:
            theirs.append(int(message.value() or b""))
        return len(foreign.assignment()) == PARTITIONS // 2

    try:
        async with Consumer(bootstrap, group=topic, topics=[topic], protocol=protocol) as consumer:
            ours: list[Record] = []

            async def both() -> bool:
                half = await asyncio.to_thread(poll)
                ours.extend(await consumer.poll(0.1))
                return half and len(consumer.assignment) == PARTITIONS // 2

            await until(both)
            await fill(bootstrap, topic, range(200))

            async def all_came() -> bool:
                await both()
                return len(ours) + len(theirs) >= 200

            await until(all_came)
            assert sorted(theirs + values(ours)) == list(range(200))
    finally:
        foreign.close()


async def test_what_was_not_done_comes_again_and_nothing_is_skipped(
    own: str, protocol: Any
) -> None:
    """A crash in the middle of a record repeats that record; those before it are not repeated."""
    topic = await new_topic(own, 1)
    await fill(own, topic, range(10), 1)
    options: dict[str, Any] = {"group": topic, "topics": [topic], "protocol": protocol}

    async def crash() -> None:
        async with Consumer(own, **options) as consumer:
            async for record in consumer:
                if record.offset == 4:
                    raise RuntimeError("in the middle of it")

    with pytest.raises(RuntimeError, match="in the middle"):
        await crash()
    async with Consumer(own, **options) as consumer:
        assert [record.offset for record in await take(consumer, 6)] == list(range(4, 10))


async def test_commits_of_ones_own(own: str, protocol: Any) -> None:
    topic = await new_topic(own, 1)
    partition = ottla.TopicPartition(topic, 0)
    await fill(own, topic, range(10), 1)
    options: dict[str, Any] = {
        "group": topic,
        "topics": [topic],
        "protocol": protocol,
        "auto_commit": False,
    }
    async with Consumer(own, **options, max_poll_records=4) as consumer:
        await take(consumer, 4)
        assert await consumer.committed() == {partition: None}
        await consumer.commit()
        assert await consumer.committed() == {partition: 4}
        await take(consumer, 4)
    async with Consumer(own, **options) as consumer:
        await take(consumer, 6)
        await consumer.commit({partition: 1})
    async with Consumer(own, **options) as consumer:
        assert [record.offset for record in await take(consumer, 9)] == list(range(1, 10))


async def test_seek_pause_and_resume(own: str) -> None:
    topic = await new_topic(own, 2)
    first, second = (ottla.TopicPartition(topic, number) for number in range(2))
    await fill(own, topic, range(20), 2)
    async with Consumer(own, group=topic, topics=[topic]) as consumer:
        await take(consumer, 20)
        await consumer.seek(first, 7)
        assert [record.offset for record in await take(consumer, 3)] == [7, 8, 9]
        await consumer.seek(second, "earliest")
        consumer.pause([second])
        assert consumer.paused == {second}
        assert await consumer.poll(0.5) == []
        consumer.resume()
        assert [record.offset for record in await take(consumer, 10)] == list(range(10))
        with pytest.raises(BadArgument, match="not this member's"):
            await consumer.seek(ottla.TopicPartition("other", 0), 1)
    with pytest.raises(ClientClosed):
        await consumer.poll()


async def test_a_pause_takes_effect_at_once_and_loses_nothing(own: str) -> None:
    topic = await new_topic(own, 1)
    partition = ottla.TopicPartition(topic, 0)
    await fill(own, topic, range(50), 1)
    async with Consumer(own, group=topic, topics=[topic]) as consumer:
        offsets = []
        async for record in consumer:
            offsets.append(record.offset)
            if record.offset == 9:
                consumer.pause([partition])
                break
        assert await consumer.poll(0.3) == []
        consumer.resume([partition])
        offsets += [record.offset for record in await take(consumer, 40)]
        assert offsets == list(range(50))


async def test_arrow_batches(own: str, protocol: Any) -> None:
    topic = await new_topic(own)
    await fill(own, topic, range(400))
    async with Consumer(own, group=topic, topics=[topic], protocol=protocol) as consumer:
        found: list[bytes] = []
        async for batch in consumer.batches():
            found += batch.column("value").to_pylist()
            if len(found) == 400:
                break
        assert sorted(map(int, found)) == list(range(400))
    async with Consumer(own, group=topic, topics=[topic], protocol=protocol) as consumer:
        assert await consumer.poll(1.0) == [], "the batches were done"


async def test_a_caller_who_stays_away_loses_its_partitions_and_gets_them_back(
    own: str, protocol: Any
) -> None:
    topic = await new_topic(own, 1)
    await fill(own, topic, range(3), 1)
    lost: list[frozenset[ottla.TopicPartition]] = []
    async with (
        Consumer(
            own,
            group=topic,
            topics=[topic],
            protocol=protocol,
            max_poll_interval=1.0,
            auto_commit=False,
            on_lost=lost.append,
            on_revoked=lost.append,
        ) as away,
        ottla.Admin(own) as admin,
    ):
        await take(away, 3)

        async def is_empty() -> bool:
            (found,) = await admin.describe_groups([topic])
            return not found.members

        await until(is_empty)
        with pytest.raises(CommitFailed):
            await away.commit()
        assert values(await take(away, 3)) == [0, 1, 2], "nothing was committed"
        assert lost == [frozenset({ottla.TopicPartition(topic, 0)})]


async def test_static_members_come_back_without_a_rebalance(own: str, protocol: Any) -> None:
    topic = await new_topic(own)
    make = partial(Consumer, own, group=topic, topics=[topic], protocol=protocol)
    assigned: list[int] = []
    async with make(on_assigned=lambda partitions: assigned.append(len(partitions))) as other:
        async with AsyncExitStack() as stack:
            static = await stack.enter_async_context(make(instance_id="i-1"))

            async def halves() -> bool:
                await asyncio.gather(other.poll(0.1), static.poll(0.1))
                return len(static.assignment) == len(other.assignment) == PARTITIONS // 2

            await until(halves)
            had = static.assignment
        assigned.clear()
        async with make(instance_id="i-1") as again:

            async def back() -> bool:
                await asyncio.gather(other.poll(0.1), again.poll(0.1))
                return again.assignment == had

            await until(back)
        assert assigned == [], "the other member kept what it had"


async def test_committed_records_only(own: str) -> None:
    topic = await new_topic(own, 1)
    async with ottla.Producer(own, transactional_id=topic) as producer:
        async with producer.transaction():
            await producer.send(topic, b"1")
        with suppress(RuntimeError):
            async with producer.transaction():
                await producer.send(topic, b"2")
                raise RuntimeError("abort it")
        async with producer.transaction():
            await producer.send(topic, b"3")
    async with Consumer(
        own, group=topic, topics=[topic], isolation_level="read_committed"
    ) as consumer:
        assert values(await take(consumer, 2)) == [1, 3]


async def test_offsets_in_a_transaction(own: str, protocol: Any) -> None:
    """Consume, transform, produce: the positions commit with the results."""
    source, target = await new_topic(own, 1), await new_topic(own, 1)
    await fill(own, source, range(5), 1)
    options: dict[str, Any] = {
        "group": source,
        "topics": [source],
        "protocol": protocol,
        "auto_commit": False,
    }
    async with (
        Consumer(own, **options) as consumer,
        ottla.Producer(own, transactional_id=source) as producer,
    ):
        records = await take(consumer, 5)
        async with producer.transaction() as transaction:
            for record in records:
                await producer.send(target, record.value)
            await transaction.send_offsets(consumer.group_metadata, consumer.positions)
    async with Consumer(own, **options) as consumer:
        assert await consumer.poll(1.0) == []
        assert await consumer.committed() == {ottla.TopicPartition(source, 0): 5}


@pytest.mark.long("a broker looks for topics of a pattern every ten seconds")
async def test_topics_by_pattern_and_another_subscription(own: str) -> None:
    prefix = f"pattern-{next(_numbers)}"
    async with ottla.Admin(own) as admin:
        await admin.create_topic(f"{prefix}-a", partitions=1)
        async with Consumer(own, group=prefix, pattern=f"{prefix}-.*") as consumer:
            await fill(own, f"{prefix}-a", range(3), 1)
            await take(consumer, 3)
            await admin.create_topic(f"{prefix}-b", partitions=1)
            await fill(own, f"{prefix}-b", range(4), 1)
            assert {record.topic for record in await take(consumer, 4)} == {f"{prefix}-b"}
            consumer.subscribe([f"{prefix}-a"])
            await fill(own, f"{prefix}-a", range(2), 1)
            assert {record.topic for record in await take(consumer, 2)} == {f"{prefix}-a"}
            consumer.unsubscribe()
            with pytest.raises(NotSubscribed):
                await consumer.poll(0.3)
            assert consumer.assignment == frozenset()


@pytest.mark.parametrize("polls", [True, False])
async def test_what_was_read_is_committed_before_an_unsubscribed_member_leaves(
    own: str, protocol: Any, caplog: pytest.LogCaptureFixture, *, polls: bool
) -> None:
    topic = await new_topic(own, 1)
    await fill(own, topic, range(3), 1)
    async with ottla.Admin(own) as admin:
        async with Consumer(own, group=topic, topics=[topic], protocol=protocol) as consumer:
            await take(consumer, 3)
            consumer.unsubscribe()
            if polls:
                await asyncio.sleep(0)  # the member's task has heard of it
                with pytest.raises(NotSubscribed):
                    await consumer.poll(0.3)
        found = await admin.list_group_offsets(topic)
        assert [(one.partition, one.offset) for one in found] == [(0, 3)]
        [group] = await admin.describe_groups([topic])
        assert list(group.members) == []
    assert "last commit failed" not in caplog.text


async def test_a_callback_does_not_poll(own: str) -> None:
    topic = await new_topic(own, 1)
    await fill(own, topic, range(3), 1)

    async def assigned(_: object) -> None:
        with pytest.raises(ClientError, match="do not poll inside a callback"):
            await consumer.poll()

    async with Consumer(own, group=topic, topics=[topic], on_assigned=assigned) as consumer:
        assert values(await take(consumer, 3)) == [0, 1, 2]
    with pytest.raises(ClientClosed):
        consumer.pause()


async def test_a_group_without_offsets_starts_where_it_is_told(own: str) -> None:
    topic = await new_topic(own, 1)
    await fill(own, topic, range(3), 1)
    async with Consumer(
        own, group=f"{topic}-late", topics=[topic], auto_offset_reset="latest"
    ) as consumer:
        await until(lambda: _polled_and_placed(consumer))
        await fill(own, topic, range(3, 5), 1)
        assert values(await take(consumer, 2)) == [3, 4]
    async with Consumer(
        own, group=f"{topic}-none", topics=[topic], auto_offset_reset="error"
    ) as consumer:
        with pytest.raises(NoOffset, match='"earliest" or "latest"'):
            await take(consumer, 1)


async def _polled_and_placed(consumer: Consumer) -> bool:
    await consumer.poll(0.05)
    return bool(consumer.positions)


@pytest.mark.long
async def test_random_comings_and_goings(own: str, protocol: Any) -> None:
    """Members join, close and vanish at random; every record is read, in order between repeats."""
    rng = random.Random(f"consumer {protocol}")
    topic = await new_topic(own)
    seen: dict[int, set[int]] = defaultdict(set)
    total = 2000

    async def work(end: asyncio.Event, *, crash: bool) -> None:
        async with _consumer(own, topic, protocol) as consumer:
            while not end.is_set():
                for record in await consumer.poll(0.05):
                    seen[record.partition].add(record.offset)
            if crash:
                raise _Vanish

    async def feed() -> None:
        for start in range(0, total, 100):
            await fill(own, topic, range(start, start + 100))
            await asyncio.sleep(0.05)

    async def come_and_go() -> None:
        while sum(map(len, seen.values())) < total:
            end = asyncio.Event()
            working = asyncio.create_task(work(end, crash=rng.random() < 0.5))
            await asyncio.sleep(rng.uniform(0.2, 1.5))
            end.set()
            await asyncio.gather(working, return_exceptions=True)

    async with asyncio.timeout(2 * PATIENCE), asyncio.TaskGroup() as tasks:
        tasks.create_task(feed())
        for _ in range(3):
            tasks.create_task(come_and_go())
    assert seen == {number: set(range(total // PARTITIONS)) for number in range(PARTITIONS)}


class _Vanish(Exception):
    """A member that does not count its last records as done."""


def _consumer(bootstrap: str, topic: str, protocol: Any) -> Consumer:
    return Consumer(
        bootstrap, group=topic, topics=[topic], protocol=protocol, auto_commit_interval=0.1
    )


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_reading_without_topics_is_an_error(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str, protocol: Any
) -> None:
    """It used to be a poll that gave nothing, and an iteration that never ended."""
    async with Consumer(ottla_broker.bootstrap, group="no-topics", protocol=protocol) as consumer:
        with pytest.raises(NotSubscribed, match=r"call subscribe\(\["):
            await consumer.poll()
        with pytest.raises(NotSubscribed):
            async for _ in consumer:
                pass
        with pytest.raises(NotSubscribed):
            await anext(consumer.batches())
        consumer.subscribe([ottla_topic])
        assert await consumer.poll(0) == []
        consumer.unsubscribe()
        with pytest.raises(NotSubscribed):
            await consumer.poll()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_topic_that_does_not_exist_is_named_in_the_log_and_read_once_it_does(
    ottla_broker: ottla.EmbeddedBroker, protocol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It used to be a consumer that got nothing, and no word why."""
    name = f"not-yet-{protocol}"
    async with (
        asyncio.timeout(PATIENCE),
        Consumer(ottla_broker.bootstrap, group=name, topics=[name], protocol=protocol) as consumer,
    ):
        while f"'{name}': no such topic" not in caplog.text:
            await consumer.poll(0.1)
    assert caplog.text.count("no such topic") == 1
