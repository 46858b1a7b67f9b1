"""One transactional id and two producers, searched exhaustively.

Each producer may begin, begin anew under the identity it has, write, commit and abort, and hear the
answer or miss it; markers get written, the transaction times out, the coordinator restarts. Every
state that can be reached with few identities is visited once. In each one no two producers have the
same identity, one of them at most can write or commit, what was decided stays decided, and a third
producer can take over, after which the two can do nothing. A longer life belongs to the long runs.
"""

from __future__ import annotations

import copy
import os
from collections import deque
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.coordination.transactions.messages import (
    AddPartitions,
    EndTransaction,
    TransactionState,
)
from ottla.coordination.transactions.state import LAST_EPOCH, PREPARED, Identity, stored
from tests.support.transactions import (
    BUSY,
    DONE,
    FENCED,
    ID,
    OTHER_PRODUCER,
    TIMEOUT_MS,
    at_epoch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

T: Final = frozenset({("t", 0)})
NOBODY: Final = Identity(-1, -1)
REFUSED: Final = {FENCED, OTHER_PRODUCER}

Versions: TypeAlias = tuple[bool, bool]
SETTINGS: Final = [
    ((False, False), 0, 5, 193),
    ((False, True), 0, 5, 289),
    ((True, True), LAST_EPOCH - 1, 5, 373),
]
"""Which producers speak version 2, the first epoch, how many identities there may be, and the
number of states that can be reached."""

if os.environ.get("HYPOTHESIS_PROFILE") == "soak":
    SETTINGS.append(((False, True), LAST_EPOCH - 1, 9, 1_422))

LEGAL: Final = {
    TransactionState.EMPTY: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
    TransactionState.COMPLETE_COMMIT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.COMPLETE_ABORT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
}
DECIDED: Final = {
    True: {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT},
    False: {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT},
}


class World:
    """The coordinator and what each producer takes itself for; `versions` is what they speak."""

    def __init__(self, epoch: int, versions: Versions) -> None:
        self.driver = at_epoch(epoch)
        self.versions = versions
        self.has = [NOBODY, NOBODY]
        self.stored = [stored(self.driver.machine.transactions[ID])]

    def init(self, index: int, *, named: bool, heard: bool) -> None:
        asked = self.has[index] if named else None
        answer = self.driver.init(asked)
        if heard and answer.error is DONE:
            self.has[index] = Identity(answer.producer_id, answer.producer_epoch)

    def add(self, index: int) -> None:
        self.driver.add(self.has[index], T, version_2=self.versions[index])

    def end(self, index: int, *, commit: bool, heard: bool) -> None:
        version_2 = self.versions[index]
        answer = self.driver.end(self.has[index], commit, version_2=version_2)
        if answer.error is DONE:
            assert self.driver.state() in DECIDED[commit]
            if heard:
                self.has[index] = Identity(answer.producer_id, answer.producer_epoch)

    def mark(self) -> None:
        self.driver.mark()

    def time_out(self) -> None:
        self.driver.advance(TIMEOUT_MS)

    def restart(self) -> None:
        self.driver.restart()
        self.driver.advance(0)

    def check_steps(self, before: TransactionState) -> None:
        """Whether each step was a legal one; notes the identities they led to."""
        for record in self.driver.records:
            assert record.value is not None
            assert record.value.state in LEGAL[before]
            before = record.value.state
            if stored(record.value) != self.stored[-1]:
                self.stored.append(stored(record.value))
        self.driver.records.clear()

    def canonical(self) -> Hashable:
        """Identities by their turn, and no times."""
        txn = self.driver.machine.transactions[ID]
        machine = self.driver.machine

        def turn(identity: Identity | None) -> int:
            return self.stored.index(identity) if identity in self.stored else -1

        rotating = txn.next_producer_id != -1
        rotated = txn.previous_producer_id != txn.producer_id
        told = [identity.producer_id == txn.next_producer_id != -1 for identity in self.has]
        return (
            len(self.stored),
            (txn.state, txn.client_version, rotating, rotated, len(self.driver.effects)),
            (turn(machine._before.get(ID)), *map(turn, self.has), *told),
        )


def events(world: World) -> Iterator[Callable[[World], None]]:
    for index in (0, 1):
        for heard in (True, False):
            yield partial(World.init, index=index, named=False, heard=heard)
        if world.has[index] == NOBODY:
            continue
        yield partial(World.add, index=index)
        for heard in (True, False):
            yield partial(World.init, index=index, named=True, heard=heard)
            for commit in (True, False):
                yield partial(World.end, index=index, commit=commit, heard=heard)
    if world.driver.effects:
        yield World.mark
    yield World.time_out
    yield World.restart


def clone(world: World) -> World:
    """By hand, for speed; the log matters as far as compacted."""
    after = copy.copy(world)
    after.has, after.stored = world.has.copy(), world.stored.copy()
    driver = after.driver = copy.copy(world.driver)
    driver.log, driver.records, driver.effects = driver.log[-1:], [], driver.effects.copy()
    old = driver.machine
    machine = driver.machine = TransactionCoordinator(driver.config)
    machine.transactions = old.transactions.copy()
    machine._before, machine._markers = old._before.copy(), old._markers.copy()
    machine._arm(ID, driver.time, age_ms=0)
    return after


def successors(world: World, identities: int) -> Iterator[World]:
    for event in events(world):
        after = clone(world)
        event(after)
        after.check_steps(world.driver.state())
        if len(after.stored) <= identities:
            yield after


def able(world: World, request: AddPartitions | EndTransaction) -> bool:
    trial = TransactionCoordinator(world.driver.config)
    trial.transactions = dict(world.driver.machine.transactions)
    return bool(trial.decide(request, 0, world.driver.time).records)


def check(world: World) -> None:
    producers = [who for who in world.has if who != NOBODY]
    assert len(set(producers)) == len(producers)
    more = frozenset({("t", 1)})
    assert sum(able(world, AddPartitions(ID, *who, more)) for who in producers) <= 1
    for versions in product((False, True), repeat=len(producers)):
        ends = [
            EndTransaction(ID, *who, True, version_2, 1)
            for who, version_2 in zip(producers, versions, strict=True)
        ]
        assert sum(able(world, request) for request in ends) <= 1
    assert bool(world.driver.effects) == (world.driver.state() in PREPARED)
    assert world.driver.replayed().transactions == world.driver.machine.transactions


def check_end(world: World) -> None:
    """Nobody answers any more but a third producer."""
    driver = world.driver
    world.restart()
    if driver.effects:
        driver.mark()
    if driver.init().error is BUSY:
        driver.mark()
    third = driver.given()
    assert driver.add(third, T) is DONE
    for who, version_2 in zip(world.has, world.versions, strict=True):
        assert driver.add(who, T) in REFUSED
        assert driver.end(who, commit=True, version_2=version_2).error in REFUSED
        assert who == NOBODY or driver.init(who).error in REFUSED
    assert driver.end(third, commit=True).error is DONE
    driver.mark()
    assert driver.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize(("versions", "epoch", "identities", "count"), SETTINGS)
def test_every_state(versions: Versions, epoch: int, identities: int, count: int) -> None:
    start = World(epoch, versions)
    seen = {start.canonical()}
    waiting = deque([start])
    while waiting:
        world = waiting.popleft()
        for after in successors(world, identities):
            if (state := after.canonical()) not in seen:
                seen.add(state)
                check(after)
                check_end(clone(after))
                waiting.append(after)
    assert len(seen) == count
