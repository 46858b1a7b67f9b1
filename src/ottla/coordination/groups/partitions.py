"""Sets of partitions by topic id, and their encoding in `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coordination.codec import Reader, Writer

TopicPartition: TypeAlias = tuple[UUID, int]
"""A partition in KIP-848: topic id and index."""

Partitions: TypeAlias = frozenset[TopicPartition]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[UUID, tuple[int, ...]]:
    """Partitions grouped by topic, as in the protocol, in a stable order."""
    grouped: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        grouped.setdefault(topic_id, []).append(index)
    return {topic_id: tuple(indexes) for topic_id, indexes in grouped.items()}


def write_partitions(writer: Writer, partitions: Partitions) -> None:
    def topic(item: tuple[UUID, tuple[int, ...]]) -> None:
        writer.uuid(item[0]).array(item[1], writer.int32).tags()

    writer.array(by_topic(partitions).items(), topic)


def read_partitions(reader: Reader) -> Partitions:
    def topic() -> list[TopicPartition]:
        topic_id = reader.uuid()
        indexes = reader.array(reader.int32)
        reader.tags()
        return [(topic_id, index) for index in indexes]

    return frozenset(pair for pairs in reader.array(topic) for pair in pairs)
