"""From the store back into the catalogue: segments that the catalogue has lost.

Each `.meta` describes its segment. This is only for a catalogue with a gap: without a gap, segments
missing in the catalogue were deleted, or their copy was never finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.tier.catalogue.segments import SegmentState
from ottla.tier.store.layout import META_SUFFIX, partition_prefix, segment_id_of
from ottla.tier.upkeep.validity import is_within_lineage

if TYPE_CHECKING:
    from ottla.broker.tiering.tiering import Tiering
    from ottla.log.epochs import LeaderEpochs
    from ottla.log.partition import PartitionLog
    from ottla.tier.catalogue.lineage import RemoteLogMetadataCache
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata, TopicIdPartition


def finished_segments(cache: RemoteLogMetadataCache) -> list[RemoteLogSegmentMetadata]:
    finished = SegmentState.COPY_SEGMENT_FINISHED
    return [one for one in cache.segments.values() if one.state is finished]


def covered_until(cache: RemoteLogMetadataCache, epochs: LeaderEpochs, offset: int) -> int:
    """The first offset from here on that cannot be read from the remote tier."""
    while (segment := cache.find(epochs.epoch_at(offset), offset)) is not None:
        offset = segment.end_offset + 1
    return offset


async def missing_segments(
    tiering: Tiering, tip: TopicIdPartition, log: PartitionLog
) -> list[RemoteLogSegmentMetadata]:
    """Whole segments in the store that are of the log and not known."""
    storage = tiering.storage
    cache = tiering.catalogue.catalogue_of(tip).cache(tip)
    lineage = tuple(log.epochs.entries)
    found = []
    async for one in storage.store.list(partition_prefix(storage.prefix, tip)):
        if not one.key.endswith(META_SUFFIX) or segment_id_of(one.key) in cache.segments:
            continue
        metadata = (await storage.fetch_manifest(one.key)).metadata
        if metadata.end_offset >= log.log_start_offset and is_within_lineage(
            metadata, lineage, log.log_end_offset
        ):
            found.append(metadata)
    return sorted(found, key=lambda one: (one.event_timestamp_ms, one.start_offset))
