"""The in-process event log: backlog, live records, moving assignments."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tier.catalogue.event_log import (
    InProcessMetadataEventLog,
    LogClosed,
    MetadataEventRecord,
    PartitionOutOfRange,
    PartitionStart,
    Subscription,
)
from ottla.tier.catalogue.kafka_event_log import KafkaMetadataEventLogConfig


async def drain(subscription: Subscription) -> list[tuple[int, int, bytes]]:
    """All that comes without waiting for anybody."""
    found: list[tuple[int, int, bytes]] = []
    while True:
        task = asyncio.ensure_future(subscription.next())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return found
        record = task.result()
        assert isinstance(record, MetadataEventRecord)
        found.append((record.partition, record.offset, record.payload))


async def test_case_13_a_late_subscriber_gets_all_of_history() -> None:
    log = InProcessMetadataEventLog(2)
    offsets = [await log.publish(1, bytes([n])) for n in range(3)]
    early = log.subscribe([PartitionStart(1, 0)])
    late = log.subscribe([PartitionStart(1, 0)])
    assert offsets == [0, 1, 2]
    assert await log.high_water_marks() == [0, 3]
    assert await drain(early) == await drain(late) == [(1, n, bytes([n])) for n in range(3)]


async def test_case_14_a_publish_that_races_an_add_comes_once_and_last() -> None:
    log = InProcessMetadataEventLog(2)
    await log.publish(0, b"old")
    subscription = log.subscribe()
    waiting = asyncio.create_task(subscription.next())
    await asyncio.sleep(0)
    subscription.add(PartitionStart(0, 0))
    await log.publish(0, b"new")
    assert await waiting == MetadataEventRecord(0, 0, b"old")
    assert await drain(subscription) == [(0, 1, b"new")]


async def test_case_14_removed_partitions_are_silent_until_added_again() -> None:
    log = InProcessMetadataEventLog(2)
    subscription = log.subscribe([PartitionStart(0, 0), PartitionStart(1, 0)])
    for n in range(3):
        await log.publish(0, bytes([n]))
    await log.publish(1, b"other")
    subscription.remove(0)
    subscription.remove(0)
    assert await drain(subscription) == [(1, 0, b"other")]
    assert subscription.assigned() == {1}
    subscription.add(PartitionStart(0, 2))
    subscription.add(PartitionStart(0, 0))
    assert await drain(subscription) == [(0, 2, b"\x02")]


CALLS = ["publish", "add", "remove", "read"]


@given(st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 3))))
def test_case_14_any_order_of_calls(steps: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        log = InProcessMetadataEventLog(1)
        subscription = log.subscribe()
        expected: int | None = None
        for step, number in steps:
            if step == "publish":
                await log.publish(0, b"")
            elif step == "add":
                subscription.add(PartitionStart(0, number))
                expected = number if expected is None else expected
            elif step == "remove":
                subscription.remove(0)
                expected = None
            else:
                end = len(log.records[0])
                offsets = [offset for _, offset, _ in await drain(subscription)]
                assert offsets == list(range(end if expected is None else expected, end))
                expected = None if expected is None else max(expected, end)

    asyncio.run(scenario())


async def test_faults_of_a_log_have_names() -> None:
    log = InProcessMetadataEventLog(1)
    with pytest.raises(PartitionOutOfRange):
        await log.publish(1, b"")
    subscription = log.subscribe()
    with pytest.raises(PartitionOutOfRange):
        subscription.add(PartitionStart(-1, 0))
    await log.close()
    with pytest.raises(LogClosed):
        await subscription.next()
    with pytest.raises(LogClosed):
        await log.publish(0, b"")
    with pytest.raises(ValueError, match="partition_count"):
        InProcessMetadataEventLog(0)


@pytest.mark.parametrize("name", ["fetch_max_wait_ms", "partition_count", "delivery_queue"])
@pytest.mark.parametrize("value", [0, -1, 1 << 31])
def test_settings_of_the_kafka_log_are_positive_and_fit(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        KafkaMetadataEventLogConfig("127.0.0.1:1", **{name: value})  # type: ignore[arg-type]  # the name of an int field
