"""Polling: what comes, how much, and how often

A poll fetches from all partitions of the live assignment, and returns what it has acquired.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from ottla import Admin, EmbeddedBroker, Producer, ProducerRecord, ShareRecord, errors
from tests.clauses.share_consumer.queue import PATIENCE, QUICK, Queue, offsets, poll_until
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

BROKER_CONFIG: Final = QUICK


async def test_a_poll_returns_acquired_records(queue: Queue) -> None:
    """`poll` returns the records that were acquired for this member."""
    await queue.produce(3)
    async with queue.consumer() as consumer:
        found = await poll_until(consumer, 3)
        assert [record.value for record in found] == [b"0", b"1", b"2"]


async def test_a_record_has_everything_that_was_produced(queue: Queue) -> None:
    """A record has topic, partition, offset, timestamp, key, value, headers, delivery count."""
    async with Producer(queue.bootstrap) as producer:
        await producer.send(
            queue.topic, b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp_ms=1234
        )
    async with queue.consumer() as consumer:
        [record] = await poll_until(consumer, 1)
    assert record == ShareRecord(
        topic=queue.topic,
        partition=0,
        offset=0,
        timestamp_ms=1234,
        timestamp_type=0,
        key=b"k",
        value=b"v",
        headers=(("h", b"1"), ("h", None)),
        delivery_count=1,
        delivery=record.delivery,
    )


async def test_a_poll_waits_for_records(queue: Queue) -> None:
    """`poll(timeout)` waits until something comes."""
    async with queue.consumer() as consumer:
        waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE))
        await queue.produce(1)
        assert offsets(await waiting) == [0]


async def test_a_poll_without_records_returns_none_in_time(queue: Queue) -> None:
    """A poll that finds nothing within its timeout returns an empty list; that is no error."""
    async with queue.consumer() as consumer:
        assert await consumer.poll(timeout=0.05) == []
        assert await consumer.poll(timeout=0) == []


async def test_polls_go_on_in_one_session(queue: Queue) -> None:
    """Each fetch goes on in the share session that the first one opened."""
    async with queue.consumer() as consumer:
        for number in range(3):
            await queue.produce(1)
            assert offsets(await poll_until(consumer, 1)) == [number]


async def test_all_partitions_of_all_topics_are_polled(
    queue: Queue, broker: EmbeddedBroker
) -> None:
    """A fetch covers the live assignment, whatever topics and partitions are in it."""
    wide = f"{queue.topic}-wide"
    broker.create_topic(wide, partitions=2)
    async with Producer(queue.bootstrap) as producer:
        for topic, partition in ((queue.topic, 0), (wide, 0), (wide, 1)):
            await producer.send(topic, b"v", partition=partition)
    async with queue.consumer(topics=[queue.topic, wide]) as consumer:
        found = await poll_until(consumer, 3)
    assert {(one.topic, one.partition) for one in found} == {(queue.topic, 0), (wide, 0), (wide, 1)}


async def test_a_record_is_one_members_at_a_time(queue: Queue) -> None:
    """What one member holds no other is given."""
    await queue.produce(2)
    async with queue.explicit(acquire_mode="record_limit", max_poll_records=1) as one:
        [held] = await poll_until(one, 1)
        async with queue.explicit() as two:
            assert offsets(await poll_until(two, 1)) == [1 - held.offset]


async def test_a_poll_takes_500_records_by_default(queue: Queue) -> None:
    """`max_poll_records` is 500."""
    async with Producer(queue.bootstrap) as producer:
        for _ in range(6):
            await producer.send_many(queue.topic, [ProducerRecord(b"v")] * 100)
            await producer.flush()
    async with queue.consumer() as consumer:
        assert len(await consumer.poll(timeout=PATIENCE)) == 500


async def test_whole_batches_by_default(queue: Queue) -> None:
    """`acquire_mode` is batch_optimized: a batch is not split, so a poll may exceed its limit."""
    async with Producer(queue.bootstrap) as producer:
        await producer.send_many(queue.topic, [ProducerRecord(b"v")] * 10)
    async with queue.consumer(max_poll_records=3) as consumer:
        assert len(await consumer.poll(timeout=PATIENCE)) == 10


async def test_a_strict_limit_where_it_is_wanted(queue: Queue) -> None:
    """With `record_limit` a poll returns no more than `max_poll_records`."""
    async with Producer(queue.bootstrap) as producer:
        await producer.send_many(queue.topic, [ProducerRecord(b"v")] * 10)
    async with queue.consumer(max_poll_records=3, acquire_mode="record_limit") as consumer:
        assert offsets(await consumer.poll(timeout=PATIENCE)) == [0, 1, 2]
        assert offsets(await consumer.poll(timeout=PATIENCE)) == [3, 4, 5]


async def test_a_new_group_starts_at_the_end(queue: Queue) -> None:
    """A new group starts at the end of its topics, as `share.auto.offset.reset` says."""
    await queue.produce(2)
    async with queue.consumer(auto_offset_reset=None) as consumer:
        while await queue.lag() is None:  # the first fetch finds the group's place
            assert await consumer.poll(timeout=0.05) == []
        await queue.produce(1)
        assert offsets(await poll_until(consumer, 1)) == [2]


async def test_where_a_group_starts_is_the_groups_setting(queue: Queue) -> None:
    """Where a group starts is no setting of a consumer, but of the group.

    Differs: `auto_offset_reset` writes that setting for a group that has none, so that a program
    needs no second tool; what is set stays.
    """
    async with queue.consumer(auto_offset_reset="earliest"):
        pass
    async with queue.consumer(auto_offset_reset="latest"):
        pass
    async with Admin(queue.bootstrap) as admin:
        [entry] = await admin.describe_configs("group", queue.group, ["share.auto.offset.reset"])
    assert entry.value == "earliest"


async def test_a_subscription_can_be_replaced(queue: Queue, broker: EmbeddedBroker) -> None:
    """`subscribe` replaces the topics; the next polls are about the new ones."""
    other = f"{queue.topic}-other"
    broker.create_topic(other)
    await queue.produce(1)
    async with queue.consumer() as consumer:
        await poll_until(consumer, 1)
        consumer.subscribe([other])
        assert consumer.subscription == (other,)
        async with Producer(queue.bootstrap) as producer:
            await producer.send(other, b"v")
        await queue.produce(1)
        assert {one.topic for one in await poll_until(consumer, 1)} == {other}


async def test_unsubscribing_leaves_the_group(queue: Queue) -> None:
    """`unsubscribe` leaves the group until the next `subscribe`."""
    async with queue.consumer() as consumer:
        consumer.unsubscribe()
        async with asyncio.timeout(PATIENCE):
            while await queue.members():  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.02)
        with pytest.raises(errors.NotSubscribed):
            await consumer.poll()


async def test_one_poll_at_a_time(queue: Queue) -> None:
    """A consumer is used by one task at a time (the document's `poll` needs exclusive access)."""
    async with queue.consumer(max_wait=0.05) as consumer:
        waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE))
        await asyncio.sleep(0)  # let it begin
        with pytest.raises(errors.ConcurrentPoll, match="one poll at a time"):
            await consumer.poll()
        waiting.cancel()


