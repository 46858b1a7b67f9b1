"""Three classic consumers that join, leave and crash at random, round after round.

Between rounds, when everyone alive is steady, each partition has exactly one reader.
"""

from __future__ import annotations

import random

import pytest

from ottla.coordination.groups.config import GroupConfig
from ottla.coordination.groups.messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinGroupResponse,
    JoinMember,
    SyncGroup,
    SyncGroupResponse,
)
from ottla.wire.error_codes import ErrorCode
from tests.support.groups_driver import SESSION_MS, Driver

PARTITIONS = 7
ROUNDS = 100
HEARTBEAT_MS = 3000


def assign(members: tuple[JoinMember, ...]) -> tuple[tuple[str, bytes], ...]:
    """A leader's work: partition numbers as bytes, dealt out in turn."""
    names = sorted(member.member_id for member in members)
    shares = {name: bytes(range(n, PARTITIONS, len(names))) for n, name in enumerate(names)}
    return tuple(shares.items())


class Consumer:
    """One step per heartbeat interval: hear what was answered, then send what follows from it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.alive = False
        self.reset()

    def reset(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned = b""
        self.steady = False
        self.waiting: int | None = None

    def step(self, fresh: str) -> None:
        if self.waiting is not None and self.waiting not in self.driver.answers:
            return
        answer = None if self.waiting is None else self.driver.answers[self.waiting]
        self.waiting = None
        if isinstance(answer, JoinGroupResponse):
            self.heard_join(answer, fresh)
        elif isinstance(answer, SyncGroupResponse) and answer.error is ErrorCode.NONE:
            self.owned, self.steady = answer.assignment, True
        elif self.steady:
            self.beat(fresh)
        else:
            self.join(fresh)

    def join(self, fresh: str) -> None:
        """Eager rebalancing: a consumer gives up everything before it joins."""
        self.owned, self.steady = b"", False
        request = self.driver.join_request(self.member_id, fresh=fresh, known=True)
        self.waiting = self.driver.send(request)

    def heard_join(self, answer: JoinGroupResponse, fresh: str) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join(fresh)
        elif answer.error is not ErrorCode.NONE:
            self.reset()
            self.join(fresh)
        else:
            self.generation = answer.generation
            leads = answer.leader == answer.member_id
            shares = assign(answer.members) if leads else ()
            sync = SyncGroup("g", self.member_id, self.generation, assignments=shares)
            self.waiting = self.driver.send(sync)

    def beat(self, fresh: str) -> None:
        request = Heartbeat("g", self.member_id, self.generation)
        error = self.driver.ask(request, HeartbeatResponse).error
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.reset()
        if error is not ErrorCode.NONE:
            self.join(fresh)


@pytest.mark.parametrize("seed", range(5))
def test_every_partition_has_one_reader_after_every_change(seed: int) -> None:
    rng = random.Random(seed)
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=HEARTBEAT_MS))
    consumers = [Consumer(driver) for _ in range(3)]
    fresh = 0
    for _ in range(ROUNDS):
        for _ in range(rng.randint(1, 4)):  # some changes come while a round is under way
            consumer = rng.choice(consumers)
            if consumer.alive and rng.random() < 0.5 and consumer.member_id:
                driver.leave((consumer.member_id, None))
            consumer.alive = not consumer.alive
            consumer.reset()
            for _ in range(rng.randint(0, 2)):
                fresh = run(driver, consumers, rng, fresh)
        for _ in range(4 * SESSION_MS // HEARTBEAT_MS):
            fresh = run(driver, consumers, rng, fresh)
        alive = [consumer for consumer in consumers if consumer.alive]
        assert all(consumer.steady for consumer in alive)
        read = sorted(partition for consumer in alive for partition in consumer.owned)
        assert read == (list(range(PARTITIONS)) if alive else [])


def run(driver: Driver, consumers: list[Consumer], rng: random.Random, fresh: int) -> int:
    """One heartbeat interval in which every live consumer takes a step, in any order."""
    for consumer in rng.sample(consumers, len(consumers)):
        if consumer.alive:
            fresh += 1
            consumer.step(str(fresh))
        driver.advance(HEARTBEAT_MS // len(consumers))
    return fresh
