"""The directories of the nodes of one machine, and what a start with another number of nodes does.

The root is what a single node has: `metadata.db`, and the logs of node 1. Node k above 1 has
`node.k/`, a complete log directory with lock, meta.properties and checkpoints of its own.
`handover/` has the logs on their way from one node to another. (`node-2` would be the directory of
partition 2 of a topic `node`.) So one node becomes N, and N become
one, without conversion.

Where a partition's directory is decides what a node does with it (`decide_directory`):

| directory              | the node leads it                    | another node leads it |
|------------------------|--------------------------------------|-----------------------|
| its own                | opens it                             | releases it           |
| a living sibling's     | waits: the sibling will release it   |                       |
| a dead sibling's       | takes it, with that node's lock held |                       |
| `handover/`            | takes it                             |                       |
| nowhere                | makes an empty log                   |                       |

An empty log is never made while a directory of the topic id exists below the root. To be sure of
"nowhere" a node looks at its own directory, its siblings', and `handover/`, in the direction in
which directories move, and it holds the lock of the root's moves (`MOVES_LOCK`) exclusively from
the first look until the empty directory exists. Whoever renames a directory between the places
holds that lock shared, for the one rename. Without it a directory that moves twice during the look
could slip past. A partition in its first leader epoch (`NEVER_LED`) has been led by nobody else, so
it is made without looking.

Start with `wanted` nodes (`decide_layout`), before any node runs:

* `Retire(k)` for each node above `wanted` that is registered or has a directory: its lock is taken,
  its logs are moved to `handover/` with a note, its partitions get other leaders and replicas
  (`retired_replicas`), and it is unregistered.
* `Add(k)` for each of 1 to `wanted` that is not registered: it will make its directory itself, and
  `decide_balance` gives it partitions. Right after the first registration of new nodes a round with
  `settled_seconds=0` and more moves spreads a directory that one node had written.
* `Adopt(name)` for each log in `handover/` whose partition is led by a node that stays: nothing has
  to be done but to let its leader look for it; logs that no topic of the image has are strays.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple
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
SUPERVISOR_LOCK: Final = ".supervisor.lock"
MOVES_LOCK: Final = ".moves.lock"
"""In the root. Shared: rename one directory. Exclusive: look everywhere, then make an empty log."""
NEVER_LED: Final = 0
"""The leader epoch of a partition whose first leader has not restarted yet."""
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


# -- one partition ---------------------------------------------------------------------------------


class Where(Enum):
    OWN = "own"
    LIVING_SIBLING = "living sibling"
    DEAD_SIBLING = "dead sibling"
    HANDOVER = "handover"
    NOWHERE = "nowhere"


class Deed(Enum):
    OPEN = "open"
    RELEASE = "release"
    WAIT = "wait"
    TAKE = "take"
    MAKE = "make"
    LEAVE = "leave"


_LED: Final = {
    Where.OWN: Deed.OPEN,
    Where.LIVING_SIBLING: Deed.WAIT,
    Where.DEAD_SIBLING: Deed.TAKE,
    Where.HANDOVER: Deed.TAKE,
    Where.NOWHERE: Deed.MAKE,
}


def decide_directory(where: Where, *, leads: bool) -> Deed:
    """What a node does with the directory of a partition of the image."""
    if leads:
        return _LED[where]
    return Deed.RELEASE if where is Where.OWN else Deed.LEAVE


# -- a start ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Retire:
    node: int


@dataclass(frozen=True, slots=True)
class Add:
    node: int


class Adopt(NamedTuple):
    """A log in `handover/`, by its name there, and the node that will take it."""

    name: str
    node: int


LayoutStep = Retire | Add | Adopt


def decide_layout(
    image: MetadataImage, wanted: int, directories: Collection[int], on_their_way: Collection[str]
) -> list[LayoutStep]:
    """The steps of a start, in their order.

    `directories` are the nodes that have one, `on_their_way` the names in `handover/`.
    """
    known = {*image.brokers, *directories}
    retired = sorted(node for node in known if node > wanted)
    steps: list[LayoutStep] = [Retire(node) for node in retired]
    steps += [Add(node) for node in range(1, wanted + 1) if node not in image.brokers]
    for name in sorted(on_their_way):
        place = parse_handover_name(name)
        topic = None if place is None else image.topic_by_id(place.topic_id)
        if place is None or topic is None or not place.partition < len(topic.partitions):
            continue
        leader = topic.partitions[place.partition].leader
        if leader in image.brokers and leader <= wanted:
            steps.append(Adopt(name, leader))
    return steps


def decide_retirement(image: MetadataImage, retired: Collection[int]) -> tuple[Leadership, ...]:
    """New leaders and replicas for all partitions that name a retired node.

    A leader that stays is kept. A partition whose new node is not alive yet has no leader until
    that node registers. Nodes that are still to be added take part in the next balance.
    """
    stay = tuple(node for node in sorted(image.brokers) if node not in retired)
    if not stay:
        return ()
    living = candidates(image)
    able = tuple(node for node in living if node not in retired) or stay
    counts = leaders(image)
    found: list[Leadership] = []
    for _, place, partition in partitions(image):
        if partition.leader not in retired and not set(partition.replicas) & set(retired):
            continue
        home = partition.leader
        if home not in stay:
            listed = [node for node in partition.replicas if node in able]
            home = listed[0] if listed else min(able, key=lambda node: (counts[node], node))
            counts[home] += 1
        leader = home if home in image.alive else NO_LEADER
        found.append(
            Leadership(
                *place,
                None if leader == partition.leader else leader,
                retired_replicas(partition.replicas, home, retired),
                partition.partition_epoch,
            )
        )
    return tuple(found)


def retired_replicas(replicas: Replicas, leader: int, retired: Collection[int]) -> Replicas:
    """Without those that retire, in their order; the leader is among them, else it is first."""
    kept = tuple(node for node in replicas if node not in retired)
    return kept if leader in kept else (leader, *kept)
