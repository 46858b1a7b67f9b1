"""Sources of the segments that a partition has in the store: a listing, or the metadata topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.objects.errors import RemoteNotFound, RemoteStorageError
from ottla.tier.catalogue.catalogue import Catalogue
from ottla.tier.catalogue.codec import decode_event
from ottla.tier.catalogue.event_log import MetadataEventRecord, PartitionStart
from ottla.tier.catalogue.placement import metadata_partition_for
from ottla.tier.catalogue.segments import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    SegmentState,
    TopicIdPartition,
)
from ottla.tier.errors import CodecError
from ottla.tier.store.layout import META_SUFFIX, partition_prefix, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from ottla.tier.catalogue.event_log import MetadataEventLog
    from ottla.tier.store.storage_manager import RemoteStorageManager

REQUESTS_IN_FLIGHT: Final = 16


class AmbiguousTopic(RemoteStorageError):
    """The store has several topics of this name; pass `topic_id`."""


class Found(NamedTuple):
    """The finished segments of a partition, in the order in which they were finished."""

    tip: TopicIdPartition
    segments: list[RemoteLogSegmentMetadata]


class SegmentSource(Protocol):
    """Finds the segments of a partition, for `RemoteReader`."""

    async def find(self, topic: str, partition: int, topic_id: UUID | None) -> Found:
        """The partition's finished segments; `RemoteNotFound` if the topic cannot be found."""


class ListingSource:
    """Finds segments by listing the store. A `.log` object without a `.meta` is ignored."""

    def __init__(self, storage: RemoteStorageManager) -> None:
        self._storage = storage
        self._turn = asyncio.Semaphore(REQUESTS_IN_FLIGHT)

    async def find(self, topic: str, partition: int, topic_id: UUID | None) -> Found:
        """The finished segments of a partition; without `topic_id` all keys are listed."""
        if topic_id is None:
            topic_id, keys = await self._search(topic, partition)
        else:
            prefix = partition_prefix(
                self._storage.prefix, TopicIdPartition(topic_id, topic, partition)
            )
            keys = [one.key async for one in self._storage.store.list(prefix)]
        tip = TopicIdPartition(topic_id, topic, partition)
        metas = [key for key in keys if key.endswith(META_SUFFIX)]
        found = await asyncio.gather(*map(self._segment, metas))
        # Copies of one range: the later one counts, as it does in the topic.
        found.sort(key=lambda one: (one.event_timestamp_ms, one.id.id))
        return Found(tip, found)

    async def _segment(self, key: str) -> RemoteLogSegmentMetadata:
        async with self._turn:
            return (await self._storage.fetch_manifest(key)).metadata

    async def _search(self, topic: str, partition: int) -> tuple[UUID, list[str]]:
        """The topic id and the partition's objects, by their names. Looks at all of them."""
        prefix = self._storage.prefix
        found: dict[UUID, list[str]] = {}
        async for one in self._storage.store.list(prefix):
            directory, _, rest = one.key.removeprefix(prefix).partition("/")
            candidate = topic_id_of(directory, topic)
            if candidate is not None:
                keys = found.setdefault(candidate, [])
                if rest.startswith(f"{partition}/"):
                    keys.append(one.key)
        if not found:
            raise RemoteNotFound(f"the store has nothing of topic {topic!r}")
        if len(found) > 1:
            ids = ", ".join(map(str, sorted(found)))
            raise AmbiguousTopic(f"topic {topic!r} has been {ids}; give the topic_id")
        return found.popitem()


class TopicSource:
    """Folds the partition's metadata partition, from its start to its end at this moment."""

    def __init__(self, event_log: MetadataEventLog, topic_ids: dict[str, UUID]) -> None:
        self._event_log = event_log
        self._topic_ids = topic_ids

    async def find(self, topic: str, partition: int, topic_id: UUID | None) -> Found:
        chosen = topic_id or self._topic_ids.get(topic)
        if chosen is None:
            raise RemoteNotFound(f"the id of topic {topic!r} is not known; give the topic_id")
        tip = TopicIdPartition(chosen, topic, partition)
        cache = (await self._fold(tip)).cache(tip)
        finished = SegmentState.COPY_SEGMENT_FINISHED
        return Found(tip, [one for one in cache.segments.values() if one.state is finished])

    async def _fold(self, tip: TopicIdPartition) -> Catalogue:
        log = self._event_log
        number = metadata_partition_for(*tip.identity, log.partition_count)
        end = (await log.high_water_marks())[number]
        catalogue = Catalogue()
        subscription = log.subscribe([PartitionStart(number, 0)])
        position = 0
        try:
            while position < end:
                record = await subscription.next()
                if not isinstance(record, MetadataEventRecord):
                    catalogue, position = Catalogue(), record.earliest
                    continue
                position = record.offset + 1
                try:
                    catalogue.apply(decode_event(record.payload))
                except CodecError:
                    continue
        finally:
            await subscription.close()
        if catalogue.delete_state(tip) is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            raise RemoteNotFound(f"{tip} was deleted")
        return catalogue


def rebuild_catalogue(segments: Iterable[RemoteLogSegmentMetadata]) -> Catalogue:
    """A catalogue of these segments, for a partition whose metadata topic was lost."""
    catalogue = Catalogue()
    for one in segments:
        catalogue.put_segment(one)
    return catalogue
