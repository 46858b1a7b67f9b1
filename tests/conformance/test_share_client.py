"""The ShareConsumer against real brokers: records are lost by nothing, accepted by the caller only.

Tests of `place` run against Apache Kafka as well, where there is a JVM. confluent-kafka produces.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ottla
from ottla.client.admin.admin import Admin
from ottla.client.errors import ClientClosed, KafkaError
from ottla.client.share.types import (
    ConcurrentPoll,
    RecordNotHeld,
    UnacknowledgedRecords,
    WrongAckMode,
)
from tests.support.ports import free_port
from tests.support.share_member import LOCK_MS, SHARE_CONFIG
from tests.support.share_place import PATIENCE, Place, numbers, poll_until

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.client.share.types import Acknowledged

KINDS = ("accept", "release", "reject")


async def test_the_next_poll_accepts(place: Place) -> None:
    await place.produce(*range(100))
    heard: list[Acknowledged] = []
    async with place.consumer(on_acknowledge=heard.append) as consumer:
        found = await poll_until(consumer, 100)
        assert numbers(found) == list(range(100))
        assert {one.delivery_count for one in found} == {1}
        await place.produce(100)
        [last] = await poll_until(consumer, 1)
        assert sum(one.last_offset - one.first_offset + 1 for one in heard) == 100
        assert {(one.kind, one.error) for one in heard} == {("accept", None)}
    # Leaving the block accepts the last one.
    assert heard[-1].first_offset == last.offset
    assert heard[-1].error is None
    async with place.consumer() as consumer:
        await place.produce(101)
        assert numbers(await poll_until(consumer, 1)) == [101]


async def test_commit_accepts_earlier(place: Place) -> None:
    await place.produce(*range(10))
    async with place.consumer(close_implicit="release") as consumer:
        await poll_until(consumer, 10)
        outcome = await consumer.commit()
        assert outcome == {(place.topic, 0): None}
        assert await consumer.commit() == {}
    async with place.consumer() as consumer:
        await place.produce(10)
        assert numbers(await poll_until(consumer, 1)) == [10]


async def test_each_record_is_decided_alone(place: Place) -> None:
    await place.produce(*range(30))
    async with place.explicit() as consumer:
        found = await poll_until(consumer, 30)
        for record in found:
            consumer.acknowledge(record, "reject")
            # Until it is sent, the last word counts.
            consumer.acknowledge(record, KINDS[record.offset % 3])  # type: ignore[arg-type]
        assert set((await consumer.commit()).values()) == {None}
        with pytest.raises(RecordNotHeld, match="acknowledged before"):
            consumer.acknowledge(found[0])
        again = await poll_until(consumer, 10)
        assert numbers(again) == list(range(1, 30, 3))
        assert {one.delivery_count for one in again} == {2}
        with pytest.raises(RecordNotHeld, match="older delivery"):
            consumer.acknowledge(found[1])
        for record in again:
            consumer.acknowledge(record)
        # These ride on the fetch.
        assert await consumer.poll(timeout=0.3) == []
    async with place.explicit() as consumer:
        assert await consumer.poll(timeout=0.5) == []


async def test_undecided_records_stop_a_poll_and_stay(place: Place) -> None:
    await place.produce(*range(5))
    async with place.explicit() as consumer:
        found = await poll_until(consumer, 5)
        with pytest.raises(UnacknowledgedRecords, match="5 records"):
            await consumer.poll()
        for record in found:
            consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}


async def test_an_exception_accepts_nothing(place: Place) -> None:
    await place.produce(*range(5))

    async def fail() -> None:
        async with place.consumer() as consumer:
            await poll_until(consumer, 5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with place.consumer() as consumer:
        again = await poll_until(consumer, 5)
        assert {one.delivery_count for one in again} == {2}


async def test_renewing_keeps_the_lock(place: Place) -> None:
    await place.set_lock(2 * LOCK_MS)
    await place.produce(0)
    async with place.explicit() as consumer:
        [record] = await poll_until(consumer, 1)
        assert consumer.acquisition_lock_timeout == 2 * LOCK_MS / 1000
        # Together longer than a lock lasts.
        for _ in range(3):
            await asyncio.sleep(LOCK_MS / 1000 * 0.8)
            consumer.acknowledge(record, "renew")
            assert set((await consumer.commit()).values()) == {None}
        # One that is renewed does not stop a poll.
        assert await consumer.poll(timeout=0) == []
        consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}


async def test_a_strict_limit_is_kept(place: Place) -> None:
    await place.produce(*range(20))
    found: list[int] = []
    async with place.consumer(acquire_mode="record_limit", max_poll_records=3) as consumer:
        while len(found) < 20:
            records = await consumer.poll()
            assert len(records) <= 3
            found += numbers(records)
    assert found == list(range(20))


async def test_columns(place: Place) -> None:
    await place.produce(*range(30))
    async with place.explicit() as consumer:
        found: list[pa.Table] = []
        async with asyncio.timeout(PATIENCE):
            while sum(table.num_rows for table in found) < 30:
                found.append(await consumer.poll_arrow())
                consumer.acknowledge(found[-1], "release")
        table = pa.concat_tables(found)
        assert table.column("value").to_pylist() == [b"%d" % number for number in range(30)]
        assert set(table.column("deliveryCount").to_pylist()) == {1}
        # The last word counts.
        odd = table.filter(pc.equal(pc.bit_wise_and(table.column("offset"), 1), 1))
        consumer.acknowledge(odd, "accept")
        assert set((await consumer.commit()).values()) == {None}
        again = await consumer.poll_arrow()
        # From the same batches, of which half was acquired.
        assert again.column("offset").to_pylist() == list(range(0, 30, 2))
        assert set(again.column("deliveryCount").to_pylist()) == {2}
        consumer.acknowledge(again.to_batches()[0])
        with pytest.raises(RecordNotHeld):
            consumer.acknowledge(odd)
        assert (await consumer.poll_arrow(timeout=0.1)).num_rows == 0


async def test_two_consumers_share_a_partition(own: Place) -> None:
    # Batches of fifty, of which each poll gets one.
    await own.produce(*range(1000))
    found: list[int] = []

    async def work() -> None:
        async with own.consumer(max_poll_records=1) as consumer:
            while len(found) < 1000:
                found.extend(numbers(await consumer.poll(timeout=0.1)))

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(work(), work())
    assert sorted(found) == list(range(1000))


async def test_several_partitions_and_topics(share_broker: ottla.EmbeddedBroker) -> None:
    names = ["several-1", "several-2"]
    for name in names:
        share_broker.create_topic(name, partitions=3)
    async with ottla.Producer(share_broker.bootstrap) as producer:
        for name in names:
            for number in range(30):
                await producer.send(name, value=b"%d" % number, partition=number % 3)
    async with ottla.ShareConsumer(
        share_broker.bootstrap, group="many", topics=names, auto_offset_reset="earliest"
    ) as consumer:
        found = await poll_until(consumer, 60)
        assert {(one.topic, one.partition) for one in found} == consumer.assignment
    assert len({(one.topic, one.value) for one in found}) == 60


async def test_iteration_accepts_what_it_has_passed(own: Place) -> None:
    await own.produce(*range(10))
    async with asyncio.timeout(PATIENCE):
        async with own.consumer() as consumer:
            async for record in consumer:
                if record.offset == 4:
                    break
        # The rest was fetched, but not given to anyone.
        async with own.consumer() as consumer:
            async for record in consumer:
                assert (record.offset, record.delivery_count) == (5, 2)
                break


async def test_a_cancelled_poll_loses_nothing(own: Place) -> None:
    async with own.consumer(max_wait=10.0) as consumer:
        async with asyncio.timeout(PATIENCE):
            while not consumer.assignment:
                await consumer.poll(timeout=0.1)
        polling = asyncio.create_task(consumer.poll(timeout=10.0))
        await asyncio.sleep(0.05)
        with pytest.raises(ConcurrentPoll):
            await consumer.poll()
        polling.cancel()
        await asyncio.wait([polling])
        # The request that the cancelled call has sent gets these.
        await own.produce(*range(5))
        found = await poll_until(consumer, 5)
        assert numbers(found) == list(range(5))
        assert {one.delivery_count for one in found} == {1}


async def test_a_cancelled_commit_still_commits(own: Place) -> None:
    await own.produce(*range(5))
    heard: list[Acknowledged] = []
    async with own.explicit(on_acknowledge=heard.append) as consumer:
        for record in await poll_until(consumer, 5):
            consumer.acknowledge(record)
        committing = asyncio.create_task(consumer.commit())
        await asyncio.sleep(0)
        committing.cancel()
        await asyncio.wait([committing])
        assert await consumer.poll(timeout=0.3) == []
    assert [(one.first_offset, one.last_offset, one.error) for one in heard] == [(0, 4, None)]


async def test_a_killed_task_gives_everything_back(own: Place) -> None:
    await own.produce(*range(5))
    holds = asyncio.Event()

    async def hold() -> None:
        async with own.consumer() as consumer:
            await poll_until(consumer, 5)
            holds.set()
            await asyncio.sleep(PATIENCE)

    task = asyncio.create_task(hold())
    await asyncio.wait_for(holds.wait(), PATIENCE)
    task.cancel()
    await asyncio.wait([task])
    async with own.consumer() as consumer:
        assert numbers(await poll_until(consumer, 5)) == list(range(5))


async def test_workers_that_die_at_any_point_lose_nothing(own: Place) -> None:
    # Each death is an attempt at all that was held; ten are as many as a group can allow.
    async with Admin(own.bootstrap) as admin:
        await admin.alter_configs("group", own.group, {"share.delivery.count.limit": "10"})
    await own.produce(*range(1000))
    chance = random.Random(932)  # the same deaths each time
    handled: set[int] = set()
    confirmed: set[int] = set()
    finished = asyncio.Event()

    def note(result: Acknowledged) -> None:
        if result.error is None and result.kind == "accept":
            confirmed.update(range(result.first_offset, result.last_offset + 1))

    async def work() -> None:
        async with own.consumer(max_poll_records=20, on_acknowledge=note) as consumer:
            async for record in consumer:
                await asyncio.sleep(0)
                handled.add(record.offset)
                if len(handled) == 1000:
                    finished.set()

    async def employ(lifetimes: list[float]) -> None:
        for lifetime in lifetimes:
            await asyncio.wait([task := asyncio.create_task(work())], timeout=lifetime)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), task.exception()
            assert confirmed <= handled

    async with asyncio.timeout(PATIENCE):
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(employ([chance.uniform(0.0, 0.05) for _ in range(4)]))
        last = asyncio.create_task(work())
        await finished.wait()
        last.cancel()
        await asyncio.wait([last])
    assert confirmed <= handled == set(range(1000))


async def test_a_broker_restart(tmp_path: Path) -> None:
    broker = ottla.EmbeddedBroker(tmp_path, config=SHARE_CONFIG, port=free_port())
    await asyncio.to_thread(broker.start)
    try:
        broker.create_topic("t")
        place = Place(broker.bootstrap, "t")
        await place.produce(*range(10))
        heard: list[Acknowledged] = []
        async with place.explicit(on_acknowledge=heard.append) as consumer:
            found = await poll_until(consumer, 10)
            for record in found[:5]:
                consumer.acknowledge(record)
            assert set((await consumer.commit()).values()) == {None}
            await asyncio.to_thread(broker.stop)
            await asyncio.to_thread(broker.start)
            # Decided, but the session that could have said so has ended.
            for record in found[5:]:
                consumer.acknowledge(record)
            [error] = (await consumer.commit(return_errors=True)).values()
            assert error is not None
            again = await poll_until(consumer, 5)
            assert numbers(again) == [5, 6, 7, 8, 9]
            for record in again:
                consumer.acknowledge(record)
            assert set((await consumer.commit()).values()) == {None}
        assert {one.first_offset for one in heard if one.error is not None} == {5}
    finally:
        await asyncio.to_thread(broker.stop)


async def test_66_closing_ends_in_time_without_a_broker(tmp_path: Path) -> None:
    broker = ottla.EmbeddedBroker(tmp_path, config=SHARE_CONFIG)
    await asyncio.to_thread(broker.start)
    broker.create_topic("t")
    place = Place(broker.bootstrap, "t")
    await place.produce(0)
    consumer = await place.consumer().__aenter__()
    await poll_until(consumer, 1)
    await asyncio.to_thread(broker.stop)
    async with asyncio.timeout(PATIENCE):
        await consumer.close(0.5)
    with pytest.raises(ClientClosed):
        await consumer.poll()


async def test_closing_leaves_the_group(own: Place) -> None:
    async with own.consumer(), Admin(own.bootstrap) as admin:
        [group] = await admin.describe_share_groups([own.group])
        assert len(group.members) == 1
    async with Admin(own.bootstrap) as admin:
        [group] = await admin.describe_share_groups([own.group])
        assert not group.members


async def test_a_reset_that_is_set_stays(own: Place) -> None:
    async with Admin(own.bootstrap) as admin:
        await admin.alter_configs("group", own.group, {"share.auto.offset.reset": "latest"})
        async with own.consumer():
            [entry] = await admin.describe_configs("group", own.group, ["share.auto.offset.reset"])
            assert entry.value == "latest"


async def test_what_cannot_be(own: Place) -> None:
    with pytest.raises(ValueError, match="topics: expected a list"):
        ottla.ShareConsumer(own.bootstrap, group="g", topics="orders")
    with pytest.raises(ValueError, match="ack_mode: expected one of"):
        ottla.ShareConsumer(own.bootstrap, group="g", topics=["t"], ack_mode="auto")  # type: ignore[arg-type]
    await own.produce(0)
    async with own.consumer() as consumer:
        [record] = await poll_until(consumer, 1)
        with pytest.raises(WrongAckMode, match="explicit"):
            consumer.acknowledge(record)
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        async with ottla.ShareConsumer(
            own.bootstrap, group="other", topics=["t"], auto_offset_reset="sometimes"
        ):
            pass
