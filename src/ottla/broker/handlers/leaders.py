"""Answers that send a client to another node name that node (KIP-951).

A client whose request meets NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH goes on with the leader,
the epoch and the address that stand in the answer. Without them it has to ask for the metadata
first. A leader that is down has no address there, as in Metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.hosting.hosted import topic_uuid
from ottla.metadata.image import NO_LEADER
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.broker.cluster import Cluster

NOT_LED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Leader(NamedTuple):
    """Of a partition; the fields of `LeaderIdAndEpoch` in every message that has one."""

    leader_id: int = NO_LEADER
    leader_epoch: int = -1


UNKNOWN: Final = Leader()


class Address(NamedTuple):
    """The fields of `NodeEndpoint` in every message that has one."""

    node_id: int
    host: str
    port: int
    rack: str | None


def current_leader(cluster: Cluster, topic: str | bytes, partition: int) -> Leader:
    """Who leads a partition of a topic, which is given by name or id."""
    image = cluster.image
    name = image.topic_names.get(topic_uuid(topic)) if isinstance(topic, bytes) else topic
    found = None if name is None else image.topic(name)
    if found is None or not 0 <= partition < len(found.partitions):
        return UNKNOWN
    state = found.partitions[partition]
    return UNKNOWN if state.leader == NO_LEADER else Leader(state.leader, state.leader_epoch)


def addresses(cluster: Cluster, listener: str, nodes: Collection[int]) -> list[Address]:
    """Where those of the nodes are reached that are up; one without a leader is passed over."""
    if all(node == NO_LEADER for node in nodes):
        return []
    return [
        Address(broker.node_id, endpoint.host, endpoint.port, broker.rack)
        for broker, endpoint in cluster.endpoints(listener)
        if broker.node_id in nodes
    ]
