"""The event log: publish, subscribe, follow

The seam between the manager and what keeps the events; the tests run on both implementations.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, Producer, Security
from ottla.objects.errors import RetriableRemoteError
from ottla.tier.catalogue import (
    InProcessMetadataEventLog,
    KafkaMetadataEventLogConfig,
    LogClosed,
    MetadataEventRecord,
    PartitionOutOfRange,
    PartitionStart,
)
from tests.clauses.metadata_manager.managers import COUNT, open_topic

if TYPE_CHECKING:
    from ottla import EmbeddedBroker
    from ottla.tier.catalogue import MetadataEventLog, Subscription


async def test_publish_returns_the_offset(event_log: MetadataEventLog) -> None:
    """`publish` appends to a partition and returns where; offsets rise by one."""
    assert [await event_log.publish(1, bytes([n])) for n in range(3)] == [0, 1, 2]
    assert await event_log.publish(0, b"other") == 0


async def test_the_partition_count_is_fixed(event_log: MetadataEventLog) -> None:
    """A log has a fixed number of partitions; others do not exist."""
    assert event_log.partition_count == COUNT
    for number in (-1, COUNT):
        with pytest.raises(PartitionOutOfRange):
            await event_log.publish(number, b"")


async def test_the_ends_of_all_partitions(event_log: MetadataEventLog) -> None:
    """`high_water_marks` says where each partition ends; an empty one at 0."""
    await event_log.publish(1, b"a")
    await event_log.publish(1, b"b")
    assert await event_log.high_water_marks() == [0, 2, 0]


async def test_a_subscriber_gets_what_was_there_and_what_comes(event_log: MetadataEventLog) -> None:
    """A subscription gives the records from its start on, in order, first old and then new."""
    for value in (b"a", b"b"):
        await event_log.publish(1, value)
    stream = event_log.subscribe([PartitionStart(1, 0)])
    assert await _take(stream, 2) == [(1, 0, b"a"), (1, 1, b"b")]
    await event_log.publish(1, b"c")
    assert await _take(stream, 1) == [(1, 2, b"c")]
    await stream.close()


async def test_a_subscription_starts_at_an_offset(event_log: MetadataEventLog) -> None:
    """`PartitionStart` names a partition and the offset to start at."""
    for value in (b"a", b"b", b"c"):
        await event_log.publish(0, value)
    stream = event_log.subscribe([PartitionStart(0, 2)])
    assert await _take(stream, 1) == [(0, 2, b"c")]
    await stream.close()


async def test_partitions_can_be_added_while_it_runs(event_log: MetadataEventLog) -> None:
    """The assignment can change: `add` takes a partition in, and does nothing the second time."""
    await event_log.publish(2, b"a")
    stream = event_log.subscribe()
    assert stream.assigned() == set()
    stream.add(PartitionStart(2, 0))
    stream.add(PartitionStart(2, 1))
    assert stream.assigned() == {2}
    assert await _take(stream, 1) == [(2, 0, b"a")]
    await stream.close()


async def test_partitions_can_be_removed_while_it_runs(event_log: MetadataEventLog) -> None:
    """After `remove` nothing of the partition comes, until it is added again, at any offset."""
    await event_log.publish(0, b"taken")
    await event_log.publish(0, b"perhaps fetched already")
    stream = event_log.subscribe([PartitionStart(0, 0)])
    assert await _take(stream, 1) == [(0, 0, b"taken")]
    stream.remove(0)
    stream.remove(0)
    stream.add(PartitionStart(1, 0))
    await event_log.publish(1, b"here")
    assert await _take(stream, 1) == [(1, 0, b"here")]
    stream.add(PartitionStart(0, 1))
    assert await _take(stream, 1) == [(0, 1, b"perhaps fetched already")]
    await stream.close()


async def test_several_subscribers_see_the_same(event_log: MetadataEventLog) -> None:
    """Every subscriber sees every event of its partitions."""
    streams = [event_log.subscribe([PartitionStart(0, 0)]) for _ in range(2)]
    await event_log.publish(0, b"a")
    for stream in streams:
        assert await _take(stream, 1) == [(0, 0, b"a")]
        await stream.close()


async def test_a_closed_log_says_so(event_log: MetadataEventLog) -> None:
    """A closed log takes and gives nothing more."""
    stream = event_log.subscribe([PartitionStart(0, 0)])
    await event_log.close()
    with pytest.raises(LogClosed):
        await event_log.publish(0, b"")
    with pytest.raises(LogClosed):
        await stream.next()


def test_the_log_in_memory_needs_partitions() -> None:
    """The in-process log is made with its number of partitions."""
    assert InProcessMetadataEventLog(16).partition_count == 16
    with pytest.raises(ValueError, match="partition_count"):
        InProcessMetadataEventLog(0)


def test_the_topics_defaults_are_kafkas() -> None:
    """The topic is `__remote_log_metadata`, with 50 partitions and 3 replicas by default."""
    config = KafkaMetadataEventLogConfig("127.0.0.1:9092")
    assert config.topic == "__remote_log_metadata"
    assert (config.partition_count, config.replication_factor) == (50, 3)


async def test_a_missing_topic_is_made(broker: EmbeddedBroker, group: str) -> None:
    """The topic is made with delete cleanup and infinite retention; it is append-only."""
    log = await open_topic(broker.bootstrap, f"made-{group}")
    await log.close()
    async with Admin(broker.bootstrap) as admin:
        [found] = await admin.describe_topics([f"made-{group}"], configs=True)
    configs = {one.name: one.value for one in found.configs or ()}
    assert len(found.partitions) == COUNT
    assert configs["cleanup.policy"] == "delete"
    assert configs["retention.ms"] == "-1"


async def test_brokers_that_make_the_topic_at_once_share_it(
    broker: EmbeddedBroker, group: str
) -> None:
    """A topic that another broker has just made is used."""
    logs = await asyncio.gather(*(open_topic(broker.bootstrap, f"race-{group}") for _ in range(3)))
    assert len({log.topic_id for log in logs}) == 1
    for log in logs:
        await log.close()


async def test_an_existing_topic_is_used_as_it_is(
    broker: EmbeddedBroker, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An existing topic is reused, with its number of partitions and a warning if that differs."""
    broker.create_topic(f"old-{group}", partitions=7)
    log = await open_topic(broker.bootstrap, f"old-{group}")
    assert log.partition_count == 7
    assert "7 partitions" in caplog.text
    await log.close()


