"""The metadata topic of a real broker as an event log."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.security import Security
from ottla.objects.errors import RemoteNotFound, RetriableRemoteError
from ottla.objects.local import LocalStore
from ottla.testing.embedded import EmbeddedBroker
from ottla.tier.catalogue.event_log import MetadataEventRecord, PartitionStart, PublishFailed
from ottla.tier.catalogue.kafka_event_log import (
    METADATA_TOPIC,
    KafkaMetadataEventLog,
    KafkaMetadataEventLogConfig,
)
from ottla.tier.catalogue.topic_rlmm import TopicBasedRemoteLogMetadataManager
from ottla.tier.store.storage_manager import RemoteStorageManager
from ottla.tier.upkeep.copier import CopyStep, delete_segment
from tests.support.ports import free_port
from tests.support.tier_copies import copy_of
from tests.support.tier_logs import NOW_MS, make_log, rolled
from tests.support.tiering import FINISHED, TIP, becomes, segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.tier.catalogue.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def config(bootstrap: str, partitions: int = 5) -> KafkaMetadataEventLogConfig:
    return KafkaMetadataEventLogConfig(
        bootstrap, partition_count=partitions, replication_factor=1, retry_backoff_ms=20
    )


async def test_case_15_two_brokers_race_to_make_the_topic(broker: EmbeddedBroker) -> None:
    one, two = await asyncio.gather(
        *(KafkaMetadataEventLog.open(config(broker.bootstrap)) for _ in range(2))
    )
    try:
        assert one.topic_id == two.topic_id
        async with Admin(broker.bootstrap) as admin:
            (topic,) = await admin.describe_topics([METADATA_TOPIC], configs=True)
        settings = {entry.name: entry.value for entry in topic.configs or ()}
        assert len(topic.partitions) == one.partition_count == 5
        assert settings["cleanup.policy"] == "delete"
        assert settings["retention.ms"] == "-1"
        assert settings["min.insync.replicas"] == "1"
    finally:
        await one.close()
        await two.close()


async def test_case_15_an_existing_topic_keeps_its_partitions(broker: EmbeddedBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(METADATA_TOPIC, 7, 1)
    log = await KafkaMetadataEventLog.open(config(broker.bootstrap))
    try:
        assert log.partition_count == 7
        assert await log.high_water_marks() == [0] * 7
    finally:
        await log.close()


async def test_case_16_a_follower_waits_for_its_broker(tmp_path: Path) -> None:
    port = free_port()
    with EmbeddedBroker(tmp_path, port=port) as running:
        bootstrap = running.bootstrap
        log = await KafkaMetadataEventLog.open(config(bootstrap))
        offsets = [await log.publish(3, bytes([n])) for n in range(3)]
    assert offsets == [0, 1, 2]
    try:
        subscription = log.subscribe([PartitionStart(3, 1)])
        first = asyncio.create_task(subscription.next())
        await asyncio.sleep(0.1)
        assert not first.done()
        with EmbeddedBroker(tmp_path, port=port):
            found = [await first, await subscription.next()]
            await log.publish(3, b"live")
            found.append(await subscription.next())
            expected = [(1, b"\x01"), (2, b"\x02"), (3, b"live")]
            assert found == [MetadataEventRecord(3, *pair) for pair in expected]
            subscription.remove(3)
            assert subscription.assigned() == set()
            await log.close()
    finally:
        await log.close()


async def test_a_log_closes_without_its_broker(tmp_path: Path) -> None:
    """Nodes that are stopped together: one waited two minutes for an event nobody could store."""
    with EmbeddedBroker(tmp_path) as running:
        log = await KafkaMetadataEventLog.open(config(running.bootstrap))
        await log.publish(3, b"stored")
    unsent = asyncio.create_task(log.publish(3, b"not stored"))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await log.close()
    with pytest.raises(PublishFailed, match="closed"):
        await unsent


async def test_case_17_no_group_and_a_catalogue_on_the_topic(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    log = await KafkaMetadataEventLog.open(config(broker.bootstrap))
    manager = await TopicBasedRemoteLogMetadataManager.start(log, tmp_path, "cluster")
    try:
        await manager.reconcile_assignment(range(log.partition_count))
        await manager.add_remote_log_segment_metadata(segment(0, 9))
        await manager.update_remote_log_segment_metadata(becomes(segment(0, 9), FINISHED, b"c"))
        assert manager.remote_log_segment_metadata(TIP, 0, 5) is not None
        assert sum(await log.high_water_marks()) == 2
        async with Admin(broker.bootstrap) as admin:
            assert await admin.list_groups() == []
    finally:
        await manager.close()
        await log.close()


async def test_case_13_two_nodes_share_the_topic_and_an_old_leader_is_fenced(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The old leader hangs between its uploads and the last event; the new one copies anew."""
    log = make_log(tmp_path / "log")
    storage = RemoteStorageManager(LocalStore(tmp_path / "store"), "", "cluster")
    async with AsyncExitStack() as stack:
        stack.callback(log.close)
        old, new = [await manager_on(stack, broker, tmp_path / name) for name in ("old", "new")]
        late, own = next(rolled(log)), next(rolled(log, first_number=5000))
        zombie = copy_of(late, old, storage)
        while zombie.next is not CopyStep.FINISH:
            await zombie.step()
        await listed(new, [late.metadata.id])
        await delete_segment(new, storage, late.metadata, broker_id=6, clock_ms=lambda: NOW_MS)
        finished = await copy_of(own, new, storage).run()
        await listed(old, [own.metadata.id])
        with pytest.raises(RemoteNotFound):
            await zombie.run()
        # Had nobody swept it, its copy would stand beside the other and hide nothing.
        twin = next(rolled(log, first_number=7000))
        await copy_of(twin, old, storage).run()
        for manager in (old, new):
            await listed(manager, [own.metadata.id, twin.metadata.id])
            found = manager.remote_log_segment_metadata(TIP, 0, finished.start_offset)
            assert found is not None
            assert await storage.fetch_log_segment(found, 0) == own.data.log.read_bytes()
        assert listing(old) == listing(new)


