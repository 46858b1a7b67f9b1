"""Cancelling a call of a producer, an admin or a share consumer loses nothing.

To cancel is to stop waiting. What a producer was handed before that may still be written, once and
in order; whoever goes on finds the client whole. Calls are cancelled after a number of turns of the
event loop that chance names. The polls, commits and closes of a share consumer have a file of their
own (test_share_cancellation.py), and so has iteration over a reader (test_reader.py).
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla import Admin, Producer, ProducerRecord, Reader, ShareConsumer
from ottla.errors import KafkaError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SEEDS = range(3)
PATIENCE = 60.0
TURNS = (0, 1, 2, 3, 5, 8, 100)  # after the last of them most calls have their answer

seeded = pytest.mark.parametrize("seed", SEEDS)


async def cut_short(call: Coroutine[Any, Any, Any], turns: int) -> Any:
    """The call's result, or None if it was cancelled before."""
    task = asyncio.create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()


async def values_in(bootstrap: str, topic: str) -> list[int]:
    async with Reader(bootstrap, topic, start="earliest", stop="latest") as reader:
        return [int(record.value or b"") async for record in reader.records()]


@seeded
async def test_sends(ottla_broker: ottla.EmbeddedBroker, ottla_topic: str, seed: int) -> None:
    chance = random.Random(seed)
    known: dict[int, int] = {}
    async with asyncio.timeout(PATIENCE), Producer(ottla_broker.bootstrap) as producer:
        for number in range(60):
            call = producer.send(ottla_topic, b"%d" % number)
            sent = await cut_short(call, chance.choice(TURNS))
            if sent is not None:
                known[sent.offset] = number
        last = await producer.send(ottla_topic, b"60")
    written = await values_in(ottla_broker.bootstrap, ottla_topic)
    assert written == sorted(set(written)), "in order, none of them twice"
    assert known.items() <= dict(enumerate(written)).items()
    assert (written[-1], last.offset) == (60, len(written) - 1)


@seeded
async def test_many_at_once(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str, seed: int
) -> None:
    chance = random.Random(seed)
    size = 40
    # Batches of a few records, and memory for a few batches.
    limits: dict[str, Any] = {"batch_size": 300, "buffer_memory": 2000, "max_request_size": 1000}
    async with asyncio.timeout(PATIENCE), Producer(ottla_broker.bootstrap, **limits) as producer:
        for base in range(0, 10 * size, size):
            records = [ProducerRecord(b"%d" % number) for number in range(base, base + size)]
            await cut_short(producer.send_many(ottla_topic, records), chance.choice(TURNS))
        last = await producer.send(ottla_topic, b"%d" % (10 * size))
        await producer.flush()
        assert producer._sender.records.used == 0, "memory has come back"
    written = await values_in(ottla_broker.bootstrap, ottla_topic)
    assert written == sorted(set(written))
    assert (written[-1], last.offset) == (10 * size, len(written) - 1)
    # Of each call what it had handed over: the first of its records.
    for base in range(0, 10 * size, size):
        some = [number for number in written if base <= number < base + size]
        assert some == list(range(base, base + len(some)))


async def test_a_flush(ottla_broker: ottla.EmbeddedBroker, ottla_topic: str) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Producer(ottla_broker.bootstrap, linger_ms=60_000) as producer,
    ):
        sends = [asyncio.create_task(producer.send(ottla_topic, b"%d" % n)) for n in range(5)]
        # A flush is for what has been handed over.
        while sum(one.count for one in producer._sender.records) < len(sends):  # noqa: ASYNC110  # nobody signals it
            await asyncio.sleep(0.01)
        for turns in TURNS:
            await cut_short(producer.flush(), turns)
        await producer.flush()
        assert [sent.offset for sent in await asyncio.gather(*sends)] == list(range(5))


def queue_of(bootstrap: str, group: str, *topics: str) -> ottla.ShareConsumer:
    return ShareConsumer(
        bootstrap,
        group=group,
        topics=topics,
        ack_mode="explicit",
        auto_offset_reset="earliest",
        max_poll_records=3,
    )


@seeded
async def test_polls_between_subscriptions(
    ottla_broker: ottla.EmbeddedBroker, new_topic: Callable[[], str], group: str, seed: int
) -> None:
    chance = random.Random(seed)
    topics = [new_topic(), new_topic()]
    accepted: set[tuple[str, int]] = set()
    async with asyncio.timeout(PATIENCE):
        async with Producer(ottla_broker.bootstrap) as producer:
            for topic in topics:
                await producer.send_many(topic, [ProducerRecord(b"%d" % n) for n in range(20)])
        async with queue_of(ottla_broker.bootstrap, group, *topics) as consumer:
            while len(accepted) < 40:
                consumer.subscribe(chance.choice((topics, topics, topics[:1], topics[1:])))
                for _ in range(5):
                    found = await cut_short(consumer.poll(timeout=0.5), chance.choice(TURNS)) or []
                    for record in found:
                        assert (record.topic, record.offset) not in accepted
                        consumer.acknowledge(record)
                        accepted.add((record.topic, record.offset))
                    # Others have their turn, or nothing would ever arrive.
                    await asyncio.sleep(0.01)
            assert not any((await consumer.commit(return_errors=True)).values())


@pytest.mark.parametrize("turns", TURNS)
async def test_what_was_acknowledged_before_a_commit_that_was_cut_short(
    ottla_broker: ottla.EmbeddedBroker, ottla_topic: str, group: str, turns: int
) -> None:
    async with asyncio.timeout(PATIENCE):
        async with Producer(ottla_broker.bootstrap) as producer:
            await producer.send_many(ottla_topic, [ProducerRecord(b"a"), ProducerRecord(b"b")])
        async with queue_of(ottla_broker.bootstrap, group, ottla_topic) as consumer:
            while not (found := await consumer.poll()):
                pass
            consumer.acknowledge(found[0], "accept")
            consumer.acknowledge(found[1], "release")
            await cut_short(consumer.commit(), turns)
            if turns == 0:
                # The next commit has the outcome.
                assert list((await consumer.commit()).values()) == [None]
        async with queue_of(ottla_broker.bootstrap, group, ottla_topic) as consumer:
            while not (found := await consumer.poll()):
                pass
            assert [(one.value, one.delivery_count) for one in found] == [(b"b", 2)]
            consumer.acknowledge(found[0])


async def test_admin_calls(ottla_broker: ottla.EmbeddedBroker, group: str) -> None:
    async with asyncio.timeout(PATIENCE), Admin(ottla_broker.bootstrap) as admin:
        for turns in TURNS:
            name = f"cut-short-{group}-{turns}"
            await cut_short(admin.create_topic(name), turns)
            await cut_short(admin.list_topics(), turns)
            [outcome] = await asyncio.gather(admin.create_topic(name), return_exceptions=True)
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, KafkaError)
                assert outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS
            await cut_short(admin.alter_configs("topic", name, {"retention.ms": "1000"}), turns)
            await cut_short(admin.describe_topics([name]), turns)
            [found] = await admin.describe_topics([name])
            assert found.name == name
