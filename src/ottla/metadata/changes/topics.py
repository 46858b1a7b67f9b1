"""Changes of topics: create, add partitions, set leaders, delete."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

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
"""The nodes that may lead a partition; the first is the preferred leader."""


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """`assignment` has the replicas of each partition; the first that is alive leads it.

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
        partitions = _new_partitions(image, self.assignment, 0, where, self.leader_epoch)
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
    """Remove a topic and its settings."""

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
        added = _new_partitions(image, self.assignment, len(topic.partitions), where)
        return _with_topic(image, replace(topic, partitions=topic.partitions + added))


class Leadership(NamedTuple):
    """A new leader and new replicas of one partition.

    None keeps what there is; `NO_LEADER` is a leader, too. With `partition_epoch` the change is
    refused unless the partition is still at that epoch.
    """

    topic_id: UUID
    partition: int
    leader: int | None = None
    replicas: Replicas | None = None
    partition_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class SetLeaders:
    """Who leads, and who may lead: of many partitions at once, all or none.

    A leader must be alive, but need not be among the replicas: it stands in for them. Naming the
    leader that a partition has begins a new leadership all the same.
    """

    leaderships: tuple[Leadership, ...]

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        alive = {NO_LEADER, *image.alive}
        changed: dict[UUID, list[Partition]] = {}
        for one in self.leaderships:
            topic = _topic(image, one.topic_id, "SetLeaders")
            where = f"SetLeaders of {topic.name}-{one.partition}"
            if not 0 <= one.partition < len(topic.partitions):
                raise UnknownPartition(f"0 to {len(topic.partitions) - 1}", one.partition, where)
            partitions = changed.setdefault(topic.topic_id, list(topic.partitions))
            old = partitions[one.partition]
            if one.partition_epoch is not None and one.partition_epoch != old.partition_epoch:
                raise StalePartitionEpoch(old.partition_epoch, one.partition_epoch, where)
            if one.leader is not None and one.leader not in alive:
                raise InvalidReplicaAssignment(f"one of nodes {image.alive}", one.leader, where)
            if one.replicas is not None:
                _check_replicas(one.replicas, where)
            partitions[one.partition] = Partition(
                old.leader if one.leader is None else one.leader,
                old.leader_epoch + (one.leader is not None),
                old.partition_epoch + 1,
                old.replicas if one.replicas is None else one.replicas,
            )
        topics = dict(image.topics_by_name)
        for topic_id, partitions in changed.items():
            topic = _topic(image, topic_id, "SetLeaders")
            topics[topic.name] = replace(topic, partitions=tuple(partitions))
        return replace(image, topics_by_name=topics)


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
    image: MetadataImage,
    assignment: tuple[Replicas, ...],
    existing: int,
    where: str,
    leader_epoch: int = 0,
) -> tuple[Partition, ...]:
    total = existing + len(assignment)
    if total > MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitions(f"at most {MAX_PARTITIONS_PER_TOPIC}", total, where)
    for replicas in assignment:
        _check_replicas(replicas, where)
    alive = image.alive
    return tuple(
        Partition(
            next((node for node in replicas if node in alive), NO_LEADER), leader_epoch, 0, replicas
        )
        for replicas in assignment
    )


def _check_replicas(replicas: Replicas, where: str) -> None:
    if not replicas or len(set(replicas)) != len(replicas) or min(replicas) < 0:
        raise InvalidReplicaAssignment("distinct node ids, at least one", replicas, where)


def _with_topic(image: MetadataImage, topic: Topic) -> MetadataImage:
    return replace(image, topics_by_name=with_entry(image.topics_by_name, topic.name, topic))
