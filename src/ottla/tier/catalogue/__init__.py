"""The catalogue of remote segments: which segments of which partition are in the object store.

A manager publishes an event for each change and rebuilds its catalogue from the same events, so
every broker that reads them knows the same segments. A broker keeps the events in the topic
`__remote_log_metadata`; tests and tools may keep them in memory.

Names are imported when they are first used: a broker without tiered storage loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.tier.catalogue.codec import (
        decode_event,
        encode_event,
    )
    from ottla.tier.catalogue.event_log import (
        InProcessMetadataEventLog,
        LogClosed,
        MetadataEventLog,
        MetadataEventRecord,
        PartitionOutOfRange,
        PartitionReset,
        PartitionStart,
        PublishFailed,
        Subscription,
    )
    from ottla.tier.catalogue.kafka_event_log import (
        KafkaMetadataEventLog,
        KafkaMetadataEventLogConfig,
    )
    from ottla.tier.catalogue.placement import (
        metadata_partition_for,
        metadata_partitions_for,
    )
    from ottla.tier.catalogue.rlmm import (
        InMemoryRlmm,
        NotReadyRlmm,
        RemoteLogMetadataManager,
        SwappableRlmm,
    )
    from ottla.tier.catalogue.segments import (
        EpochStart,
        MetadataEvent,
        PartitionDeleteState,
        RemoteLogSegmentId,
        RemoteLogSegmentMetadata,
        RemoteLogSegmentMetadataUpdate,
        RemotePartitionDeleteMetadata,
        SegmentState,
        TopicIdPartition,
    )
    from ottla.tier.catalogue.topic_rlmm import (
        TopicBasedRemoteLogMetadataManager,
    )
    from ottla.tier.errors import (
        CodecError,
        InvalidAdd,
        InvalidSegment,
        InvalidUpdate,
        NotReady,
        SnapshotError,
        StaleSegmentState,
    )

__all__ = [
    "CodecError",
    "EpochStart",
    "InMemoryRlmm",
    "InProcessMetadataEventLog",
    "InvalidAdd",
    "InvalidSegment",
    "InvalidUpdate",
    "KafkaMetadataEventLog",
    "KafkaMetadataEventLogConfig",
    "LogClosed",
    "MetadataEvent",
    "MetadataEventLog",
    "MetadataEventRecord",
    "NotReady",
    "NotReadyRlmm",
    "PartitionDeleteState",
    "PartitionOutOfRange",
    "PartitionReset",
    "PartitionStart",
    "PublishFailed",
    "RemoteLogMetadataManager",
    "RemoteLogSegmentId",
    "RemoteLogSegmentMetadata",
    "RemoteLogSegmentMetadataUpdate",
    "RemotePartitionDeleteMetadata",
    "SegmentState",
    "SnapshotError",
    "StaleSegmentState",
    "Subscription",
    "SwappableRlmm",
    "TopicBasedRemoteLogMetadataManager",
    "TopicIdPartition",
    "decode_event",
    "encode_event",
    "metadata_partition_for",
    "metadata_partitions_for",
]

_HOMES = {
    "CodecError": "ottla.tier.errors",
    "EpochStart": "ottla.tier.catalogue.segments",
    "InMemoryRlmm": "ottla.tier.catalogue.rlmm",
    "InProcessMetadataEventLog": "ottla.tier.catalogue.event_log",
    "InvalidAdd": "ottla.tier.errors",
    "InvalidSegment": "ottla.tier.errors",
    "InvalidUpdate": "ottla.tier.errors",
    "KafkaMetadataEventLog": "ottla.tier.catalogue.kafka_event_log",
    "KafkaMetadataEventLogConfig": "ottla.tier.catalogue.kafka_event_log",
    "LogClosed": "ottla.tier.catalogue.event_log",
    "MetadataEvent": "ottla.tier.catalogue.segments",
    "MetadataEventLog": "ottla.tier.catalogue.event_log",
    "MetadataEventRecord": "ottla.tier.catalogue.event_log",
    "NotReady": "ottla.tier.errors",
    "NotReadyRlmm": "ottla.tier.catalogue.rlmm",
    "PartitionDeleteState": "ottla.tier.catalogue.segments",
    "PartitionOutOfRange": "ottla.tier.catalogue.event_log",
    "PartitionReset": "ottla.tier.catalogue.event_log",
    "PartitionStart": "ottla.tier.catalogue.event_log",
    "PublishFailed": "ottla.tier.catalogue.event_log",
    "RemoteLogMetadataManager": "ottla.tier.catalogue.rlmm",
    "RemoteLogSegmentId": "ottla.tier.catalogue.segments",
    "RemoteLogSegmentMetadata": "ottla.tier.catalogue.segments",
    "RemoteLogSegmentMetadataUpdate": "ottla.tier.catalogue.segments",
    "RemotePartitionDeleteMetadata": "ottla.tier.catalogue.segments",
    "SegmentState": "ottla.tier.catalogue.segments",
    "SnapshotError": "ottla.tier.errors",
    "StaleSegmentState": "ottla.tier.errors",
    "Subscription": "ottla.tier.catalogue.event_log",
    "SwappableRlmm": "ottla.tier.catalogue.rlmm",
    "TopicBasedRemoteLogMetadataManager": "ottla.tier.catalogue.topic_rlmm",
    "TopicIdPartition": "ottla.tier.catalogue.segments",
    "decode_event": "ottla.tier.catalogue.codec",
    "encode_event": "ottla.tier.catalogue.codec",
    "metadata_partition_for": "ottla.tier.catalogue.placement",
    "metadata_partitions_for": "ottla.tier.catalogue.placement",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ottla.tier.catalogue' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
