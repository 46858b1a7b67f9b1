"""Which partitions move to another node, and when. Runs on the live node with the lowest id.

A move only says who leads: the old leader releases the log when it learns of it, the new one takes
it up (`ottla.cluster.handover`). The proposal is decided on the newest image inside the store's
transaction, so two nodes that balance at once cannot undo each other.

In this order, at most `MOVES` a round, and each partition once:

1. Partitions led by a draining node go to another candidate. These count up to `DRAIN_MOVES`, and
   nothing below delays them. Their replicas get the new leader in place of the old one, else rule 3
   would bring them back.
2. Partitions without a leader get one, once the set of live nodes is settled: a node that restarts
   takes its own partitions back by registering.
3. Preferred leaders, if `auto.leader.rebalance.enable`: a partition goes to the first of its
   replicas, if that is a candidate.
4. Counts, if `auto.leader.rebalance.enable`: while the fullest candidate leads more than
   `leader.imbalance.per.broker.percentage` above the mean, and at least two more than the emptiest,
   it gives one to the emptiest: of the topic in which they differ most. The replicas change as in
   rule 1, so the new place is the preferred one.

Rules 3 and 4 wait until the set of live nodes has been the same for `SETTLED_SECONDS`, and leave
alone what has been moved within `REST_SECONDS`: a partition does not wander.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.cluster.placement import (
    Place,
    candidates,
    decide_leaders,
    draining,
    leaders,
    partitions,
)
from ottla.metadata.changes.topics import Leadership
from ottla.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ottla.metadata.changes.topics import Replicas
    from ottla.metadata.image import MetadataImage, Partition

# Each pauses a partition for up to 100 ms; the next round takes the rest.
MOVES: Final = 10
DRAIN_MOVES: Final = 100
SETTLED_SECONDS: Final = 60.0
REST_SECONDS: Final = 300.0

P = TypeVar("P", bound=tuple[Any, int])


@dataclass(frozen=True, slots=True)
class History:
    """What the balancing node has seen; a new one starts with nothing."""

    nodes: tuple[int, ...] = ()
    """Those alive when it looked last."""
    since: float = 0.0
    """Since when they have been the same."""
    moved: Mapping[Place, float] = field(default_factory=dict)

    def looked(self, image: MetadataImage, now: float) -> History:
        """Before each decision."""
        nodes = image.alive
        recent = {place: at for place, at in self.moved.items() if now < at + REST_SECONDS}
        return History(nodes, self.since if nodes == self.nodes else now, recent)

    def with_moves(self, moves: Collection[Leadership], now: float) -> History:
        return History(
            self.nodes, self.since, {**self.moved, **{_place(one): now for one in moves}}
        )


@dataclass(frozen=True, slots=True)
class Limits:
    rebalance: bool = True
    percentage: int = 10
    moves: int = MOVES
    drain_moves: int = DRAIN_MOVES
    settled_seconds: float = SETTLED_SECONDS


def is_balancer(image: MetadataImage, node: int) -> bool:
    living = image.alive
    return bool(living) and living[0] == node


def decide_balance(
    image: MetadataImage, history: History, limits: Limits, now: float
) -> tuple[Leadership, ...]:
    """The moves of one round; `history` has looked at this image."""
    nodes = candidates(image)
    if not nodes:
        return ()
    moves = list(_drained(image, nodes, limits.drain_moves))
    if now < history.since + limits.settled_seconds:
        return tuple(moves)
    room = max(0, limits.moves - len(moves))
    leaderless = [
        place for _, place, partition in partitions(image) if partition.leader == NO_LEADER
    ]
    moves += decide_leaders(image, leaderless)[:room]
    if not limits.rebalance:
        return tuple(moves)
    taken = {*map(_place, moves), *history.moved}
    for _, place, partition in partitions(image):
        if len(moves) >= limits.moves:
            return tuple(moves)
        preferred = partition.replicas[0]
        if place not in taken and partition.leader != preferred and preferred in nodes:
            moves.append(Leadership(*place, preferred, None, partition.partition_epoch))
            taken.add(place)
    moves += _evened(image, nodes, moves, taken, limits)
    return tuple(moves)


def _drained(image: MetadataImage, nodes: tuple[int, ...], most: int) -> list[Leadership]:
    away = draining(image).difference(nodes)
    if not away:
        return []
    led = leaders(image)
    moves: list[Leadership] = []
    for _, place, partition in partitions(image):
        if partition.leader in away and len(moves) < most:
            listed = [node for node in partition.replicas if node in nodes]
            to = min(listed or nodes, key=lambda node: (led[node], node))
            led[to] += 1
            moves.append(_moved(place, partition, to))
    return moves


def _place(one: Leadership) -> Place:
    return Place(one.topic_id, one.partition)


def _moved(place: Place, partition: Partition, to: int) -> Leadership:
    return Leadership(*place, to, replaced(partition, to), partition.partition_epoch)


def replaced(partition: Partition, leader: int) -> Replicas:
    """The replicas with another first one: it moves up, or takes the place of the old leader."""
    old = partition.replicas
    if leader in old:
        return (leader, *(node for node in old if node != leader))
    left = partition.leader if partition.leader in old else old[0]
    return (leader, *(node for node in old if node != left))


def _evened(
    image: MetadataImage,
    nodes: tuple[int, ...],
    moves: Collection[Leadership],
    taken: Collection[Place],
    limits: Limits,
) -> list[Leadership]:
    """By counts, as they will be after `moves`."""
    after = {_place(one): one.leader for one in moves if one.leader is not None}
    led: dict[int, dict[Place, Partition]] = {node: {} for node in nodes}
    for _, place, partition in partitions(image):
        leader = after.get(place, partition.leader)
        if leader in led:
            led[leader][place] = partition
    found = even_out(led, taken, limits.percentage, limits.moves - len(moves))
    places = {place: one for each in led.values() for place, one in each.items()}
    return [_moved(place, places[place], to) for place, to in found.items()]


def even_out(
    led: Mapping[int, Collection[P]], taken: Collection[P], percentage: int, most: int
) -> dict[P, int]:
    """Which partitions go to which node, so that each leads about as many: rule 4.

    `led` has every node that may lead, and what it leads: pairs of a topic and a number. What is
    `taken` stays; at most `most` move.
    """
    by_node = {node: set(places) for node, places in led.items()}
    by_topic = Counter((place[0], node) for node, places in led.items() for place in places)
    mean = sum(map(len, by_node.values())) / len(by_node)
    allowed = mean * (1 + percentage / 100)
    found: dict[P, int] = {}
    stuck: set[int] = set()
    while len(found) < most:
        left = [node for node in by_node if node not in stuck]
        if not left:
            break
        full = max(left, key=lambda node: (len(by_node[node]), -node))
        empty = min(by_node, key=lambda node: (len(by_node[node]), node))
        if len(by_node[full]) <= allowed or len(by_node[full]) - len(by_node[empty]) < 2:
            break
        free = [place for place in by_node[full] if place not in taken and place not in found]
        if not free:
            stuck.add(full)
            continue
        place = max(
            free,
            key=lambda one: (
                by_topic[one[0], full] - by_topic[one[0], empty],
                -one[1],
                one[0],
            ),
        )
        by_node[full].remove(place)
        by_node[empty].add(place)
        by_topic[place[0], full] -= 1
        by_topic[place[0], empty] += 1
        found[place] = empty
    return found
