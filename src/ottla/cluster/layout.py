"""The directories of the nodes of one machine, and what a start with fewer nodes does.

The root is what a single node has: `metadata.db`, and the logs of node 1. Node k above 1 has
`node.k/`, a complete log directory with lock, meta.properties and checkpoints of its own
(`node-2` would be the directory of partition 2 of a topic `node`). `handover/` has the logs on
their way from one node to another. So one node becomes N, and N become one, without conversion.

Where a partition's directory is decides what a node does with it:

| directory              | the node leads it                            | another node leads it |
|------------------------|----------------------------------------------|-----------------------|
| its own                | opens it                                     | releases it           |
| a living sibling's     | waits: the sibling will release it           |                       |
| a dead sibling's       | with that node's lock: recovers, releases it |                       |
| `handover/`            | takes it                                     |                       |
| nowhere                | makes an empty log                           |                       |

An empty log is never made while a directory of the topic id exists below the root. To be sure of
"nowhere" a node looks at its siblings' directories, then at `handover/`, in the direction in which
directories move, and holds the lock of the root's moves (`MOVES_LOCK`) exclusively from the first
look until the empty directory exists. Whoever releases a directory holds that lock shared, for the
one rename. Without it a directory that moves twice during the look could slip past; a search over
all interleavings (`tests/support/handover_search.py`) shows both.

A start with fewer nodes than before retires those above (`decide_retirement`): their partitions get
other leaders and replicas, and they are unregistered; their logs are those of dead siblings. Nodes
that are new get partitions by `ottla.cluster.balance`: a round with `settled_seconds=0` and more
moves, right after they have registered, spreads a directory that one node had written.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.cluster.placement import Place, candidates, leaders, partitions
from ottla.metadata.changes.topics import Leadership
from ottla.metadata.image import NO_LEADER, topic_id_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.metadata.changes.topics import Replicas
    from ottla.metadata.image import MetadataImage

ROOT_NODE: Final = 1
HANDOVER: Final = "handover"
MOVES_LOCK: Final = ".moves.lock"
"""In the root. Shared: rename one directory. Exclusive: look everywhere, then make an empty log."""
# Beyond what one machine has cores for; a number that is surely a mistake.
MAX_NODES: Final = 64
MAX_NAME_LENGTH: Final = 255  # of one path element on the usual file systems

_NODE = re.compile(r"node\.([2-9]|[1-9][0-9]{1,8})")
_ON_ITS_WAY = re.compile(
    r"[A-Za-z0-9._-]+-(?P<partition>0|[1-9][0-9]{0,9})\.(?P<id>[A-Za-z0-9_-]{22})"
)


def node_directory(node: int) -> str:
    """Below the root; empty for the root itself."""
    return "" if node == ROOT_NODE else f"node.{node}"


def node_of_directory(name: str) -> int | None:
    """The node whose directory this is, by its name below the root; None if it is none's."""
    match = _NODE.fullmatch(name)
    return None if match is None else int(match[1])


def handover_name(topic: str, partition: int, topic_id: UUID) -> str:
    """The name in `handover/`: `<topic>-<partition>.<topic id>`; a long topic name is cut."""
    ending = f"-{partition}.{topic_id_text(topic_id)}"
    return topic[: MAX_NAME_LENGTH - len(ending)] + ending


def parse_handover_name(name: str) -> Place | None:
    """Which partition it is; None if nobody gave it this name."""
    match = _ON_ITS_WAY.fullmatch(name)
    if match is None:
        return None
    topic_id = UUID(bytes=urlsafe_b64decode(match["id"] + "=="))
    return Place(topic_id, int(match["partition"]))


def decide_retirement(image: MetadataImage, retired: Collection[int]) -> tuple[Leadership, ...]:
    """New leaders and replicas for all partitions that name a retired node.

    A leader that stays is kept. A partition whose new node is not alive yet has no leader until
    that node registers. Nodes that are still to be added take part in the next balance.
    """
    stay = tuple(node for node in sorted(image.brokers) if node not in retired)
    if not stay:
        return ()
    living, gone = image.alive, frozenset(retired)
    able = tuple(node for node in candidates(image) if node not in gone) or stay
    counts = leaders(image)
    found: list[Leadership] = []
    for _, place, partition in partitions(image):
        if partition.leader not in gone and gone.isdisjoint(partition.replicas):
            continue
        home = partition.leader
        if home not in stay:
            listed = [node for node in partition.replicas if node in able]
            home = listed[0] if listed else min(able, key=lambda node: (counts[node], node))
            counts[home] += 1
        leader = home if home in living else NO_LEADER
        found.append(
            Leadership(
                *place,
                None if leader == partition.leader else leader,
                _replicas_left(partition.replicas, home, gone),
                partition.partition_epoch,
            )
        )
    return tuple(found)


def _replicas_left(replicas: Replicas, leader: int, retired: Collection[int]) -> Replicas:
    """Without those that retire, in their order; the leader is among them, else it is first."""
    kept = tuple(node for node in replicas if node not in retired)
    return kept if leader in kept else (leader, *kept)
