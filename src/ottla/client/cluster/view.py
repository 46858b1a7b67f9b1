"""The client's view of the cluster: an immutable value built from metadata responses.

A topic's entry is replaced as a whole by an answer that names the topic. Brokers are replaced by
every answer, since each answer lists them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.cluster.connection import Address
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.wire.schema.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER: Final = -1


class TopicPartition(NamedTuple):
    """A partition by its topic's name. As a target it stands for the partition's leader."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker."""

    id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Where a partition is: `leader` is -1 while there is none."""

    index: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists, its partitions in order."""

    name: str
    id: bytes
    is_internal: bool
    partitions: Sequence[Partition]

    def leader_of(self, partition: int) -> int:
        """The leading broker, or -1 if the partition has none or does not exist."""
        for one in self.partitions:
            if one.index == partition:
                return one.leader
        return NO_LEADER


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The contents of all metadata responses so far."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    missing: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Topics that the last answer which named them had an error code for."""

    def after(self, answer: MetadataResponse) -> ClusterView:
        """The view with an answer taken in."""
        topics = dict(self.topics)
        missing = dict(self.missing)
        for one in answer.topics:
            name = one.name or ""
            topics.pop(name, None)
            missing.pop(name, None)
            if one.error_code == ErrorCode.NONE:
                topics[name] = _topic(one)
            else:
                missing[name] = one.error_code
        brokers = {
            one.node_id: Broker(one.node_id, Address(one.host, one.port), one.rack)
            for one in answer.brokers
        }
        return ClusterView(answer.cluster_id, answer.controller_id, brokers, topics, missing)

    def with_broker(self, broker: Broker) -> ClusterView:
        """The view with a broker that another answer named."""
        return replace(self, brokers={**self.brokers, broker.id: broker})


def _topic(answer: MetadataResponseTopic) -> Topic:
    partitions = sorted(answer.partitions, key=lambda one: one.partition_index)
    return Topic(
        answer.name or "",
        answer.topic_id,
        answer.is_internal,
        tuple(
            Partition(
                one.partition_index,
                one.leader_id,
                one.leader_epoch,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
                tuple(one.offline_replicas),
            )
            for one in partitions
        ),
    )
