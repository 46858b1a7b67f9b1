"""The cluster's id, its nodes, and the blocks of producer ids that nodes take.

Leadership follows registration:

* a broker that registers (again) or is unfenced leads every partition that names it leader, and
  every leaderless one that has it among its replicas, in a new leader epoch: it may have lost its
  memory;
* a broker that is fenced or unregistered leaves its partitions without a leader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.metadata.changes.mappings import with_entry, without_entry
from ottla.metadata.errors import (
    ChangeRefused,
    ClusterIdFixed,
    ProducerIdsExhausted,
    StaleBrokerEpoch,
    UnknownBroker,
)
from ottla.metadata.image import NO_LEADER, Broker, Endpoint, MetadataImage, Partition, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_PRODUCER_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SetClusterId:
    """Name the cluster, once."""

    cluster_id: str

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        if image.cluster_id:
            raise ClusterIdFixed(image.cluster_id, self.cluster_id, "SetClusterId")
        return replace(image, cluster_id=self.cluster_id)


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A new incarnation of a node; its epoch is the version this change makes."""

    node_id: int
    listeners: Mapping[str, Endpoint]
    rack: str | None = None
    fenced: bool = False

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        if self.node_id < 0:
            raise ChangeRefused("a node id of 0 or above", self.node_id, "RegisterBroker")
        broker = Broker(
            self.node_id, image.version, self.listeners, rack=self.rack, fenced=self.fenced
        )
        registered = replace(image, brokers=with_entry(image.brokers, self.node_id, broker))
        return _depose(registered, broker) if broker.fenced else _elect(registered, broker)


@dataclass(frozen=True, slots=True)
class SetBrokerFenced:
    """Fence a broker of this epoch, or let it serve."""

    node_id: int
    broker_epoch: int
    fenced: bool

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        broker = _broker(image, self.node_id, "SetBrokerFenced")
        if broker.epoch != self.broker_epoch:
            raise StaleBrokerEpoch(
                broker.epoch, self.broker_epoch, f"SetBrokerFenced of node {self.node_id}"
            )
        if broker.fenced == self.fenced:
            return image
        broker = replace(broker, fenced=self.fenced)
        updated = replace(image, brokers=with_entry(image.brokers, self.node_id, broker))
        return _depose(updated, broker) if broker.fenced else _elect(updated, broker)


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Remove a broker."""

    node_id: int

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        broker = _broker(image, self.node_id, "UnregisterBroker")
        without = replace(image, brokers=without_entry(image.brokers, self.node_id))
        return _depose(without, broker)


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Takes the block [next_producer_id, next_producer_id + count) for a node."""

    node_id: int
    count: int

    def applied_to(self, image: MetadataImage) -> MetadataImage:
        left = MAX_PRODUCER_ID - image.next_producer_id
        if not 0 < self.count <= left:
            raise ProducerIdsExhausted(f"a block of 1 to {left}", self.count, "AllocateProducerIds")
        return replace(image, next_producer_id=image.next_producer_id + self.count)


def _broker(image: MetadataImage, node_id: int, where: str) -> Broker:
    broker = image.brokers.get(node_id)
    if broker is None:
        raise UnknownBroker(f"one of nodes {sorted(image.brokers)}", node_id, where)
    return broker


def _elect(image: MetadataImage, broker: Broker) -> MetadataImage:
    node = broker.node_id

    def lead(partition: Partition) -> Partition:
        is_free = partition.leader == NO_LEADER and node in partition.replicas
        if is_free or partition.leader == node:
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
    )


def _map_partitions(
    image: MetadataImage, change: Callable[[Partition], Partition]
) -> MetadataImage:
    """Topics without changed partitions stay the same objects."""
    changed: dict[str, Topic] = {}
    for topic in image.topics_by_name.values():
        partitions = tuple(map(change, topic.partitions))
        if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
            changed[topic.name] = replace(topic, partitions=partitions)
    if not changed:
        return image
    return replace(image, topics_by_name={**image.topics_by_name, **changed})
