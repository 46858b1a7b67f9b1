"""The changes a cluster can undergo, and `apply`, the only way an image changes.

`apply` is pure: the same changes folded over the same image give the same image on every node and
at every start. It refuses a change that does not fit with a `ChangeRefused` and then changes
nothing. Whatever is random or timed (topic ids, which node to place a partition on) is decided
before and carried in the change.

Leadership follows registration:

* a broker that registers (again) or is unfenced leads every partition that names it leader, and
  every leaderless one that has it in sync, in a new leader epoch: it may have lost its memory;
* a broker that is fenced or unregistered leaves its partitions without a leader.

Configuration values are not checked here: the rules for them change between versions, what is
stored must fold the same for ever. Check with `ottla.metadata.config.values` before proposing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.metadata.errors import (
    ChangeRefused,
    ClusterIdFixed,
    InvalidFeatureLevel,
    InvalidPartitions,
    InvalidReplicaAssignment,
    ProducerIdsExhausted,
    StaleBrokerEpoch,
    StalePartitionEpoch,
    TopicExists,
    TopicNameCollision,
    UnknownBroker,
    UnknownPartition,
    UnknownTopic,
)
from ottla.metadata.image import (
    NO_LEADER,
    RESERVED_TOPIC_IDS,
    Broker,
    Endpoint,
    MetadataImage,
    Partition,
    ResourceType,
    Topic,
    topic_id_text,
)
from ottla.metadata.names import check_topic_name, collision_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

# Bounds what one request can make a broker hold; far above what one node can serve.
MAX_PARTITIONS_PER_TOPIC: Final = 100_000
MAX_PRODUCER_ID: Final = 2**63 - 1

Replicas = tuple[int, ...]
"""Node ids that hold a partition; the first is the preferred leader."""


@dataclass(frozen=True, slots=True)
class SetClusterId:
    cluster_id: str


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A new incarnation of a node; its epoch is the version this change makes."""

    node_id: int
    listeners: Mapping[str, Endpoint]
    rack: str | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class SetBrokerFenced:
    node_id: int
    broker_epoch: int
    fenced: bool


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    node_id: int


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """`assignment` has the replicas of each partition, the first of which leads it.

    `leader_epoch` is the first; a topic whose logs come from elsewhere must not begin at 0.
    """

    name: str
    topic_id: UUID
    assignment: tuple[Replicas, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """`assignment` has the replicas of the new partitions only."""

    topic_id: UUID
    assignment: tuple[Replicas, ...]


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


@dataclass(frozen=True, slots=True)
class SetConfigs:
    """Sets overrides of one resource; None removes one. Broker "" is the default of all."""

    resource_type: ResourceType
    name: str
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class SetFeature:
    """Finalises a feature; level 0 removes it."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Takes the block [next_producer_id, next_producer_id + count) for a node."""

    node_id: int
    count: int


Change = (
    SetClusterId
    | RegisterBroker
    | SetBrokerFenced
    | UnregisterBroker
    | CreateTopic
    | DeleteTopic
    | AddPartitions
    | SetLeader
    | SetConfigs
    | SetFeature
    | AllocateProducerIds
)

_K = TypeVar("_K")
_V = TypeVar("_V")


def apply(image: MetadataImage, change: Change) -> MetadataImage:
    """The image one version on, or a `ChangeRefused`."""
    return _apply(change, replace(image, version=image.version + 1))


def apply_all(image: MetadataImage, changes: Iterable[Change]) -> MetadataImage:
    for change in changes:
        image = apply(image, change)
    return image


@singledispatch
def _apply(change: object, image: MetadataImage) -> MetadataImage:
    """`image` is the old image with its version counted up already."""
    raise TypeError(f"not a metadata change: {change!r}")


@_apply.register
def _(change: SetClusterId, image: MetadataImage) -> MetadataImage:
    if image.cluster_id:
        raise ClusterIdFixed(image.cluster_id, change.cluster_id, "SetClusterId")
    return replace(image, cluster_id=change.cluster_id)


@_apply.register
def _(change: RegisterBroker, image: MetadataImage) -> MetadataImage:
    if change.node_id < 0:
        raise ChangeRefused("a node id of 0 or above", change.node_id, "RegisterBroker")
    broker = Broker(
        change.node_id, image.version, change.listeners, rack=change.rack, fenced=change.fenced
    )
    registered = replace(image, brokers=_with(image.brokers, change.node_id, broker))
    return _depose(registered, broker) if broker.fenced else _elect(registered, broker)


@_apply.register
def _(change: SetBrokerFenced, image: MetadataImage) -> MetadataImage:
    broker = _broker(image, change.node_id, "SetBrokerFenced")
    if broker.epoch != change.broker_epoch:
        raise StaleBrokerEpoch(
            broker.epoch, change.broker_epoch, f"SetBrokerFenced of node {change.node_id}"
        )
    if broker.fenced == change.fenced:
        return image
    broker = replace(broker, fenced=change.fenced)
    updated = replace(image, brokers=_with(image.brokers, change.node_id, broker))
    return _depose(updated, broker) if broker.fenced else _elect(updated, broker)


@_apply.register
def _(change: UnregisterBroker, image: MetadataImage) -> MetadataImage:
    broker = _broker(image, change.node_id, "UnregisterBroker")
    return _depose(replace(image, brokers=_without(image.brokers, change.node_id)), broker)


@_apply.register
def _(change: CreateTopic, image: MetadataImage) -> MetadataImage:
    check_topic_name(change.name)
    where = f"CreateTopic {change.name!r}"
    if change.name in image.topics_by_name:
        raise TopicExists("a name not in use", repr(change.name), where)
    if change.topic_id in RESERVED_TOPIC_IDS or change.topic_id in image.topic_names:
        raise TopicExists("an id not in use", topic_id_text(change.topic_id), where)
    if "_" in change.name or "." in change.name:
        _check_collision(image, change.name)
    if not change.assignment:
        raise InvalidPartitions("at least 1", 0, where)
    partitions = _new_partitions(change.assignment, 0, where, change.leader_epoch)
    topic = Topic(change.name, change.topic_id, partitions)
    configs = image.topic_configs
    return replace(
        image,
        topics_by_name=_with(image.topics_by_name, topic.name, topic),
        topic_names=_with(image.topic_names, topic.topic_id, topic.name),
        topic_configs=_with(configs, topic.name, change.configs) if change.configs else configs,
    )


@_apply.register
def _(change: DeleteTopic, image: MetadataImage) -> MetadataImage:
    topic = _topic(image, change.topic_id, "DeleteTopic")
    return replace(
        image,
        topics_by_name=_without(image.topics_by_name, topic.name),
        topic_names=_without(image.topic_names, topic.topic_id),
        topic_configs=_without(image.topic_configs, topic.name),
    )


@_apply.register
def _(change: AddPartitions, image: MetadataImage) -> MetadataImage:
    topic = _topic(image, change.topic_id, "AddPartitions")
    where = f"AddPartitions to {topic.name!r}"
    if not change.assignment:
        raise InvalidPartitions("at least 1 new one", 0, where)
    added = _new_partitions(change.assignment, len(topic.partitions), where)
    return _with_topic(image, replace(topic, partitions=topic.partitions + added))


@_apply.register
def _(change: SetLeader, image: MetadataImage) -> MetadataImage:
    topic = _topic(image, change.topic_id, "SetLeader")
    where = f"SetLeader of {topic.name}-{change.partition}"
    if not 0 <= change.partition < len(topic.partitions):
        raise UnknownPartition(f"0 to {len(topic.partitions) - 1}", change.partition, where)
    old = topic.partitions[change.partition]
    if change.partition_epoch is not None and change.partition_epoch != old.partition_epoch:
        raise StalePartitionEpoch(old.partition_epoch, change.partition_epoch, where)
    new = Partition(
        change.leader,
        old.leader_epoch + 1,
        old.partition_epoch + 1,
        old.replicas if change.replicas is None else change.replicas,
        old.isr if change.isr is None else change.isr,
    )
    _check_replicas(new.replicas, where)
    if not new.isr or not set(new.isr) <= set(new.replicas):
        raise InvalidReplicaAssignment(f"in-sync replicas among {new.replicas}", new.isr, where)
    if new.leader != NO_LEADER and new.leader not in new.isr:
        raise InvalidReplicaAssignment(f"a leader among {new.isr}", new.leader, where)
    partitions = list(topic.partitions)
    partitions[change.partition] = new
    return _with_topic(image, replace(topic, partitions=tuple(partitions)))


@_apply.register
def _(change: SetConfigs, image: MetadataImage) -> MetadataImage:
    if change.resource_type is ResourceType.TOPIC and change.name not in image.topics_by_name:
        raise UnknownTopic("a topic", repr(change.name), "SetConfigs")
    by_name = image.configs_by_type(change.resource_type)
    merged = {
        key: value
        for key, value in {**by_name.get(change.name, {}), **change.configs}.items()
        if value is not None
    }
    updated = _with(by_name, change.name, merged) if merged else _without(by_name, change.name)
    match change.resource_type:
        case ResourceType.TOPIC:
            return replace(image, topic_configs=updated)
        case ResourceType.BROKER:
            return replace(image, broker_configs=updated)
        case ResourceType.GROUP:
            return replace(image, group_configs=updated)


@_apply.register
def _(change: SetFeature, image: MetadataImage) -> MetadataImage:
    if change.level < 0:
        raise InvalidFeatureLevel("0 or above", change.level, f"SetFeature {change.name!r}")
    features = image.features
    updated = (
        _with(features, change.name, change.level)
        if change.level
        else _without(features, change.name)
    )
    return replace(image, features=updated)


@_apply.register
def _(change: AllocateProducerIds, image: MetadataImage) -> MetadataImage:
    left = MAX_PRODUCER_ID - image.next_producer_id
    if not 0 < change.count <= left:
        raise ProducerIdsExhausted(f"a block of 1 to {left}", change.count, "AllocateProducerIds")
    return replace(image, next_producer_id=image.next_producer_id + change.count)


def _broker(image: MetadataImage, node_id: int, where: str) -> Broker:
    broker = image.brokers.get(node_id)
    if broker is None:
        raise UnknownBroker(f"one of nodes {sorted(image.brokers)}", node_id, where)
    return broker


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


def _elect(image: MetadataImage, broker: Broker) -> MetadataImage:
    node = broker.node_id

    def lead(partition: Partition) -> Partition:
        if partition.leader == node or (partition.leader == NO_LEADER and node in partition.isr):
            return _new_leadership(partition, node)
        return partition

    return _map_partitions(image, lead)


def _depose(image: MetadataImage, broker: Broker) -> MetadataImage:
    def leave(partition: Partition) -> Partition:
        if partition.leader == broker.node_id:
            return _new_leadership(partition, NO_LEADER)
        return partition

    return _map_partitions(image, leave)


def _new_leadership(partition: Partition, leader: int) -> Partition:
    return Partition(
        leader,
        partition.leader_epoch + 1,
        partition.partition_epoch + 1,
        partition.replicas,
        partition.isr,
    )


def _map_partitions(
    image: MetadataImage, change: Callable[[Partition], Partition]
) -> MetadataImage:
    """Topics none of whose partitions change stay the same objects."""
    changed: dict[str, Topic] = {}
    for topic in image.topics_by_name.values():
        partitions = tuple(map(change, topic.partitions))
        if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
            changed[topic.name] = replace(topic, partitions=partitions)
    if not changed:
        return image
    return replace(image, topics_by_name={**image.topics_by_name, **changed})


def _with_topic(image: MetadataImage, topic: Topic) -> MetadataImage:
    return replace(image, topics_by_name=_with(image.topics_by_name, topic.name, topic))


def _with(mapping: Mapping[_K, _V], key: _K, value: _V) -> dict[_K, _V]:
    return {**mapping, key: value}


def _without(mapping: Mapping[_K, _V], key: _K) -> Mapping[_K, _V]:
    if key not in mapping:
        return mapping
    return {other: value for other, value in mapping.items() if other != key}
