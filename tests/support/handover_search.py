"""All interleavings of nodes that hand a log over, are killed and start again.

A model of what nodes do with the directory of one partition, by the rules of `ottla.cluster.layout`
and `ottla.cluster.handover`. Each step of a node is one thing that others can see: a look at one
place, a recovery, a rename. Between any two of them any node may be killed, and nodes learn late
who leads.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

WAY: Final = 0  # handover/; nodes count from 1


class Does(Enum):
    NOTHING = "nothing"
    OPEN = "open"
    CLOSED = "closed"
    """To be released."""
    ARRIVED = "arrived"
    """It came by `handover/`: opened as after a clean stop."""


@dataclass(frozen=True, slots=True)
class Look:
    """At the places in their order, with the lock of moves; `at` is the next one."""

    at: int = 0
    makes: bool = False
    """The second time: an empty log is made if it is nowhere."""


@dataclass(frozen=True, slots=True)
class Frees:
    """A dead sibling's directory is locked by this node, and its log recovered."""

    sibling: int


Doing = Does | Look | Frees


@dataclass(frozen=True, slots=True)
class OneNode:
    knows: int = 0
    """The version of the metadata it has seen."""
    doing: Doing = Does.NOTHING
    is_alive: bool = True


@dataclass(frozen=True, slots=True)
class World:
    nodes: tuple[OneNode, ...]
    leaders: tuple[int, ...]
    """Of each version of the metadata; the last is what a node that starts learns."""
    directories: tuple[int, ...] = ()
    """The places that have one; never more than one of them."""
    is_dirty: bool = False
    """Opened since it was closed cleanly or recovered."""
    kills: int = 0

    def doing(self, one: int, doing: Doing) -> World:
        nodes = list(self.nodes)
        nodes[one - 1] = replace(nodes[one - 1], doing=doing)
        return replace(self, nodes=tuple(nodes))

    def with_node(self, one: int, node: OneNode) -> World:
        nodes = list(self.nodes)
        nodes[one - 1] = node
        return replace(self, nodes=tuple(nodes))

    def renamed(self, source: int, target: int) -> World:
        kept = tuple(place for place in self.directories if place != source)
        return replace(self, directories=(*kept, target))

    @property
    def is_looked_at(self) -> bool:
        """Whether a node has the lock of moves exclusively."""
        return any(isinstance(one.doing, Look) for one in self.nodes)

    def is_locked(self, place: int) -> bool:
        """By its node, or by a sibling that frees its log."""
        return self.nodes[place - 1].is_alive or any(
            one.doing == Frees(place) for one in self.nodes
        )

    def has_led(self) -> bool:
        """Whether it has come to rest: the leader has it open, and nobody else does anything."""
        return all(
            node.is_alive and node.doing is (Does.OPEN if one == self.leaders[-1] else Does.NOTHING)
            for one, node in enumerate(self.nodes, 1)
        )


@dataclass
class Search:
    nodes: int
    moves: int
    kills: int
    has_lock: bool = True
    recovers: bool = True
    edges: dict[World, list[World]] = field(default_factory=dict)

    def run(self) -> None:
        """Raises AssertionError at the first world that must not be."""
        first = World((OneNode(),) * self.nodes, (1,))
        seen = {first}
        left = deque([first])
        while left:
            world = left.popleft()
            self._check(world)
            steps = list(self._steps(world))
            self.edges[world] = steps
            for after in (*steps, *self._faults(world)):
                if after not in seen:
                    seen.add(after)
                    left.append(after)

    def dead_ends(self) -> list[World]:
        """Worlds from which, without further kills and moves, the leader never has its log."""
        sources: dict[World, list[World]] = {}
        for before, afters in self.edges.items():
            for after in afters:
                sources.setdefault(after, []).append(before)
        reached = {world for world in self.edges if world.has_led()}
        left = deque(reached)
        while left:
            for before in sources.get(left.popleft(), ()):
                if before not in reached:
                    reached.add(before)
                    left.append(before)
        return [world for world in self.edges if world not in reached]

    def _check(self, world: World) -> None:
        assert len(world.directories) <= 1, f"an empty log beside another: {world}"
        for one, node in enumerate(world.nodes, 1):
            if node.doing in {Does.OPEN, Does.CLOSED, Does.ARRIVED}:
                assert world.directories == (one,), f"used, but not in its directory: {world}"
            if node.doing is Does.ARRIVED:
                assert not world.is_dirty, f"trusted, but not recovered: {world}"

    def _faults(self, world: World) -> Iterator[World]:
        if len(world.leaders) <= self.moves:
            for one in range(1, self.nodes + 1):
                if one != world.leaders[-1]:
                    yield replace(world, leaders=(*world.leaders, one))
        if world.kills < self.kills:
            for one, node in enumerate(world.nodes, 1):
                if node.is_alive:
                    dead = OneNode(node.knows, is_alive=False)
                    yield replace(world.with_node(one, dead), kills=world.kills + 1)

    def _steps(self, world: World) -> Iterator[World]:
        newest = len(world.leaders) - 1
        for one, node in enumerate(world.nodes, 1):
            if not node.is_alive:
                if not world.is_locked(one):
                    yield world.with_node(one, OneNode(newest))
                continue
            if node.knows < newest:
                yield world.with_node(one, replace(node, knows=node.knows + 1))
            yield from self._step(world, one, node)

    def _step(self, world: World, one: int, node: OneNode) -> Iterator[World]:
        leads = world.leaders[node.knows] == one
        has_it = one in world.directories
        match node.doing:
            case Does.OPEN if not leads:
                yield replace(world, is_dirty=False).doing(one, Does.CLOSED)
            case Does.NOTHING if has_it:
                # What a kill left is recovered, then opened or released.
                recovered = replace(world, is_dirty=False)
                yield _opened(recovered, one) if leads else recovered.doing(one, Does.CLOSED)
            case Does.NOTHING if leads and self._may_look(world):
                yield world.doing(one, Look())
            case Does.CLOSED if self._may_rename(world):
                yield world.renamed(one, WAY).doing(one, Does.NOTHING)
            case Does.ARRIVED:
                yield _opened(world, one)
            case Look():
                yield self._look(world, one, node.doing)
            case Frees(sibling) if self._may_rename(world):
                yield world.renamed(sibling, WAY).doing(one, Does.NOTHING)

    def _may_look(self, world: World) -> bool:
        return not (self.has_lock and world.is_looked_at)

    _may_rename = _may_look

    def _look(self, world: World, one: int, look: Look) -> World:
        places = [*(other for other in range(1, self.nodes + 1) if other != one), WAY]
        if look.at < len(places):
            place = places[look.at]
            if place not in world.directories:
                return world.doing(one, Look(look.at + 1, look.makes))
            if look.makes:
                return world.doing(one, Does.NOTHING)
            if place == WAY:
                return world.renamed(WAY, one).doing(one, Does.ARRIVED)
            if world.is_locked(place):  # its node will release it
                return world.doing(one, Does.NOTHING)
            recovered = replace(world, is_dirty=False) if self.recovers else world
            return recovered.doing(one, Frees(place))
        if not look.makes:
            return world.doing(one, Look(makes=True))
        return _opened(replace(world, directories=(*world.directories, one)), one)


def _opened(world: World, one: int) -> World:
    return replace(world, is_dirty=True).doing(one, Does.OPEN)
