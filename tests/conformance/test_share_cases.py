"""Share groups as a client sees them, case by case of the specification, on either broker.

A test has the number of its case. What no real broker can be made to do is in
tests/integration/client/test_share_consumer.py under the same names; cases that only a raw
protocol can show are in test_share_protocol.py and its neighbours.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla import Admin, Producer, ProducerRecord
from ottla.errors import KafkaError, NotSubscribed, UnacknowledgedRecords, WrongAckMode
from ottla.wire.error_codes import ErrorCode
from tests.support.share_member import LOCK_MS
from tests.support.share_place import PATIENCE, Place, numbers, poll_until

if TYPE_CHECKING:
    from ottla.client.share.types import AckKind, Acknowledged


async def set_group(place: Place, **configs: str) -> None:
    async with Admin(place.bootstrap) as admin:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.alter_configs("group", place.group, settings)


async def members(place: Place) -> int:
    async with Admin(place.bootstrap) as admin:
        [group] = await admin.describe_share_groups([place.group])
        return len(group.members)


async def until_assigned(consumer: ottla.ShareConsumer, partitions: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(consumer.assignment) != partitions:  # noqa: ASYNC110  # nobody signals it
            await asyncio.sleep(0.02)


async def test_06_a_member_that_was_expired_joins_again(place: Place) -> None:
    await set_group(place, share_session_timeout_ms="500", share_heartbeat_interval_ms="200")
    async with place.explicit() as consumer:
        await until_assigned(consumer, 1)
        # The event loop stands still for longer than the coordinator waits.
        time.sleep(1.2)  # noqa: ASYNC251
        await place.produce(0)
        [record] = await poll_until(consumer, 1)
        consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}
        assert await members(place) == 1


async def test_09_three_members_split_one_partition(place: Place) -> None:
    await place.produce(*range(300))
    found: list[int] = []

    async def work() -> None:
        async with place.consumer(max_poll_records=1, max_wait=0.1) as consumer:
            while len(found) < 300:
                found.extend(numbers(await consumer.poll(timeout=0.1)))

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(work(), work(), work())
    assert sorted(found) == list(range(300))


async def test_10_the_last_member_gets_all_partitions(place: Place) -> None:
    many = Place(place.bootstrap)
    await many.create(partitions=4)
    async with many.consumer() as stays:
        async with many.consumer() as leaves:
            await until_assigned(leaves, 2)
            await until_assigned(stays, 2)
        await until_assigned(stays, 4)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
async def test_21_where_a_new_group_starts(place: Place, reset: str) -> None:
    await place.produce(0)
    async with place.consumer(auto_offset_reset=reset) as consumer:
        before = [] if reset == "latest" else [0]
        # The group starts with its first fetch.
        assert numbers(await consumer.poll(timeout=PATIENCE if before else 2.0)) == before
        await place.produce(1)
        assert numbers(await poll_until(consumer, 1)) == [1]


async def test_22_to_24_held_released_rejected(place: Place) -> None:
    await place.produce(*range(3))
    async with place.explicit() as first, place.explicit() as second:
        held = await poll_until(first, 3)
        assert await second.poll(timeout=0.3) == []
        for record, kind in zip(held, ("accept", "release", "reject"), strict=True):
            first.acknowledge(record, kind)  # type: ignore[arg-type]
        await first.commit()
        [again] = await poll_until(second, 1)
        assert (again.offset, again.delivery_count) == (1, 2)
        second.acknowledge(again)
        await second.commit()
        assert await first.poll(timeout=0.2) == []


async def test_25_a_lock_that_ends(place: Place) -> None:
    await place.set_lock(LOCK_MS)
    await place.produce(0)
    heard: list[Acknowledged] = []
    async with (
        place.explicit(on_acknowledge=heard.append) as late,
        place.explicit() as next_one,
    ):
        [record] = await poll_until(late, 1)
        [again] = await poll_until(next_one, 1)
        assert (again.offset, again.delivery_count) == (record.offset, 2)
        late.acknowledge(record)
        [error] = (await late.commit(return_errors=True)).values()
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.INVALID_RECORD_STATE
        assert heard[0].error is error
        next_one.acknowledge(again)
        assert set((await next_one.commit()).values()) == {None}


async def test_29_attempts_are_limited(place: Place) -> None:
    await set_group(place, share_delivery_count_limit="2")
    await place.produce(0, 1)
    counts: list[int] = []
    seen: list[int] = []
    async with place.explicit() as consumer, asyncio.timeout(PATIENCE):
        while 2 not in seen:
            for one in await consumer.poll(timeout=0.2):
                seen.append(one.offset)
                counts += [one.delivery_count] if one.offset == 0 else []
                consumer.acknowledge(one, "release" if one.offset == 0 else "accept")
            if counts == [1, 2] and 2 not in seen:
                # What follows it is not lost.
                await place.produce(2)
    assert counts == [1, 2]
    assert {0, 1, 2} == set(seen)


@pytest.mark.parametrize("strict", [False, True])
async def test_33_limits_are_soft_or_strict(place: Place, *, strict: bool) -> None:
    async with Producer(place.bootstrap, linger_ms=50, compression_type="gzip") as producer:
        records = [ProducerRecord(b"%d" % number) for number in range(10)]
        await producer.send_many(place.topic, records)
    mode = "record_limit" if strict else "batch_optimized"
    async with place.consumer(max_poll_records=3, acquire_mode=mode) as consumer:
        first = await poll_until(consumer, 1)
        assert numbers(first) == list(range(3 if strict else 10))
        if strict:
            [*rest] = await poll_until(consumer, 7)
            assert numbers(rest) == list(range(3, 10))
            assert {one.delivery_count for one in rest} == {1}


async def test_41_renewed_locks_last(place: Place) -> None:
    await place.set_lock(LOCK_MS)
    await place.produce(0)
    async with place.explicit() as consumer, place.explicit() as other:
        [record] = await poll_until(consumer, 1)
        for _ in range(2):
            await asyncio.sleep(LOCK_MS / 1000 * 2 / 3)
            consumer.acknowledge(record, "renew")
            assert set((await consumer.commit()).values()) == {None}
        assert await other.poll(timeout=0.2) == []
        consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}


async def release_under_a_poll(place: Place, *kinds: AckKind) -> list[int]:
    """What a poll that waits returns when another consumer says these of the first records.

    In less time than its fetch would take to end by itself.
    """
    await place.produce(*range(len(kinds)))
    patient = place.explicit(max_wait=60.0, request_timeout=90.0, api_timeout=90.0)
    async with place.explicit() as holder, patient as waiter:
        held = await poll_until(holder, len(kinds))
        await until_assigned(waiter, 1)
        waiting = asyncio.create_task(waiter.poll(90.0))
        await asyncio.sleep(0.3)
        for record, kind in zip(held, kinds, strict=True):
            holder.acknowledge(record, kind)
        await holder.commit()
        async with asyncio.timeout(50.0):
            again = await waiting
        assert {one.delivery_count for one in again} == {2}
        for record in again:
            waiter.acknowledge(record)
        return [one.offset for one in again]


async def test_44_a_waiting_poll_hears_of_a_release(place: Place) -> None:
    assert await release_under_a_poll(place, "accept", "release") == [1]


async def test_44_also_of_a_release_alone(own: Place) -> None:
    # Apache Kafka 4.3 looks at waiting fetches when an acknowledgement has moved the start of the
    # window, and a release alone does not: they end at their max_wait there, and the next one has
    # the record.
    assert await release_under_a_poll(own, "release") == [0]


HOLD = """
import asyncio, sys, ottla
async def main():
    async with ottla.ShareConsumer(sys.argv[1], group=sys.argv[2], topics=[sys.argv[3]],
                                   auto_offset_reset="earliest") as consumer:
        while not (found := await consumer.poll()):
            pass
        print(len(found), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_45_a_killed_process_gives_everything_back_at_once(place: Place) -> None:
    await place.produce(*range(5))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLD,
        place.bootstrap,
        place.group,
        place.topic,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"5\n"
    finally:
        process.kill()
        await process.communicate()
    async with place.consumer() as consumer:
        # Locks last 30 seconds here, which is as long as this waits.
        again = await poll_until(consumer, 5)
        assert {one.delivery_count for one in again} == {2}


async def test_61_implicit_by_the_next_poll_or_earlier(place: Place) -> None:
    await place.produce(0)
    heard: list[Acknowledged] = []
    async with place.consumer(on_acknowledge=heard.append, close_implicit="release") as consumer:
        await poll_until(consumer, 1)
        assert heard == []
        async with asyncio.timeout(PATIENCE):
            while not heard:
                assert await consumer.poll(timeout=0.1) == []
        assert [(one.first_offset, one.kind, one.error) for one in heard] == [(0, "accept", None)]
        await place.produce(1)
        await poll_until(consumer, 1)
        assert await consumer.commit() == {(place.topic, 0): None}
        assert heard[-1].first_offset == 1
        await place.produce(2)
        await poll_until(consumer, 1)
    async with place.consumer() as consumer:
        [again] = await poll_until(consumer, 1)
        assert (again.offset, again.delivery_count) == (2, 2)


async def test_62_explicit_with_undecided_records(place: Place) -> None:
    await place.produce(*range(2))
    async with place.explicit() as consumer:
        found = await poll_until(consumer, 2)
        for poll in (consumer.poll, consumer.poll_arrow):
            with pytest.raises(UnacknowledgedRecords, match="2 records"):
                await poll()
        for record in found:
            consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}
    await place.produce(2)
    async with place.consumer() as consumer:
        [record] = await poll_until(consumer, 1)
        with pytest.raises(WrongAckMode):
            consumer.acknowledge(record)