async def manager_on(
    stack: AsyncExitStack, broker: EmbeddedBroker, directory: Path
) -> TopicBasedRemoteLogMetadataManager:
    log = await KafkaMetadataEventLog.open(config(broker.bootstrap))
    stack.push_async_callback(log.close)
    manager = await TopicBasedRemoteLogMetadataManager.start(log, directory, "cluster")
    stack.push_async_callback(manager.close)
    await manager.reconcile_assignment(range(log.partition_count))
    return manager


def listing(
    manager: TopicBasedRemoteLogMetadataManager,
) -> dict[RemoteLogSegmentId, RemoteLogSegmentMetadata]:
    return {one.id: one for one in manager.list_remote_log_segments(TIP)}


async def listed(
    manager: TopicBasedRemoteLogMetadataManager, ids: list[RemoteLogSegmentId]
) -> None:
    """Until a manager knows these, which another one has told of."""
    async with asyncio.timeout(60):
        while not manager.is_ready(TIP) or set(listing(manager)) != set(ids):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_case_17_security_reaches_the_connections() -> None:
    """A password is not sent in the clear, so that the settings must have arrived."""
    asked = Security("SASL_PLAINTEXT", "PLAIN", "user", "secret")
    with pytest.raises(RetriableRemoteError, match="would send a secret in the clear"):
        await KafkaMetadataEventLog.open(KafkaMetadataEventLogConfig("192.0.2.1:1", security=asked))


async def test_an_absent_cluster_is_retriable() -> None:
    unreachable = KafkaMetadataEventLogConfig("127.0.0.1:1", create_timeout_ms=50)
    with pytest.raises(RetriableRemoteError):
        await KafkaMetadataEventLog.open(unreachable)
