"""The functions of `ottla tier`; they use only offsets, the metadata topic and the store.

No broker has a private answer here. The catalogue is folded from the metadata topic as it is at
this moment; where the parts of a log begin and end comes from ListOffsets; what is in the store is
looked at in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from crc32c import crc32c

from ottla.client.errors import KafkaError
from ottla.client.security import PLAINTEXT
from ottla.objects.errors import RemoteNotFound, RemoteStorageError
from ottla.tier.catalogue.catalogue import Catalogue
from ottla.tier.catalogue.codec import decode_event
from ottla.tier.catalogue.event_log import MetadataEventRecord, PartitionStart
from ottla.tier.catalogue.kafka_event_log import (
    METADATA_TOPIC,
    KafkaMetadataEventLog,
    KafkaMetadataEventLogConfig,
)
from ottla.tier.catalogue.placement import metadata_partition_for
from ottla.tier.catalogue.segments import SegmentState, TopicIdPartition
from ottla.tier.errors import CodecError, CorruptRemoteData
from ottla.tier.store.layout import META_SUFFIX, CustomMetadata
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from ottla.client.admin.admin import Admin
    from ottla.client.security import Security
    from ottla.tier.catalogue.event_log import MetadataEventLog
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata
    from ottla.tier.store.storage_manager import RemoteStorageManager

_PIECE = 8 * 1024 * 1024


class NoCatalogue(RemoteStorageError):
    """The cluster has no metadata topic."""


class Folded(NamedTuple):
    """The catalogue of a moment; `undecodable` records of the topic were passed over."""

    catalogues: dict[int, Catalogue]
    undecodable: int

    def segments(self, tip: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        """By start offset, in any state."""
        count = len(self.catalogues)
        catalogue = self.catalogues[metadata_partition_for(*tip.identity, count)]
        return sorted(catalogue.cache(tip).segments.values(), key=lambda one: one.start_offset)


async def open_catalogue(
    admin: Admin, bootstrap: str, security: Security = PLAINTEXT
) -> KafkaMetadataEventLog:
    """The cluster's metadata topic; unlike a broker, a tool does not make one."""
    try:
        await admin.describe_topics([METADATA_TOPIC])
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise NoCatalogue(
            f"the cluster has no topic {METADATA_TOPIC}; start its brokers with "
            "remote.log.storage.system.enable=true"
        ) from error
    return await KafkaMetadataEventLog.open(
        KafkaMetadataEventLogConfig(
            bootstrap, replication_factor=1, client_id_prefix="ottla-cli", security=security
        )
    )


async def fold(event_log: MetadataEventLog) -> Folded:
    """Every metadata partition from its start to its end at this moment."""
    ends = await event_log.high_water_marks()
    catalogues = {number: Catalogue() for number in range(event_log.partition_count)}
    positions = {number: 0 for number, end in enumerate(ends) if end > 0}
    undecodable = 0
    subscription = event_log.subscribe([PartitionStart(number, 0) for number in positions])
    try:
        while any(position < ends[number] for number, position in positions.items()):
            record = await subscription.next()
            if not isinstance(record, MetadataEventRecord):
                catalogues[record.partition] = Catalogue()
                positions[record.partition] = record.earliest
                continue
            positions[record.partition] = record.offset + 1
            try:
                catalogues[record.partition].apply(decode_event(record.payload))
            except CodecError:
                undecodable += 1
    finally:
        await subscription.close()
    return Folded(catalogues, undecodable)


class PartitionStatus(NamedTuple):
    """Where one partition's log is; `highest_remote` is -1 if nothing is remote."""

    topic: str
    partition: int
    log_start: int
    local_start: int
    highest_remote: int
    log_end: int
    segments: int
    remote_bytes: int
    unfinished: int
    deleting: int
    unfinished_since_ms: int | None = None
    """When the oldest copy that is not finished began."""

    @property
    def lag(self) -> int:
        """Offsets that are on local disk alone."""
        return self.log_end - max(self.highest_remote + 1, self.log_start)