async def test_65_a_waiting_fetch_does_not_delay_heartbeats(place: Place) -> None:
    await set_group(place, share_session_timeout_ms="600", share_heartbeat_interval_ms="200")
    async with place.consumer(max_wait=20.0) as consumer:
        await until_assigned(consumer, 1)
        waiting = asyncio.create_task(consumer.poll(PATIENCE))
        # Twice as long as the coordinator does without heartbeats.
        await asyncio.sleep(1.2)
        assert not waiting.done()
        assert await members(place) == 1
        await place.produce(0)
        assert numbers(await waiting) == [0]


async def test_66_closing_says_good_bye(place: Place) -> None:
    await place.produce(*range(4))
    heard: list[Acknowledged] = []
    async with place.explicit(on_acknowledge=heard.append) as consumer:
        found = await poll_until(consumer, 4)
        for record in found[:2]:
            consumer.acknowledge(record)
    assert [(one.first_offset, one.last_offset, one.error) for one in heard] == [(0, 1, None)]
    assert await members(place) == 0
    async with place.explicit() as consumer:
        again = await poll_until(consumer, 2)
        assert [(one.offset, one.delivery_count) for one in again] == [(2, 2), (3, 2)]


async def test_a_subscription_can_change(place: Place) -> None:
    other = Place(place.bootstrap)
    await other.create()
    await place.produce(0)
    await other.produce(10)
    async with place.explicit() as consumer:
        [record] = await poll_until(consumer, 1)
        consumer.subscribe([other.topic])
        assert consumer.subscription == (other.topic,)
        # What is held of the old topic is still there to be decided about.
        consumer.acknowledge(record)
        [found] = await poll_until(consumer, 1)
        assert found.value == b"10"
        consumer.acknowledge(found)
        await consumer.commit()
        consumer.unsubscribe()
        with pytest.raises(NotSubscribed):
            await consumer.poll()
        async with asyncio.timeout(PATIENCE):
            while await members(place):  # noqa: ASYNC110  # nobody signals it
                await asyncio.sleep(0.02)
        await place.produce(1)
        consumer.subscribe([place.topic, other.topic])
        [last] = await poll_until(consumer, 1)
        assert last.value == b"1"
        consumer.acknowledge(last)


async def test_what_comes_for_a_topic_that_was_left_goes_back(place: Place) -> None:
    async with place.explicit(max_wait=10.0) as consumer:
        await until_assigned(consumer, 1)
        polling = asyncio.create_task(consumer.poll(PATIENCE))
        await asyncio.sleep(0.3)
        consumer.unsubscribe()
        with pytest.raises(NotSubscribed):
            await polling
        # The fetch that waits gets this, for nobody.
        await place.produce(0)
        async with place.consumer() as another:
            assert numbers(await poll_until(another, 1)) == [0]