async def test_a_cancelled_poll_loses_nothing(queue: Queue) -> None:
    """A poll can be given up (Kafka's `wakeup`); what it had asked for comes with the next."""
    async with queue.consumer() as consumer:
        waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await queue.produce(2)
        found = await poll_until(consumer, 2)
        assert [(one.offset, one.delivery_count) for one in found] == [(0, 1), (1, 1)]


async def test_records_one_by_one(queue: Queue) -> None:
    """Iterating polls again and again, and accepts what it has passed."""
    await queue.produce(3)
    async with queue.consumer() as consumer:
        async for record in consumer:
            if record.offset == 2:
                break
    assert await queue.lag() == 0


async def test_a_lost_session_is_opened_again(tmp_path: Path) -> None:
    """After a reset the next fetch opens a session with epoch 0; the member id stays."""
    broker = EmbeddedBroker(tmp_path, config=QUICK, port=free_port())
    await asyncio.to_thread(broker.start)
    try:
        broker.create_topic("orders")
        queue = Queue(broker.bootstrap, "orders", "workers")
        await queue.produce(1)
        async with queue.consumer() as consumer:
            await poll_until(consumer, 1)
            await consumer.commit()
            before = consumer.member_id
            await asyncio.to_thread(broker.stop)
            await asyncio.to_thread(broker.start)
            await queue.produce(1)
            assert offsets(await poll_until(consumer, 1)) == [1]
            assert consumer.member_id == before
    finally:
        await asyncio.to_thread(broker.stop)
