"""The end of a partition in the remote tier: every segment, every object, then the last event.

Each step may be repeated, so another node can complete an interrupted deletion: the states of the
deletion and of each segment are in the catalogue. DELETE_PARTITION_FINISHED is published once, as
the last event the partition ever has; a Kafka broker would stop reading at any later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.tier.catalogue.segments import (
    PartitionDeleteState,
    RemotePartitionDeleteMetadata,
    SegmentState,
    TopicIdPartition,
)
from ottla.tier.store.layout import partition_prefix
from ottla.tier.upkeep.copier import finish_delete, start_delete

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.tier.catalogue.rlmm import RemoteLogMetadataManager
    from ottla.tier.store.storage_manager import RemoteStorageManager


async def delete_partition(
    catalogue: RemoteLogMetadataManager,
    storage: RemoteStorageManager,
    tip: TopicIdPartition,
    *,
    broker_id: int,
    clock_ms: Callable[[], int],
    publish_events: bool = True,
) -> None:
    """Delete all segments of a deleted partition, or continue an earlier attempt.

    `publish_events` is remote.partition.delete.events: off where Kafka brokers share the topic,
    since they never write these events.
    """

    async def announce(state: PartitionDeleteState) -> None:
        before = catalogue.catalogue_of(tip).delete_state(tip)
        if publish_events and (before is None or before < state):
            await catalogue.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(tip, state, clock_ms(), broker_id)
            )

    if catalogue.catalogue_of(tip).delete_state(tip) is (
        PartitionDeleteState.DELETE_PARTITION_FINISHED
    ):
        return
    await announce(PartitionDeleteState.DELETE_PARTITION_MARKED)
    await announce(PartitionDeleteState.DELETE_PARTITION_STARTED)
    segments = catalogue.list_remote_log_segments(tip)
    for one in segments:
        if one.state is not SegmentState.DELETE_SEGMENT_STARTED:
            await start_delete(catalogue, one, broker_id=broker_id, now_ms=clock_ms())
    for one in segments:
        await finish_delete(catalogue, storage, one, broker_id=broker_id, now_ms=clock_ms())
    # Objects of copies that never came into the catalogue, or left it too early.
    async for found in storage.store.list(partition_prefix(storage.prefix, tip)):
        await storage.store.delete(found.key)
    await announce(PartitionDeleteState.DELETE_PARTITION_FINISHED)
