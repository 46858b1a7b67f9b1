"""Groups whose members join, leave and die, round after round, with each client and assignor.

After every round each partition has one owner and every record written so far has been read; at no
time does a member get a partition that another one still has.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING

import pytest

from ottla import EmbeddedBroker
from tests.support.group_members import (
    AioMember,
    ConfluentMember,
    KafkaPythonMember,
    Ownership,
    RawMember,
)
from tests.support.python_clients import until
from tests.support.raw_client import RawClient, batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.group_members import Member, Seen

PARTITIONS = 6
MAX_MEMBERS = 3
CASES = [
    (ConfluentMember, "range", 12),
    (ConfluentMember, "roundrobin", 12),
    (ConfluentMember, "cooperative-sticky", 12),
    (ConfluentMember, "consumer", 12),
    (KafkaPythonMember, "range", 6),
    (KafkaPythonMember, "roundrobin", 6),
    (KafkaPythonMember, "cooperative-sticky", 6),
    (AioMember, "range", 6),
    (AioMember, "roundrobin", 6),
    (AioMember, "sticky", 6),
]


@pytest.fixture(scope="module")
def brisk_broker() -> Iterator[EmbeddedBroker]:
    """Members of KIP-848 groups take their heartbeat from the broker: let it be a quick one."""
    settings = {
        "group.consumer.heartbeat.interval.ms": "50",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.min.session.timeout.ms": "2000",
    }
    with EmbeddedBroker(config=settings) as broker:
        yield broker


@pytest.fixture(autouse=True)
def aio_loop() -> Iterator[None]:
    with asyncio.Runner() as runner:
        AioMember.LOOP = runner.get_loop()
        yield


class Swarm:
    """The members of one group, and what they should have read."""

    def __init__(
        self, broker: EmbeddedBroker, kind: type[Member], assignor: str, topic: str
    ) -> None:
        self._bootstrap = broker.bootstrap
        self._kind = kind
        self._assignor = assignor
        self._topic = topic
        self._raw = RawClient(broker.bootstrap)
        self._written: set[Seen] = set()
        self._read: set[Seen] = set()
        self.ownership = Ownership()
        self.members: list[Member] = []

    def write(self) -> None:
        for partition in range(PARTITIONS):
            answer = self._raw.produce(self._topic, batch(b"v"), partition=partition)
            self._written.add((self._topic, partition, answer.base_offset))

    def join(self) -> None:
        make = self._kind
        self.members.append(
            make(  # type: ignore[call-arg]  # the protocol does not speak of constructors
                self._bootstrap, f"g-{self._topic}", [self._topic], self._assignor, self.ownership
            )
        )

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        self._read.update(member.leave())

    def crash(self) -> None:
        """A member comes and dies: it may die with partitions of its own, or before it has any."""
        raw = RawMember(self._bootstrap, f"g-{self._topic}", [self._topic], self._assignor)
        joining = threading.Thread(target=raw.join)
        joining.start()
        until(lambda: not joining.is_alive(), "the raw member joins", self.poll)
        raw.crash()

    def poll(self) -> None:
        for member in self.members:
            self._read.update(member.poll())

    def settled(self) -> bool:
        owners = self.ownership.owners
        everyone = set(map(id, owners.values())) == set(map(id, self.members))
        return len(owners) == PARTITIONS and everyone and self._read >= self._written

    def close(self) -> None:
        for member in tuple(self.members):
            self.leave(member)
        self._raw.close()


@pytest.mark.parametrize(
    ("kind", "assignor", "rounds"), CASES, ids=[f"{k.__name__}-{a}" for k, a, _ in CASES]
)
def test_no_partition_is_lost_or_owned_twice(
    brisk_broker: EmbeddedBroker, kind: type[Member], assignor: str, rounds: int
) -> None:
    topic = f"{kind.__name__}-{assignor}"
    brisk_broker.create_topic(topic, partitions=PARTITIONS)
    swarm = Swarm(brisk_broker, kind, assignor, topic)
    choose = random.Random(topic)
    try:
        swarm.join()
        for _ in range(rounds):
            swarm.write()
            moves = ["crash"]
            if len(swarm.members) < MAX_MEMBERS:
                moves += ["join", "join"]
            if len(swarm.members) > 1:
                moves += ["leave", "leave"]
            match choose.choice(moves):
                case "join":
                    swarm.join()
                case "leave":
                    swarm.leave(choose.choice(swarm.members))
                case "crash":
                    swarm.crash()
            until(swarm.settled, "every partition owned once, every record read", swarm.poll)
    finally:
        swarm.close()
    assert swarm.ownership.doubly_owned == []
