"""Which partition of the metadata topic holds the events of a partition: Kafka's own choice.

The hash is Java's over (low half of the topic id, high half, partition), then Kafka's murmur2. Any
other choice would still be readable event by event, yet no Kafka broker would find the events.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ottla.client.producer.partitioner import partition_of_key

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from ottla.tier.catalogue.segments import TopicIdPartition

_MASK_32: Final = 0xFFFF_FFFF
_MASK_64: Final = 0xFFFF_FFFF_FFFF_FFFF
_HASH = struct.Struct(">I")


def metadata_partition_for(topic_id: UUID, partition: int, partition_count: int) -> int:
    """The metadata partition of (topic id, partition); the name plays no part."""
    if partition_count <= 0:
        raise ValueError(f"partition_count: expected 1 or more, got {partition_count}")
    value = topic_id.int
    hashed = 1
    for part in (_fold(value & _MASK_64), _fold(value >> 64), partition):
        hashed = (31 * hashed + part) & _MASK_32
    return partition_of_key(_HASH.pack(hashed), partition_count)


def metadata_partitions_for(tips: Iterable[TopicIdPartition], partition_count: int) -> list[int]:
    """The metadata partitions of many partitions, each once, in order."""
    return sorted({metadata_partition_for(*tip.identity, partition_count) for tip in tips})


def _fold(value: int) -> int:
    return (value ^ value >> 32) & _MASK_32
