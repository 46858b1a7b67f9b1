"""Where partitions go: the nodes of new ones, and new leaders for those of a node that is gone.

A partition's replicas are the nodes that may lead it, in order of preference. They hold no copies:
any node of the machine can take over a log without loss, so a leader need not be among them.

* Candidates are the nodes that are alive and not draining. Where all are draining, those alive.
* New partitions: each goes to the candidate that leads the fewest partitions of this topic, then
  the fewest of all, then the next one in the circle of ids from `start`. So a topic of 8 partitions
  has 2 leaders on each of 4 nodes, and topics of one partition are spread as well.
* The other replicas of a partition follow its leader in the circle of ids; each further turn skips
  one more node, so that the partitions of a dead node have different second choices.
* A new leader: the first replica that is a candidate; without one, the candidate that leads the
  fewest of all. Its replicas stay as they are: when the preferred node is back, `decide_balance`
  moves the partition to it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata.changes.topics import Leadership
from ottla.metadata.image import CLUSTER_DEFAULT, NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

    from ottla.metadata.changes.topics import Replicas
    from ottla.metadata.image import MetadataImage, Partition, Topic

DRAIN_KEY: Final = "ottla.node.drain"
"""The dynamic setting of a broker that keeps partitions away from it."""


class Place(NamedTuple):
    """One partition."""

    topic_id: UUID
    partition: int


def draining(image: MetadataImage) -> frozenset[int]:
    """The nodes that an operator wants to be without partitions."""
    if not image.broker_configs:
        return frozenset()
    default = image.broker_configs.get(CLUSTER_DEFAULT, {}).get(DRAIN_KEY, "false")
    return frozenset(
        node
        for node in image.brokers
        if image.broker_configs.get(str(node), {}).get(DRAIN_KEY, default) == "true"
    )


def candidates(image: MetadataImage) -> tuple[int, ...]:
    """The nodes that may become leaders, by id; empty if none is alive."""
    living = image.alive
    left = draining(image)
    return tuple(node for node in living if node not in left) or living


def leaders(image: MetadataImage) -> Counter[int]:
    """How many partitions each node leads; nodes that lead none are missing."""
    counts = Counter(
        partition.leader
        for topic in image.topics_by_name.values()
        for partition in topic.partitions
    )
    del counts[NO_LEADER]
    return counts


def partitions(image: MetadataImage) -> Iterator[tuple[Topic, Place, Partition]]:
    """All partitions, in an order that all nodes agree on."""
    for name in sorted(image.topics_by_name):
        topic = image.topics_by_name[name]
        for index, partition in enumerate(topic.partitions):
            yield topic, Place(topic.topic_id, index), partition


def decide_placement(
    image: MetadataImage,
    count: int,
    replication_factor: int,
    start: int,
    existing: Iterable[Partition] = (),
) -> tuple[Replicas, ...]:
    """The replicas of `count` new partitions; `existing` are those the topic has already.

    There must be a candidate. With fewer alive nodes than `replication_factor` the lists go on with
    those that are fenced.
    """
    nodes = candidates(image)
    ring = _ring(nodes, start)
    turn = {node: index for index, node in enumerate(ring)}
    others = [*ring, *_ring([node for node in sorted(image.brokers) if node not in turn], start)]
    here = Counter(one.leader for one in existing)
    everywhere = leaders(image)
    placed: list[Replicas] = []
    for _ in range(count):
        leader = min(ring, key=lambda node: (here[node], everywhere[node], turn[node]))
        followers = _followers(others, leader, here[leader])
        placed.append((leader, *followers[: replication_factor - 1]))
        here[leader] += 1
        everywhere[leader] += 1
    return tuple(placed)


def _ring(nodes: Iterable[int], start: int) -> list[int]:
    """In order of id, from `start` or the next one after it."""
    return sorted(nodes, key=lambda node: (node < start, node))


def _followers(ring: list[int], leader: int, skipped: int) -> list[int]:
    at = ring.index(leader)
    rest = ring[at + 1 :] + ring[:at]
    shift = skipped % len(rest) if rest else 0
    return rest[shift:] + rest[:shift]


def decide_leaders(image: MetadataImage, orphaned: Iterable[Place]) -> tuple[Leadership, ...]:
    """New leaders for partitions whose leader is gone; none if no node is alive."""
    return tuple(_new_leaders(image, orphaned, candidates(image), leaders(image)))


def _new_leaders(
    image: MetadataImage,
    orphaned: Iterable[Place],
    nodes: tuple[int, ...],
    counts: Mapping[int, int],
) -> Iterator[Leadership]:
    if not nodes:
        return
    led = Counter(counts)
    for place in orphaned:
        topic = image.topic_by_id(place.topic_id)
        if topic is None or not place.partition < len(topic.partitions):
            continue
        partition = topic.partitions[place.partition]
        wanted = (node for node in partition.replicas if node in nodes)
        leader = next(wanted, None)
        if leader is None:
            leader = min(nodes, key=lambda node: (led[node], node))
        led[leader] += 1
        yield Leadership(*place, leader, None, partition.partition_epoch)


def led_by(image: MetadataImage, node: int) -> list[Place]:
    """The partitions that the image has with a node."""
    return [place for _, place, partition in partitions(image) if partition.leader == node]
