"""The nodes of a cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.cluster.view import NO_LEADER
from ottla.console.missing import NOT_ASKED, Known, Missing
from ottla.console.views.frame import Frame, frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.admin.types import Reassignment
    from ottla.client.cluster.view import TopicPartition
    from ottla.console.attention import Attention
    from ottla.console.look import Look


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node; bytes are None if it does not tell them."""

    id: int
    address: str
    rack: str | None
    is_controller: bool
    state: str
    leaders: int
    """Partitions that it leads."""
    size_bytes: Known[int] | None
    free_bytes: int | None
    total_bytes: int | None
    cpu: float | None
    """Processors in use; this and the next two are None if the node does not tell them."""
    requests_per_s: float | None
    connections: int | None


@dataclass(frozen=True, slots=True)
class Move:
    """A partition whose replicas are being replaced."""

    name: str
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodesPage:
    """All nodes, those that are down as well if the cluster tells."""

    frame: Frame
    nodes: Known[tuple[NodeRow, ...]]
    leaderless: int
    imbalance: int
    """Partitions that the busiest node leads more than the idlest of the active ones."""
    moves: Known[tuple[Move, ...]]
    """Under way; Ottla carries them out at once and has none."""


def page(
    look: Look,
    attention: Attention,
    moves: Mapping[TopicPartition, Reassignment] | Missing = NOT_ASKED,
) -> NodesPage:
    """The page of the nodes."""
    under_way = moves if isinstance(moves, Missing) else _moves(moves)
    around = frame(look, attention, [look.data.nodes.at_ms])
    cluster = look.data.cluster.value
    if isinstance(cluster, Missing):
        return NodesPage(around, cluster, 0, 0, under_way)
    led = Counter(one.leader for topic in cluster.topics.values() for one in topic.partitions)
    found = rows(look)
    active = [] if isinstance(found, Missing) else [one for one in found if one.state == "active"]
    leads = [one.leaders for one in active]
    imbalance = max(leads) - min(leads) if leads else 0
    return NodesPage(around, found, led[NO_LEADER], imbalance, under_way)


def _moves(moves: Mapping[TopicPartition, Reassignment]) -> tuple[Move, ...]:
    return tuple(
        Move(str(key), tuple(one.replicas), tuple(one.adding), tuple(one.removing))
        for key, one in sorted(moves.items())
    )


def rows(look: Look) -> Known[tuple[NodeRow, ...]]:
    """A row for each node."""
    cluster = look.data.cluster.value
    if isinstance(cluster, Missing):
        return cluster
    listed = look.data.nodes.value
    states = (
        dict.fromkeys(cluster.brokers, "active")
        if isinstance(listed, Missing)
        else {one.broker.id: one.state.value for one in listed}
    )
    loads = {} if isinstance(listed, Missing) else {one.broker.id: one.load for one in listed}
    brokers = dict(cluster.brokers)
    if not isinstance(listed, Missing):
        brokers |= {one.broker.id: one.broker for one in listed}
    led = Counter(one.leader for topic in cluster.topics.values() for one in topic.partitions)
    directories = look.data.log_dirs.value
    found = []
    for number, broker in sorted(brokers.items()):
        own = (
            []
            if isinstance(directories, Missing)
            else [one for one in directories if one.broker == number and one.error is None]
        )
        free = [one.free_bytes for one in own if one.free_bytes is not None]
        total = [one.total_bytes for one in own if one.total_bytes is not None]
        load = loads.get(number) or {}
        connections = load.get("connections")
        found.append(
            NodeRow(
                id=number,
                address=str(broker.address),
                rack=broker.rack,
                is_controller=number == cluster.controller,
                state=states.get(number, "active"),
                leaders=led[number],
                size_bytes=directories
                if isinstance(directories, Missing)
                else sum(size for one in own for size in one.sizes.values())
                if own
                else None,
                free_bytes=min(free) if free else None,
                total_bytes=min(total) if total else None,
                cpu=load.get("cpu"),
                requests_per_s=load.get("requests"),
                connections=None if connections is None else int(connections),
            )
        )
    return tuple(found)
