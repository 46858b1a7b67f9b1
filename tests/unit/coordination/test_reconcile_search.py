"""The reconciler, searched exhaustively: 2 or 3 members, 2 partitions, any target at any time.

Every state that members, targets and clients can reach is visited once. In each one no partition
has two owners, neither on the server nor in the hands of clients, and fair heartbeats lead to the
target. The third setting, three members whose answers may be lost, takes minutes and belongs to the
long runs.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla.coordination.groups.consumer_state import NOTHING_YET
from ottla.coordination.groups.reconcile import STABLE, UNREVOKED, reconcile
from ottla.coordination.groups.records import CurrentAssignmentValue
from tests.support.groups_consumer import of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.coordination.groups.partitions import Partitions, TopicPartition

PARTITIONS = sorted(of("t", 0, 1))
NONE: Partitions = frozenset()
TARGET_EPOCH = 2
BEHIND = 1
"""Only whether a member has reached the target matters, so two epochs stand for all."""

SETTINGS = [(3, False, 15_825), (2, True, 18_051)]
"""Members, whether answers may be lost, and the number of states that can be reached."""

if os.environ.get("HYPOTHESIS_PROFILE") == "soak":
    SETTINGS.append((3, True, 592_531))


class Member(NamedTuple):
    current: CurrentAssignmentValue
    told: Partitions = NONE
    """The last assignment the client heard of."""
    used: Partitions = NONE
    """What the client may be reading."""
    missed: int = 0
    """Epochs the client has not heard of; 2 stands for more."""


class World(NamedTuple):
    members: tuple[Member | None, ...]
    target: tuple[int | None, ...]
    """Per partition, the member it should go to."""

    def with_member(self, index: int, member: Member | None) -> World:
        members = list(self.members)
        members[index] = member
        return self._replace(members=tuple(members))


def target_of(world: World, index: int) -> Partitions:
    pairs = zip(PARTITIONS, world.target, strict=True)
    return frozenset(partition for partition, owner in pairs if owner == index)


def held(member: Member) -> Partitions:
    return member.current.assigned | member.current.pending_revocation


def heartbeat(world: World, index: int, owned: Partitions | None, *, lost: bool = False) -> World:
    """The coordinator's part of a heartbeat, then the client's, unless the answer is lost."""
    member = world.members[index]
    assert member is not None
    before = member.current
    if member.missed and not (
        member.missed == 1 and owned is not None and owned <= before.assigned
    ):
        return rejoined(world, index)
    taken = frozenset().union(
        *(held(other) for n, other in enumerate(world.members) if other is not None and n != index)
    )

    def is_free(partition: TopicPartition) -> bool:
        return partition not in taken

    after = reconcile(before, TARGET_EPOCH, target_of(world, index), owned, is_free)
    # The previous epoch plays no part in reconciling; one value for it keeps the search small.
    after = CurrentAssignmentValue(
        after.member_epoch, 0, after.state, after.assigned, after.pending_revocation
    )
    if lost:
        missed = min(2, member.missed + (after.member_epoch != before.member_epoch))
        return world.with_member(index, member._replace(current=after, missed=missed))
    reported = before.assigned if owned is None else owned
    told = member.told
    if member.missed or not reported == before.assigned == after.assigned:
        told = after.assigned
    return world.with_member(index, Member(after, told, member.used | told))


def rejoined(world: World, index: int) -> World:
    """A client that is fenced drops everything and joins again under its id."""
    member = world.members[index]
    assert member is not None
    world = world.with_member(index, Member(member.current))
    return heartbeat(world, index, NONE)


def retargeted(world: World, target: tuple[int | None, ...]) -> World:
    members = tuple(
        None
        if member is None
        else member._replace(
            current=CurrentAssignmentValue(
                BEHIND,
                0,
                member.current.state,
                member.current.assigned,
                member.current.pending_revocation,
            )
        )
        for member in world.members
    )
    return World(members, target)


def steps(world: World, losses: tuple[bool, ...]) -> Iterator[World]:
    present = [index for index, member in enumerate(world.members) if member is not None]
    for target in itertools.product((None, *present), repeat=len(PARTITIONS)):
        yield retargeted(world, target)
    for index, member in enumerate(world.members):
        if member is None:
            yield heartbeat(world.with_member(index, Member(NOTHING_YET)), index, NONE)
            continue
        settled = world.with_member(index, member._replace(used=member.told))
        yield settled
        for lost in losses:
            yield heartbeat(world, index, None, lost=lost)
            yield heartbeat(settled, index, member.told, lost=lost)
        gone = world.with_member(index, None)
        yield retargeted(gone, tuple(None if o == index else o for o in world.target))


def check(world: World) -> None:
    members = [member for member in world.members if member is not None]
    for one, other in itertools.combinations(members, 2):
        assert not held(one) & held(other)
        assert not one.used & other.used
    for member in members:
        assert member.used <= held(member)
        assert not member.current.assigned & member.current.pending_revocation
        assert bool(member.current.pending_revocation) == (member.current.state == UNREVOKED)


def check_converges(world: World) -> None:
    before = None
    while world != before:
        before = world
        for index in range(len(world.members)):
            if (member := world.members[index]) is not None:
                world = world.with_member(index, member._replace(used=member.told))
                world = heartbeat(world, index, member.told)
    for index, member in enumerate(world.members):
        if member is not None:
            assert member.current.assigned == target_of(world, index)
            assert (member.current.state, member.current.member_epoch) == (STABLE, TARGET_EPOCH)


@pytest.mark.parametrize(("members", "lossy", "states"), SETTINGS)
def test_every_reachable_state_is_safe_and_converges(
    members: int, lossy: bool, states: int
) -> None:
    start = World((None,) * members, (None,) * len(PARTITIONS))
    losses = (False, True) if lossy else (False,)
    seen = {start}
    frontier = [start]
    while frontier:
        world = frontier.pop()
        check(world)
        check_converges(world)
        for following in steps(world, losses):
            if following not in seen:
                seen.add(following)
                frontier.append(following)
    assert len(seen) == states
