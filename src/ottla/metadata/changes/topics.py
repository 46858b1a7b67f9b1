"""Changes of topics: create, add partitions, set leaders, delete."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ottla.metadata.changes.mappings import with_entry, without_entry
from ottla.metadata.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    StalePartitionEpoch,
    TopicExists,
    TopicNameCollision,
    UnknownPartition,
    UnknownTopic,
)
from ottla.metadata.image import (
    NO_LEADER,
    RESERVED_TOPIC_IDS,
    MetadataImage,
    Partition,
    Topic,
    topic_id_text,
)
from ottla.metadata.names import check_topic_name, collision_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

# Bounds what one request can make a broker hold; far above what one node can serve.
MAX_PARTITIONS_PER_TOPIC: Final = 100_000

Replicas = tuple[int, ...]
"""Node ids that hold a partition; the first is the preferred leader."""


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """`assignment` has the replicas of each partition, the first of which leads it.

    `leader_epoch` is the first epoch; a topic with adopted logs must not start at 0.
    """

    name: str
    topic_id: UUID
    assignment: tuple[Replicas, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    leader_epoch: int = 0

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        check_topic_name(self.name)
        where = f"CreateTopic {self.name!r}"
        if self.name in image.topics_by_name:
            raise TopicExists("a name not in use", repr(self.name), where)
        if self.topic_id in RESERVED_TOPIC_IDS or self.topic_id in image.topic_names:
            raise TopicExists("an id not in use", topic_id_text(self.topic_id), where)
        if "_" in self.name or "." in self.name:
            _check_collision(image, self.name)
        if not self.assignment:
            raise InvalidPartitions("at least 1", 0, where)
        partitions = _new_partitions(self.assignment, 0, where, self.leader_epoch)
        topic = Topic(self.name, self.topic_id, partitions)
        configs = image.topic_configs
        if self.configs:
            configs = with_entry(configs, topic.name, self.configs)
        return replace(
            image,
            topics_by_name=with_entry(image.topics_by_name, topic.name, topic),
            topic_names=with_entry(image.topic_names, topic.topic_id, topic.name),
            topic_configs=configs,
        )


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic_id: UUID

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        topic = _topic(image, self.topic_id, "DeleteTopic")
        return replace(
            image,
            topics_by_name=without_entry(image.topics_by_name, topic.name),
            topic_names=without_entry(image.topic_names, topic.topic_id),
            topic_configs=without_entry(image.topic_configs, topic.name),
        )


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """`assignment` has the replicas of the new partitions only."""

    topic_id: UUID
    assignment: tuple[Replicas, ...]

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        topic = _topic(image, self.topic_id, "AddPartitions")
        where = f"AddPartitions to {topic.name!r}"
        if not self.assignment:
            raise InvalidPartitions("at least 1 new one", 0, where)
        added = _new_partitions(self.assignment, len(topic.partitions), where)
        return _with_topic(image, replace(topic, partitions=topic.partitions + added))


@dataclass(frozen=True, slots=True)
class SetLeader:
    """A new leadership. None keeps replicas or in-sync replicas; `NO_LEADER` is a leader too.

    With `partition_epoch` the change is refused unless the partition is still at that epoch.
    """

    topic_id: UUID
    partition: int
    leader: int
    replicas: Replicas | None = None
    isr: Replicas | None = None
    partition_epoch: int | None = None

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        topic = _topic(image, self.topic_id, "SetLeader")
        where = f"SetLeader of {topic.name}-{self.partition}"
        if not 0 <= self.partition < len(topic.partitions):
            raise UnknownPartition(f"0 to {len(topic.partitions) - 1}", self.partition, where)
        old = topic.partitions[self.partition]
        if self.partition_epoch is not None and self.partition_epoch != old.partition_epoch:
            raise StalePartitionEpoch(old.partition_epoch, self.partition_epoch, where)
        new = Partition(
            self.leader,
            old.leader_epoch + 1,
            old.partition_epoch + 1,
            old.replicas if self.replicas is None else self.replicas,
            old.isr if self.isr is None else self.isr,
        )
        _check_replicas(new.replicas, where)
        if not new.isr or not set(new.isr) <= set(new.replicas):
            raise InvalidReplicaAssignment(f"in-sync replicas among {new.replicas}", new.isr, where)
        if new.leader != NO_LEADER and new.leader not in new.isr:
            raise InvalidReplicaAssignment(f"a leader among {new.isr}", new.leader, where)
        partitions = list(topic.partitions)
        partitions[self.partition] = new
        return _with_topic(image, replace(topic, partitions=tuple(partitions)))


def _topic(image: MetadataImage, topic_id: UUID, where: str) -> Topic:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise UnknownTopic("the id of a topic", topic_id_text(topic_id), where)
    return topic


def _check_collision(image: MetadataImage, name: str) -> None:
    key = collision_key(name)
    for other in image.topics_by_name:
        if collision_key(other) == key:
            raise TopicNameCollision(
                "a name that differs in more than '.' and '_'",
                f"{name!r} beside {other!r}",
                "CreateTopic",
            )


def _new_partitions(
    assignment: tuple[Replicas, ...], existing: int, where: str, leader_epoch: int = 0
) -> tuple[Partition, ...]:
    total = existing + len(assignment)
    if total > MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitions(f"at most {MAX_PARTITIONS_PER_TOPIC}", total, where)
    for replicas in assignment:
        _check_replicas(replicas, where)
    return tuple(
        Partition(replicas[0], leader_epoch, 0, replicas, replicas) for replicas in assignment
    )


def _check_replicas(replicas: Replicas, where: str) -> None:
    if not replicas or len(set(replicas)) != len(replicas) or min(replicas) < 0:
        raise InvalidReplicaAssignment("distinct node ids, at least one", replicas, where)


def _with_topic(image: MetadataImage, topic: Topic) -> MetadataImage:
    return replace(image, topics_by_name=with_entry(image.topics_by_name, topic.name, topic))
