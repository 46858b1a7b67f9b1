"""Members that wait for queues in line: no wake is lost, and none starves. Case 52.

The line, the waiting and the handler's loop are the broker's own; the queues count records instead
of keeping them. Time is the test's, and a walk is given by its seed.
"""

from __future__ import annotations

from contextlib import closing
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.broker.handlers import share_fetch
from ottla.broker.hosting.waiting import Line
from ottla.broker.shares.partitions import LedSharePartition
from tests.support.faults_broker import soak
from tests.support.simulated_node import SimulatedLoop
from tests.support.sizes import some

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

MEMBERS: Final = 8
WALKS: Final = 10_000 if soak() else 200
STEPS: Final = 60
RECORDS: Final = 1_000_000 if soak() else 20_000
KEYS: Final = (b"", 0), (b"", 1)


class CountedQueue(LedSharePartition):
    """A share-partition as far as its line is concerned."""

    def __init__(self) -> None:
        self.line = Line()
        self._listens = False
        self.records = 0
        self.log: Any = SimpleNamespace(waiters=set())
        vars(self)["hosted"] = self.log

    def _has_more(self) -> bool:
        return self.records > 0

    def append(self, records: int) -> None:
        """As a log does: all that wait for it are called, and have to come back."""
        self.records += records
        waiters: set[Callable[[], None]] = self.log.waiters
        self.log.waiters = set()
        for wake in waiters:
            wake()


class Walk:
    """Some queues and the members of one group, each with a request at a time."""

    def __init__(self, seed: int, queues: int) -> None:
        self.random = Random(seed)
        self.loop = SimulatedLoop()
        self.queues = {key: CountedQueue() for key in KEYS[:queues]}
        self.max_records = 5
        self.taken = [0] * MEMBERS
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.turns: dict[int, Any] = {}
        self.room: Any = SimpleNamespace(
            look=self.look,
            partitions=SimpleNamespace(opening_by_id=lambda _: None),
            shares=SimpleNamespace(
                find=lambda _, *key: self.queues[key],
                pass_on=self.pass_on,
            ),
        )

    def pass_on(self, _group: str, keys: Sequence[tuple[bytes, int]]) -> None:
        for key in keys:
            self.queues[key].pass_on()

    def look(self, turn: Any) -> dict[Any, Any]:
        """What `_look` does, with records that are numbers."""
        got = {}
        left = self.max_records
        for key in turn.order:
            queue = self.queues[key]
            taken = min(left, queue.records)
            queue.records -= taken
            left -= taken
            self.taken[turn.session.member] += taken
            got[key] = SimpleNamespace(size=taken, data=SimpleNamespace(error_code=0))
        return got

    def fetch(self, member: int, max_wait: float) -> None:
        keys = [*self.queues]
        self.random.shuffle(keys)
        session = SimpleNamespace(partitions=keys, group="g", member=member)
        turn: Any = SimpleNamespace(session=session, order=keys, is_current=True)
        self.turns[member] = turn
        request: Any = SimpleNamespace(max_wait_ms=max_wait * 1000)
        self.tasks[member] = self.loop.create_task(
            share_fetch._fetch(self.room, request, turn, self.room, lambda: 0)
        )

    def idle(self) -> list[int]:
        return [one for one in range(MEMBERS) if one not in self.tasks or self.tasks[one].done()]

    def step(self) -> None:
        """Anything that may happen, often several things in one turn of the loop."""
        random = self.random
        for _ in range(random.randint(1, 3)):
            match random.choice(
                ["append", "append", "fetch", "fetch", "close", "overtake", "time"]
            ):
                case "append":
                    random.choice([*self.queues.values()]).append(random.randint(1, 12))
                case "fetch" if free := self.idle():
                    self.fetch(random.choice(free), random.choice([0.0, 0.5, 3.0]))
                case "close" if self.tasks:
                    random.choice([*self.tasks.values()]).cancel()
                case "overtake" if self.turns:  # its member has sent another request
                    random.choice([*self.turns.values()]).is_current = False
                case "time":
                    self.loop.now += random.choice([0.1, 0.5, 2.9])
        self.loop.settle()

    def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        self.loop.settle()
        for task in self.tasks.values():
            assert task.cancelled() or task.exception() is None
        self.loop.close()


def _look(room: Any, request: Any, turn: Any, *_: object) -> dict[Any, Any]:
    found: dict[Any, Any] = room.look(turn)
    return found


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler looks at numbers."""
    monkeypatch.setattr(share_fetch, "_may_read", lambda *_: True)
    monkeypatch.setattr(share_fetch, "_check_right", lambda *_: None)
    monkeypatch.setattr(share_fetch, "_look", _look)


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(10))
def test_no_wake_is_lost(block: int) -> None:
    """Whoever waits has nothing to take, after time-outs, closed connections and all."""
    for seed in some(range(block, WALKS, 10), block):
        with closing(Walk(seed, 1 + seed % 2)) as walk:
            for step in range(STEPS):
                walk.step()
                for queue in walk.queues.values():
                    is_forgotten = queue.records and queue.line
                    assert not is_forgotten, f"seed {seed}, step {step}: {queue.records} records"


def test_no_member_starves() -> None:
    """Eight equal members take between 5 % and 25 % each."""
    with closing(Walk(1, 1)) as walk:
        walk.max_records = 500
        (queue,) = walk.queues.values()
        while sum(walk.taken) < RECORDS:
            for member in walk.idle():
                walk.fetch(member, 5.0)
            walk.loop.settle()
            queue.append(walk.random.randint(1, 600))
            walk.loop.settle()
            walk.loop.now += 0.01
    for taken in walk.taken:
        assert 0.05 <= taken / sum(walk.taken) <= 0.25