async def tiered_topics(admin: Admin, names: Iterable[str] = ()) -> list[tuple[str, UUID, int]]:
    """(name, id, partitions) of the tiered topics, of these or of all."""
    wanted = list(names) or [one.name for one in await admin.list_topics()]
    found = []
    for topic in await admin.describe_topics(wanted, configs=True):
        enabled = {one.name: one.value for one in topic.configs or ()}.get("remote.storage.enable")
        if enabled == "true":
            found.append((topic.name, UUID(bytes=bytes(topic.id)), len(topic.partitions)))
    return found


async def statuses(
    admin: Admin, folded: Folded, topics: Iterable[tuple[str, UUID, int]]
) -> list[PartitionStatus]:
    topics = list(topics)
    names = [name for name, _, _ in topics]
    start = await admin.list_offsets(names, "earliest")
    local = await admin.list_offsets(names, "earliest-local")
    remote = await admin.list_offsets(names, "latest-tiered")
    end = await admin.list_offsets(names, "latest")
    found = []
    for name, topic_id, partitions in topics:
        for number in range(partitions):
            at = next(key for key in end if (key.topic, key.partition) == (name, number))
            segments = folded.segments(TopicIdPartition(topic_id, name, number))
            finished = [one for one in segments if one.state is SegmentState.COPY_SEGMENT_FINISHED]
            begun = [
                one.event_timestamp_ms
                for one in segments
                if one.state is SegmentState.COPY_SEGMENT_STARTED
            ]
            found.append(
                PartitionStatus(
                    name,
                    number,
                    start[at].offset,
                    local[at].offset,
                    remote[at].offset,
                    end[at].offset,
                    len(finished),
                    sum(one.segment_size for one in finished),
                    len(begun),
                    sum(one.state is SegmentState.DELETE_SEGMENT_STARTED for one in segments),
                    min(begun, default=None),
                )
            )
    return found


class Problem(NamedTuple):
    """A difference between the store and the catalogue."""

    key: str
    what: str


async def verify(
    storage: RemoteStorageManager,
    segments: Iterable[RemoteLogSegmentMetadata],
    *,
    read_all: bool,
) -> AsyncIterator[tuple[RemoteLogSegmentMetadata, Problem | None]]:
    """Each finished segment, with the problem of its objects, if any."""
    for one in segments:
        if one.state is not SegmentState.COPY_SEGMENT_FINISHED:
            continue
        try:
            await _check(storage, one, read_all=read_all)
        except (RemoteNotFound, CorruptRemoteData) as error:
            yield one, Problem(storage.key(one), str(error))
        else:
            yield one, None


async def _check(
    storage: RemoteStorageManager, one: RemoteLogSegmentMetadata, *, read_all: bool
) -> None:
    await checked_size(storage, one)
    sections = await storage.fetch_meta(one)
    if sections.damaged:
        names = ", ".join(sorted(each.value for each in sections.damaged))
        raise CorruptRemoteData(f"{storage.key(one, META_SUFFIX)} is damaged: {names}")
    if not read_all:
        return
    crc = await log_crc(storage, one)
    custom = CustomMetadata.decode(one.custom_metadata)
    if custom is not None and crc != custom.log_crc:
        raise CorruptRemoteData(f"{storage.key(one)} is damaged: its CRC is {crc:08x}")


async def checked_size(storage: RemoteStorageManager, one: RemoteLogSegmentMetadata) -> int:
    """Of the segment's `.log`; `RemoteNotFound` or `CorruptRemoteData` if it is not as recorded."""
    key = storage.key(one)
    size = (await storage.store.head(key)).size
    if size != one.segment_size:
        raise CorruptRemoteData(f"{key} has {size} bytes, not {one.segment_size}")
    return size


async def log_crc(storage: RemoteStorageManager, one: RemoteLogSegmentMetadata) -> int:
    """The CRC-32C of the whole `.log`, as it is in the store."""
    crc = 0
    for start in range(0, one.segment_size, _PIECE):
        crc = crc32c(await storage.fetch_log_segment(one, start, start + _PIECE - 1), crc)
    return crc
