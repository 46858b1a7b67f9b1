"""The books of a share group, searched exhaustively: one topic of two partitions, one member.

The member may come and go; the administrator may alter one partition, delete the offsets or the
group; what is asked for is done, fails before or after the deed, or is lost with a restart from a
compacted log. Every state that can be reached with few effects open is visited once. In each one
the group knows of all that the share coordinator keeps, and assigns nothing that is not kept; and
once nothing fails any more, the group can be deleted and leaves nothing. Three open effects take a
minute and belong to the long runs.
"""

from __future__ import annotations

import copy
import os
from collections import deque
from typing import TYPE_CHECKING

import pytest

from ottla.coordination.groups.config import GroupConfig, ShareSettings
from ottla.coordination.groups.messages import DeleteGroup
from ottla.coordination.groups.share_effects import DeleteShareState, InitializeShareState
from ottla.coordination.groups.share_group import ShareGroup
from ottla.coordination.groups.share_messages import (
    AlterShareOffsets,
    DeleteShareOffsets,
    ShareStart,
)
from ottla.coordination.machine import Batch
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_consumer import topics_image
from tests.support.share_group import Member, ShareWorld

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ottla.coordination.machine import Effect

IMAGE = topics_image(t=2)
FOREVER = 10**12
CONFIG = GroupConfig(
    offsets_retention_check_interval_ms=FOREVER,
    share=ShareSettings(session_timeout_ms=FOREVER, assignment_interval_ms=0),
)
FAILURE = ErrorCode.COORDINATOR_NOT_AVAILABLE

SETTINGS = [(2, 631)]
"""How many effects may be open, and the number of states that can be reached."""

if os.environ.get("HYPOTHESIS_PROFILE") == "soak":
    SETTINGS.append((3, 2_207))


def group_of(world: ShareWorld) -> ShareGroup | None:
    group = world.driver.machine.groups.get("g")
    assert group is None or isinstance(group, ShareGroup)
    return group


def shape(effect: Effect) -> Hashable:
    if isinstance(effect, InitializeShareState):
        return "initialize", frozenset(effect.starts.items())
    assert isinstance(effect, DeleteShareState)
    return "delete", effect.partitions


def canonical(world: ShareWorld) -> Hashable:
    """A state without times and epochs, of which only the order matters."""
    group = group_of(world)
    queue = world.driver.effects
    place = {id(effect): index for index, effect in enumerate(queue)}
    parked = frozenset(
        (place.get(id(effect)), then.func.__name__)
        for effect, then in world.driver.machine.shares.waiting.items()
    )
    around = (tuple(map(shape, queue)), parked, frozenset(key[1] for key in world.kept))
    if group is None:
        return around
    attempts = frozenset(
        (p, place.get(id(attempt.effect)), attempt.retry_ms <= world.driver.now)
        for p, attempt in group.attempts.items()
    )
    deletes = frozenset((t, place.get(id(effect))) for t, effect in group.deletes.items())
    states = group.states
    books = (states.initializing, states.initialized, states.deleting)
    current = frozenset(value.assigned for value in group.current.values())
    target = frozenset(group.targets.values())
    due = group.epoch > group.target_epoch
    return around, books, attempts, deletes, bool(group.members), current, target, due


def member(world: ShareWorld) -> Member:
    client = Member(world, "a", "t")
    client.image = IMAGE
    if (group := group_of(world)) is not None and "a" in group.current:
        client.epoch = group.current["a"].member_epoch
    return client


def wait(world: ShareWorld) -> None:
    world.driver.advance(CONFIG.share_initialize_retry_interval_ms)


def restart(world: ShareWorld) -> None:
    world.driver.effects.clear()
    world.driver.restart()


EVENTS = {
    "join": lambda world: member(world).join(),
    "beat": lambda world: member(world).beat(),
    "leave": lambda world: member(world).leave(),
    "alter": lambda world: world.driver.send(
        AlterShareOffsets("g", IMAGE, (ShareStart("t", 0, 5),))
    ),
    "delete offsets": lambda world: world.driver.send(DeleteShareOffsets("g", IMAGE, ("t",))),
    "delete group": lambda world: world.driver.send(DeleteGroup("g", IMAGE)),
    "wait": wait,
    "restart": restart,
}
OUTCOMES = {
    "done": lambda world: world.perform_next(),
    "failed": lambda world: world.perform_next(FAILURE),
    "failed late": lambda world: world.perform_next(FAILURE, done=True),
}


def clone(world: ShareWorld) -> ShareWorld:
    """Answers and history do not matter to what comes next; the log does, as far as compacted."""
    driver = world.driver
    driver.records.clear()
    driver.answers.clear()
    latest: dict[bytes, bytes | None] = {}
    for key, value in driver.log:
        latest.pop(key, None)
        latest[key] = value
    driver.batches = [Batch(list(latest.items()))]
    return copy.deepcopy(world, {id(IMAGE): IMAGE, id(CONFIG): CONFIG})


def successors(world: ShareWorld, queue: int) -> Iterator[tuple[str, ShareWorld]]:
    for name, event in (EVENTS | OUTCOMES if world.driver.effects else EVENTS).items():
        after = clone(world)
        event(after)
        if len(after.driver.effects) <= queue:
            yield name, after


def check(world: ShareWorld) -> None:
    group = group_of(world)
    open_topics = bool(world.driver.effects)
    kept = {partition for _, partition in world.kept}
    if group is None:
        assert open_topics or not kept
        return
    states = group.states
    assert not states.initializing & states.initialized
    if not open_topics:
        assert states.initialized <= kept
        assert states.deleting or kept <= states.initializing | states.initialized


def check_end(world: ShareWorld) -> None:
    world.perform()
    member(world).leave()
    world.driver.send(DeleteGroup("g", IMAGE))
    world.perform()
    assert group_of(world) is None
    assert world.kept == {}


@pytest.mark.parametrize(("queue", "count"), SETTINGS)
def test_every_state(queue: int, count: int) -> None:
    start = ShareWorld(CONFIG)
    seen = {canonical(start)}
    waiting = deque([start])
    while waiting:
        world = waiting.popleft()
        for _name, after in successors(world, queue):
            if (state := canonical(after)) not in seen:
                seen.add(state)
                check(after)
                check_end(clone(after))
                waiting.append(after)
    assert len(seen) == count
