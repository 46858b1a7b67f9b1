"""Case 52 of the performance specification: no member starves, and no wake is lost."""

from __future__ import annotations

import random
import selectors
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from ottla.testing.embedded import EmbeddedBroker
from tests.support.faults_broker import soak
from tests.support.share_member import (
    ACCEPT,
    RELEASE,
    SHARE_CONFIG,
    ShareMember,
    acquired,
    described_offsets,
)
from tests.support.share_queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMBERS: Final = 8
RECORDS: Final = 1_000_000 if soak() else 20_000
AT_ONCE: Final = 500  # records of one batch, and of one answer
SEEDS: Final = range(10_000 if soak() else 12)
STEPS: Final = 30
# Longer than a client here waits for an answer: a wake that is lost fails the test.
LONG_MS: Final = 60_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    slow = {"group.share.heartbeat.interval.ms": "10000"}
    with EmbeddedBroker(config={**SHARE_CONFIG, **slow}) as broker:
        yield broker


@pytest.fixture
def queue(broker: EmbeddedBroker) -> Iterator[Queue]:
    queue = Queue(broker.bootstrap)
    yield queue
    queue.close()


def ask(member: ShareMember, acks: list[tuple[int, int, int]], max_wait_ms: int = LONG_MS) -> None:
    """Acknowledge, and wait for more; the answer is read later."""
    request = member.fetch_request(
        () if member.session_epoch else (0,),
        {0: acks} if acks else None,
        max_wait_ms=max_wait_ms,
        max_records=AT_ONCE,
    )
    member.client.send("share_fetch", member.version, request)


def test_52_eight_equal_members_take_about_as_much_each(queue: Queue) -> None:
    members = [queue.member() for _ in range(MEMBERS)]
    for _ in range(RECORDS // AT_ONCE):
        queue.produce(AT_ONCE, together=True)
    taken: Counter[str] = Counter()
    with selectors.DefaultSelector() as ready:
        for member in members:
            ready.register(member.client._socket, selectors.EVENT_READ, member)
            ask(member, [])
        while taken.total() < RECORDS:
            found = ready.select(60)
            assert found, taken
            for key, _ in found:
                member = key.data
                got = acquired(member.fetched())
                taken[member.member_id] += len(got.offsets)
                ask(member, [(first, last, ACCEPT) for first, last, _ in got.ranges])
    assert taken.total() == RECORDS
    shares = [taken[member.member_id] / RECORDS for member in members]
    assert min(shares) >= 0.05
    assert max(shares) <= 0.25


class Crowd:
    """Members that come, wait, take records and go; a wake for one that goes is another's."""

    def __init__(self, queue: Queue, dice: random.Random) -> None:
        self._queue = queue
        self._dice = dice
        self._waiting: list[ShareMember] = []
        self.produced = 0
        self.accepted: Counter[int] = Counter()

    def step(self) -> None:
        what = self._dice.random()
        if what < 0.4 and len(self._waiting) < MEMBERS:
            self._waiting.append(self._queue.member())
            ask(self._waiting[-1], [], self._dice.choice([0, 5, LONG_MS]))
        elif what < 0.85 or not self._waiting:
            self.produce()
        else:
            self._leave(self._waiting.pop(self._dice.randrange(len(self._waiting))))

    def produce(self) -> None:
        self._queue.produce(1)
        self.produced += 1

    def all_hang_up(self) -> None:
        for member in self._waiting:
            member.client.close()

    def _leave(self, member: ShareMember) -> None:
        """At once, or after it has settled what it has got."""
        if self._dice.random() < 0.5 and readable(member, seconds=0.05):
            for first, last, _ in acquired(member.fetched()).ranges:
                kind = self._dice.choice([ACCEPT, RELEASE])
                assert member.ack(first, last, kind) == 0
                if kind == ACCEPT:
                    self.accepted.update(range(first, last + 1))
        member.client.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_52_no_wake_is_lost_whoever_times_out_or_hangs_up(queue: Queue, seed: int) -> None:
    """In the end two members wait, and each record that nobody has accepted comes to one of them.

    But those that were given back too often: the group has given up on them.
    """
    crowd = Crowd(queue, random.Random(seed))
    for _ in range(STEPS):
        crowd.step()
    last = [queue.member() for _ in range(2)]
    for member in last:
        ask(member, [])
    crowd.all_hang_up()
    accepted = crowd.accepted
    while len(accepted) < crowd.produced:
        found = [member for member in last if readable(member, seconds=0.05)]
        if not found and lag(queue) == 0:
            break
        assert found or any(readable(member, seconds=20) for member in last), (
            f"seed {seed}: {crowd.produced - len(accepted)} records are waited for in vain"
        )
        for member in found:
            ranges = acquired(member.fetched()).ranges
            for first, until, _ in ranges:
                accepted.update(range(first, until + 1))
            ask(member, [(first, until, ACCEPT) for first, until, _ in ranges])
    assert set(accepted.values()) <= {1}


def lag(queue: Queue) -> int:
    """How many records the group has not done with."""
    (row,) = described_offsets(queue.client, queue.group).values()
    return row.lag


def readable(member: ShareMember, *, seconds: float) -> bool:
    with selectors.DefaultSelector() as ready:
        ready.register(member.client._socket, selectors.EVENT_READ)
        return bool(ready.select(seconds))
