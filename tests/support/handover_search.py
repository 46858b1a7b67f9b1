"""All interleavings of nodes that hand a log over, are killed and start again.

A model of what nodes do with the directory of one partition, by the rules of `ottla.cluster.layout`
and `ottla.cluster.handover`. Each step of a node is one thing that others can see: a look at one
place, a note, a rename. Between any two of them any node may be killed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ottla.cluster.handover import Release, Taking
from ottla.cluster.layout import Deed, Where, decide_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

WAY: Final = 0  # handover/; nodes count from 1
CLEAN, UNCLEAN = "clean", "unclean"


@dataclass(frozen=True, slots=True)
class Look:
    """At the places in their order; `at` is the next one."""

    at: int = 0
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Takes:
    """A directory found at `place`; `done` is the last point reached."""

    place: int
    done: Taking


IDLE, OPEN = "idle", "open"
Doing = str | Look | Takes | Release


@dataclass(frozen=True, slots=True)
class OneNode:
    knows: int = 0
    """The version of the metadata it has seen."""
    doing: Doing = IDLE
    is_alive: bool = True


@dataclass(frozen=True, slots=True)
class World:
    nodes: tuple[OneNode, ...]
    leaders: tuple[int, ...]
    """Of each version of the metadata; the last is what a node that starts learns."""
    directories: tuple[int, ...] = ()
    """The places that have one; never more than one of them."""
    note: str | None = None
    is_dirty: bool = False
    """Opened since it was closed cleanly."""
    locked: tuple[tuple[int, int], ...] = ()
    """Directories of dead nodes that a sibling has locked: (whose, by whom)."""
    kills: int = 0

    def node(self, one: int) -> OneNode:
        return self.nodes[one - 1]

    def with_node(self, one: int, node: OneNode) -> World:
        nodes = list(self.nodes)
        nodes[one - 1] = node
        return replace(self, nodes=tuple(nodes))

    def doing(self, one: int, doing: Doing) -> World:
        return self.with_node(one, replace(self.node(one), doing=doing))

    @property
    def looks_exclusively(self) -> bool:
        return any(isinstance(one.doing, Look) and one.doing.exclusive for one in self.nodes)

    def has_led(self) -> bool:
        """Whether it has come to rest: the leader has it open, and nobody else does anything."""
        return all(
            node.is_alive and node.doing == (OPEN if one == self.leaders[-1] else IDLE)
            for one, node in enumerate(self.nodes, 1)
        )


@dataclass
class Search:
    nodes: int
    moves: int
    kills: int
    has_lock: bool = True
    drops_note: bool = True
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
        holders = [one for one, node in enumerate(world.nodes, 1) if node.doing == OPEN]
        assert len(holders) <= 1, f"open twice: {world}"
        for one in holders:
            assert world.directories == (one,), f"open, but not in its own directory: {world}"

    def _faults(self, world: World) -> Iterator[World]:
        if len(world.leaders) <= self.moves:
            for one in range(1, self.nodes + 1):
                if one != world.leaders[-1]:
                    yield replace(world, leaders=(*world.leaders, one))
        if world.kills < self.kills:
            for one, node in enumerate(world.nodes, 1):
                if node.is_alive:
                    freed = tuple(lock for lock in world.locked if lock[1] != one)
                    dead = replace(node, is_alive=False, doing=IDLE)
                    yield replace(world.with_node(one, dead), locked=freed, kills=world.kills + 1)

    def _steps(self, world: World) -> Iterator[World]:
        newest = len(world.leaders) - 1
        for one, node in enumerate(world.nodes, 1):
            if not node.is_alive:
                if all(whose != one for whose, _ in world.locked):
                    yield world.with_node(one, OneNode(newest))
                continue
            if node.knows < newest:
                yield world.with_node(one, replace(node, knows=node.knows + 1))
            yield from self._step(world, one, node)

    def _step(self, world: World, one: int, node: OneNode) -> Iterator[World]:
        leads = world.leaders[node.knows] == one
        match node.doing:
            case str() as doing if doing == OPEN:
                if not leads:
                    yield world.doing(one, Release.LEARNT)
            case str():
                if leads:
                    yield world.doing(one, Look())
                elif decide_directory(self._where(world, one, one), leads=False) is Deed.RELEASE:
                    # Killed while it had it, or between two points: it is not known to be clean.
                    noted = replace(world, note=world.note or UNCLEAN)
                    yield noted.doing(one, Release.NOTED)
            case Release():
                yield from self._release(world, one, node.doing)
            case Look():
                yield self._look(world, one, node.doing)
            case Takes():
                yield from self._take(world, one, node.doing)

    def _where(self, world: World, one: int, place: int) -> Where:
        if place not in world.directories:
            return Where.NOWHERE
        if place == one:
            return Where.OWN
        if place == WAY:
            return Where.HANDOVER
        return Where.LIVING_SIBLING if world.node(place).is_alive else Where.DEAD_SIBLING

    def _release(self, world: World, one: int, done: Release) -> Iterator[World]:
        match done:
            case Release.LEARNT:
                yield replace(world, is_dirty=False).doing(one, Release.CLOSED)
            case Release.CLOSED:
                yield replace(world, note=world.note or CLEAN).doing(one, Release.NOTED)
            case Release.NOTED:
                if not world.looks_exclusively:
                    yield self._renamed(world, one, WAY).doing(one, IDLE)

    def _renamed(self, world: World, source: int, target: int) -> World:
        kept = tuple(place for place in world.directories if place != source)
        return replace(world, directories=(*kept, target))

    def _look(self, world: World, one: int, look: Look) -> World:
        siblings = [other for other in range(1, self.nodes + 1) if other != one]
        places = [one, *siblings, WAY]
        if look.at < len(places):
            where = self._where(world, one, places[look.at])
            if where is Where.NOWHERE:
                return world.doing(one, Look(look.at + 1, look.exclusive))
            match decide_directory(where, leads=True):
                case Deed.OPEN:
                    return world.doing(one, Takes(one, Taking.ARRIVED))
                case Deed.TAKE:
                    return world.doing(one, Takes(places[look.at], Taking.FOUND))
                case _:
                    return world.doing(one, IDLE)
        if self.has_lock and not look.exclusive:
            # Taken only while no other has it; a rename is one step, so none is under way.
            return world if world.looks_exclusively else world.doing(one, Look(0, exclusive=True))
        assert decide_directory(Where.NOWHERE, leads=True) is Deed.MAKE
        made = replace(world, directories=(*world.directories, one), note=None)
        return made.doing(one, Takes(one, Taking.ENTERED))

    def _take(self, world: World, one: int, takes: Takes) -> Iterator[World]:
        place = takes.place
        match takes.done:
            case Taking.FOUND if place == WAY:
                yield world.doing(one, Takes(place, Taking.NOTED))
            case Taking.FOUND:
                # The lock of a living sibling, or one that a third node holds, is not to be had.
                held = any(whose == place for whose, _ in world.locked)
                if world.node(place).is_alive or held or place not in world.directories:
                    yield world.doing(one, IDLE)
                else:
                    noted = replace(
                        world, note=world.note or UNCLEAN, locked=(*world.locked, (place, one))
                    )
                    yield noted.doing(one, Takes(place, Taking.NOTED))
            case Taking.NOTED if not world.looks_exclusively:
                freed = replace(
                    world, locked=tuple(lock for lock in world.locked if lock[1] != one)
                )
                if place in world.directories:
                    mine = self._renamed(freed, place, one)
                    yield mine.doing(one, Takes(one, Taking.RENAMED))
                else:  # another one has it: a rename wins once
                    yield freed.doing(one, IDLE)
            case Taking.RENAMED:
                yield world.doing(one, Takes(one, Taking.ARRIVED))
            case Taking.ARRIVED:
                yield world.doing(one, Takes(one, Taking.ENTERED))
            case Taking.ENTERED:
                is_trusted = world.note == CLEAN
                assert not (is_trusted and world.is_dirty), f"trusted after a crash: {world}"
                note = None if self.drops_note else world.note
                yield replace(world, note=note, is_dirty=True).doing(one, OPEN)
