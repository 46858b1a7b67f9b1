"""Members that wait for a queue are woken in turn: as many as there is something for.

Case 51 of the acceptance cases of answers and share groups.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.broker.shares.partitions import LedSharePartition
from ottla.testing.embedded import EmbeddedBroker
from tests.support.log_batches import batch_of
from tests.support.raw_client import batch
from tests.support.raw_transactions import wait_for
from tests.support.share_member import ACCEPT, RELEASE, SHARE_CONFIG, ShareMember, acquired
from tests.support.share_queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.running.node import Node
    from ottla.broker.shares.reads import Delivered
    from ottla.sharing.values import FetchTurn

MEMBERS = 8
# Longer than a client here waits for an answer: whoever is forgotten fails the test.
LONG_MS = 60_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    slow = {"group.share.heartbeat.interval.ms": "10000"}  # joins wait for the group's state
    with EmbeddedBroker(config={**SHARE_CONFIG, **slow}) as broker:
        yield broker


@pytest.fixture
def queue(broker: EmbeddedBroker) -> Iterator[Queue]:
    queue = Queue(broker.bootstrap)
    yield queue
    queue.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who looked, in order."""
    found: list[str] = []
    acquire = LedSharePartition.acquire

    def noted(
        self: LedSharePartition, turn: FetchTurn, max_bytes: int, *, views: bool, min_one: bool
    ) -> Delivered:
        found.append(turn.member)
        return acquire(self, turn, max_bytes, views=views, min_one=min_one)

    monkeypatch.setattr(LedSharePartition, "acquire", noted)
    return found


def waiting(broker: EmbeddedBroker) -> int:
    """How many members are in line."""
    node = broker._node
    assert node is not None
    shares = node.services.shares.made
    return 0 if shares is None else sum(len(led.line._waiting) for led in shares)


def load(broker: EmbeddedBroker, member: ShareMember) -> None:
    """Who waits for a queue that is being loaded is woken by that, and may lose its place."""
    request = member.fetch_request((0,), max_wait_ms=0)
    member.client.send("share_fetch", member.version, request)
    member.client.receive("share_fetch", member.version)
    node = broker._node
    assert node is not None
    shares = node.services.shares.made
    assert shares is not None
    wait_for(lambda: all(led.machine is not None for led in shares))


def begin_to_wait(broker: EmbeddedBroker, member: ShareMember, *, records: int = 1) -> None:
    before = waiting(broker)
    member.session_epoch = 0
    request = member.fetch_request((0,), max_wait_ms=LONG_MS, max_records=records)
    member.client.send("share_fetch", member.version, request)
    wait_for(lambda: waiting(broker) == before + 1)


def test_what_is_appended_wakes_as_many_as_there_is_something_for(
    broker: EmbeddedBroker, queue: Queue, looks: list[str]
) -> None:
    members = [queue.member() for _ in range(MEMBERS)]
    load(broker, members[0])
    for member in members:
        begin_to_wait(broker, member)
    looks.clear()
    for taken in range(3):
        queue.produce(1)
        assert acquired(members[taken].fetched(0)).offsets == [taken], "first come first served"
    assert looks == [member.member_id for member in members[:3]]
    assert waiting(broker) == MEMBERS - 3


def test_who_takes_a_part_passes_on(broker: EmbeddedBroker, queue: Queue) -> None:
    members = [queue.member() for _ in range(3)]
    for member in members:
        begin_to_wait(broker, member)
    values = [batch(b"a"), batch(b"b"), batch(b"c")]
    for one in values:
        assert queue.client.produce(queue.topic, one)[1] == 0
    got = sorted(offset for member in members for offset in acquired(member.fetched(0)).offsets)
    assert got == [0, 1, 2]


def test_what_is_given_back_goes_to_who_waits_and_what_is_accepted_to_nobody(
    broker: EmbeddedBroker, queue: Queue, looks: list[str]
) -> None:
    queue.produce(2)
    holder = queue.member()
    assert holder.first().offsets == [0, 1]
    members = [queue.member() for _ in range(MEMBERS)]
    for member in members:
        begin_to_wait(broker, member)
    looks.clear()
    assert holder.ack(0, 0, ACCEPT) == 0
    assert waiting(broker) == MEMBERS
    assert set(looks) <= {holder.member_id}
    looks.clear()
    assert holder.ack(1, 1, RELEASE) == 0
    assert acquired(members[0].fetched(0)).offsets == [1]
    assert {member.member_id for member in members[1:]}.isdisjoint(looks)


def test_who_hangs_up_when_it_is_woken_passes_on(broker: EmbeddedBroker, queue: Queue) -> None:
    queue.produce(1)
    first, second = queue.member(), queue.member()
    assert first.first().offsets == [0]
    assert first.ack(0, 0, ACCEPT) == 0
    begin_to_wait(broker, first)
    begin_to_wait(broker, second)
    port = first.client._socket.getsockname()[1]

    async def append_and_hang_up(node: Node) -> None:
        """All in one turn of the loop: who is woken has not run when its connection is lost."""
        hosted = node.services.partitions.find(queue.topic, 0)
        (lost,) = (
            one
            for one in node.dispatcher.connections
            if one._transport is not None and one._transport.get_extra_info("peername")[1] == port
        )
        hosted.log.append(batch_of(b"v"), leader_epoch=hosted.leader_epoch, now_ms=0)
        hosted.advance(hosted.log.log_end_offset)
        transport = lost._transport
        assert transport is not None
        lost.connection_lost(None)
        transport.set_protocol(asyncio.Protocol())  # it has been told
        transport.abort()

    broker._call(append_and_hang_up)
    assert acquired(second.fetched(0)).offsets == [1]
