"""Find and repair differences between catalogue and store.

- `PUT_BACK`: a segment is whole in the store and the log needs it, but the catalogue has lost it.
- `REMAKE_META`: the catalogue has it and its `.log` is what was copied, but `.meta` is missing or
  damaged. Offset and time index are made again from the log. The list of aborted transactions
  cannot be, so a segment that has one is lost; the producers' state is left out, as no reader asks
  for it.
- `LOST`: the catalogue has it and its `.log` is missing or has another size. Only the operator of
  the store can restore it.

A `.log` without `.meta` that is not in the catalogue is an unfinished copy: the brokers' scrub
removes it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.epochs import LeaderEpochs
from ottla.objects.errors import RemoteNotFound
from ottla.tier.catalogue.codec import encode_event
from ottla.tier.catalogue.placement import metadata_partition_for
from ottla.tier.catalogue.segments import RemoteLogSegmentMetadataUpdate, SegmentState
from ottla.tier.errors import CorruptRemoteData
from ottla.tier.reading.index_rebuild import rebuild_indexes
from ottla.tier.store.layout import (
    META_SUFFIX,
    CustomMetadata,
    Section,
    encode_meta,
    partition_prefix,
    segment_id_of,
)
from ottla.tier.upkeep.copying import events_of_copy
from ottla.tier.upkeep.tools import checked_size, log_crc

if TYPE_CHECKING:
    from ottla.tier.catalogue.event_log import MetadataEventLog
    from ottla.tier.catalogue.segments import (
        MetadataEvent,
        RemoteLogSegmentMetadata,
        TopicIdPartition,
    )
    from ottla.tier.store.storage_manager import RemoteStorageManager
    from ottla.tier.upkeep.tools import Folded


class Cure(Enum):
    """The repair of a defect."""

    PUT_BACK = "put back into the catalogue"
    REMAKE_META = "make .meta again"
    LOST = "lost"


class Defect(NamedTuple):
    """A defective segment and its repair."""

    metadata: RemoteLogSegmentMetadata
    cure: Cure


async def find_defects(
    storage: RemoteStorageManager, folded: Folded, tip: TopicIdPartition, log_start: int
) -> list[Defect]:
    """Of the segments that the log needs, by start offset."""
    known = folded.segments(tip)
    finished = [one for one in known if one.state is SegmentState.COPY_SEGMENT_FINISHED]
    found = [
        Defect(one, cure)
        for one in finished
        if one.end_offset >= log_start and (cure := await _cure(storage, one)) is not None
    ]
    reached = {(one.start_offset, one.end_offset) for one in finished}
    ids = {one.id.id for one in known}
    async for one in storage.store.list(partition_prefix(storage.prefix, tip)):
        if one.key.endswith(META_SUFFIX) and segment_id_of(one.key) not in ids:
            try:
                unknown = (await storage.fetch_manifest(one.key)).metadata
            except CorruptRemoteData:
                continue  # not whole
            if unknown.end_offset >= log_start and _span(unknown) not in reached:
                found.append(Defect(unknown, Cure.PUT_BACK))
    return sorted(found, key=lambda one: one.metadata.start_offset)


def _span(one: RemoteLogSegmentMetadata) -> tuple[int, int]:
    return one.start_offset, one.end_offset


async def _cure(storage: RemoteStorageManager, one: RemoteLogSegmentMetadata) -> Cure | None:
    try:
        await checked_size(storage, one)
    except (RemoteNotFound, CorruptRemoteData):
        return Cure.LOST
    try:
        if not (await storage.fetch_meta(one)).damaged:
            return None
    except (RemoteNotFound, CorruptRemoteData):
        pass
    return Cure.REMAKE_META if one.txn_index_empty else Cure.LOST


async def mend(
    storage: RemoteStorageManager, event_log: MetadataEventLog, defect: Defect, *, now_ms: int
) -> None:
    """Carry out a repair; lost segments cannot be repaired."""
    if defect.cure is Cure.PUT_BACK:
        # As the broker that made the copy would have told.
        for event in events_of_copy(defect.metadata):
            await _publish(event_log, defect.metadata.tip, event)
    elif defect.cure is Cure.REMAKE_META:
        await _remake_meta(storage, event_log, defect.metadata, now_ms)


async def _remake_meta(
    storage: RemoteStorageManager,
    event_log: MetadataEventLog,
    one: RemoteLogSegmentMetadata,
    now_ms: int,
) -> None:
    crc = await log_crc(storage, one)
    former = CustomMetadata.decode(one.custom_metadata)
    if former is not None and crc != former.log_crc:
        raise CorruptRemoteData(
            f"{storage.key(one)} was changed after the copy: its CRC is {crc:08x}"
        )
    offsets, times = await rebuild_indexes(storage, one)
    lineage = [(epoch, start) for epoch, start in one.leader_epochs]
    content, custom = encode_meta(
        one,
        storage.cluster_id,
        crc,
        {
            Section.OFFSET: offsets.encode(),
            Section.TIMESTAMP: times.encode(),
            Section.LEADER_EPOCH: LeaderEpochs(lineage).encode(),
        },
    )
    key = storage.key(one, META_SUFFIX)
    await storage.store.delete(key)
    await storage.store.put_new(key, content)
    # The catalogue says where in `.meta` each part is.
    update = RemoteLogSegmentMetadataUpdate(
        one.id, one.broker_id, now_ms, custom.encode(), SegmentState.COPY_SEGMENT_FINISHED
    )
    await _publish(event_log, one.tip, update)


async def _publish(
    event_log: MetadataEventLog, tip: TopicIdPartition, event: MetadataEvent
) -> None:
    number = metadata_partition_for(*tip.identity, event_log.partition_count)
    await event_log.publish(number, encode_event(event))