async def test_events_are_records_of_the_topic(broker: EmbeddedBroker, group: str) -> None:
    """Events are plain records: whoever writes them, the log gives them."""
    log = await open_topic(broker.bootstrap, f"plain-{group}")
    async with Producer(broker.bootstrap) as producer:
        await producer.send(f"plain-{group}", b"by a producer", partition=1)
    stream = log.subscribe([PartitionStart(1, 0)])
    assert await _take(stream, 1) == [(1, 0, b"by a producer")]
    await log.close()


async def test_reading_uses_no_consumer_group(broker: EmbeddedBroker, group: str) -> None:
    """Reads are fetches of single partitions: no group, no committed offsets."""
    log = await open_topic(broker.bootstrap, f"quiet-{group}")
    await log.publish(0, b"a")
    stream = log.subscribe([PartitionStart(0, 0)])
    await _take(stream, 1)
    async with Admin(broker.bootstrap) as admin:
        assert await admin.list_groups() == []
    await log.close()


async def test_a_cluster_that_cannot_be_reached_can_be_tried_again() -> None:
    """Opening fails while there is no broker; that passes."""
    with pytest.raises(RetriableRemoteError):
        await open_topic("127.0.0.1:1", "t", create_timeout_ms=100)


def test_security_is_an_option_and_plaintext_its_default() -> None:
    """The internal clients are plaintext by default, or use the given security."""
    assert KafkaMetadataEventLogConfig("127.0.0.1:9092").security == Security()
    other = Security("SASL_SSL", "PLAIN", "node", "secret")
    assert KafkaMetadataEventLogConfig("127.0.0.1:9092", security=other).security is other


def test_settings_are_positive() -> None:
    """Durations, sizes and counts are at least 1 and fit 32 bits."""
    for name in ("partition_count", "fetch_max_wait_ms", "fetch_max_bytes", "delivery_queue"):
        for wrong in (0, 1 << 31):
            with pytest.raises(ValueError, match=name):
                KafkaMetadataEventLogConfig("127.0.0.1:9092", **{name: wrong})  # type: ignore[arg-type]


async def _take(stream: Subscription, count: int) -> list[MetadataEventRecord]:
    async with asyncio.timeout(20):
        found = [await stream.next() for _ in range(count)]
    return [one for one in found if isinstance(one, MetadataEventRecord)]
