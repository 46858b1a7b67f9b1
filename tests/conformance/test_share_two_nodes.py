"""Two nodes over one metadata file: share state that lives on the other node.

Node 1 leads the queue and coordinates the group; the group's share state is on node 2, so every
load and every write goes over the wire between them. Node 2 may be away, and leaders may move.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from ottla.broker.running.peers import PeerUnreachable
from ottla.broker.shares.rpcs import RemoteCoordinators
from ottla.broker.topics import create_topic
from ottla.coordination.share_state import messages as m
from ottla.coordination.share_state.records import ShareKey
from ottla.log.checkpoints import TopicPartition
from ottla.metadata.changes.topics import Leadership, SetLeaders
from ottla.metadata.image import NO_LEADER
from ottla.metadata.names import SHARE_GROUP_STATE_TOPIC
from ottla.wire.error_codes import ErrorCode
from tests.support.raw_client import RawClient, batch, records_of
from tests.support.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    WAIT_MS,
    ShareMember,
    described_offsets,
    partitions_of,
    set_group_configs,
)
from tests.support.share_nodes import TOPIC, Nodes, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    try:
        nodes.start(1)
        nodes.start(2)
        wait_for(lambda: len(nodes.running[1].image.brokers) == 2)
        nodes.make_topics()
        yield nodes
    finally:
        nodes.close()


def produce(nodes: Nodes, records: int) -> None:
    with RawClient(nodes.bootstrap()) as client:
        for _ in range(records):
            assert client.produce(TOPIC, batch(b"value")).error_code == 0


def newcomer(nodes: Nodes, group: str) -> ShareMember:
    member = ShareMember(nodes.bootstrap(), group, TOPIC)
    set_group_configs(member.client, group, share_auto_offset_reset="earliest")
    return member


def is_assigned(member: ShareMember) -> bool:
    """Whether a heartbeat, which always succeeds, brings partitions."""
    answer = member.heartbeat(topics=[member.topic])
    assert answer.error_code == 0, answer
    assert answer.assignment is not None
    return bool(answer.assignment.topic_partitions)


def test_share_state_lives_on_the_other_node(nodes: Nodes) -> None:
    group = nodes.new_group()
    produce(nodes, 4)
    with newcomer(nodes, group) as member, newcomer(nodes, group) as other:
        member.join()
        wait_for(lambda: is_assigned(member))
        assert member.first().offsets == [0, 1, 2, 3]
        assert member.ack(0, 1, ACCEPT) == 0
        assert member.ack(2, 2, RELEASE) == 0
        assert other.first().ranges == [(2, 2, 2)]
    with newcomer(nodes, group) as later:
        # The group had no session left, so this is what node 2 has written down.
        assert later.first().offsets == [2, 3]
    assert nodes.running[2].data.partitions_on_disk(SHARE_GROUP_STATE_TOPIC) == [1]
    assert nodes.running[1].data.partitions_on_disk(SHARE_GROUP_STATE_TOPIC) == []


def test_11_a_coordinator_that_is_away_fails_no_heartbeat(nodes: Nodes) -> None:
    group = nodes.new_group()
    produce(nodes, 1)
    nodes.do(
        nodes.running[1].services.persister().ensure_topic
    )  # while there is a node 2 to lead some of it
    nodes.stop(2)
    with newcomer(nodes, group) as member:
        answer = member.join()
        assert answer.assignment is not None
        assert not answer.assignment.topic_partitions
        assert not is_assigned(member)
        # A fetch finds nothing, rather than an error, in its own time.
        assert member.first(max_wait_ms=100).offsets == []
        nodes.start(2)
        wait_for(lambda: is_assigned(member))
        wait_for(lambda: member.acquire(max_wait_ms=200).offsets == [0])


def test_a_node_that_stops_says_so(nodes: Nodes) -> None:
    first = nodes.running[1]
    nodes.do(lambda: create_topic(first.cluster, "there", assignments={0: [2]}))
    nodes.stop(2)
    image = nodes.do(first.metadata.poll)
    assert image.brokers[2].fenced
    assert image.topics_by_name["there"].partitions[0].leader == NO_LEADER
    nodes.start(2)
    image = nodes.do(first.metadata.poll)
    assert not image.brokers[2].fenced
    assert image.topics_by_name["there"].partitions[0].leader == 2


def test_47_54_an_acknowledgement_that_cannot_be_written_can_be_repeated(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.shares.persister.PATIENCE_SECONDS", 0.3)
    group = nodes.new_group()
    produce(nodes, 2)
    with newcomer(nodes, group) as member:
        member.join()
        wait_for(lambda: is_assigned(member))
        assert member.first().offsets == [0, 1]
        nodes.stop(2)
        assert member.ack(0, 0, ACCEPT) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        nodes.start(2)
        wait_for(lambda: member.ack(0, 1, ACCEPT) == 0)


def test_54_the_state_has_no_leader_for_a_moment(nodes: Nodes) -> None:
    group = nodes.new_group()
    produce(nodes, 2)
    with newcomer(nodes, group) as member:
        member.join()
        wait_for(lambda: is_assigned(member))
        assert member.first().offsets == [0, 1]
        nodes.set_leader(SHARE_GROUP_STATE_TOPIC, 1, NO_LEADER, by=2)
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(member.ack(0, 0, ACCEPT)))
        asking.start()
        nodes.set_leader(SHARE_GROUP_STATE_TOPIC, 1, 2, by=2)
        asking.join()
        assert answers == [0]
    with newcomer(nodes, group) as later:
        assert later.first().offsets == [1]


def test_54_a_coordinator_that_moved_is_looked_up_again(nodes: Nodes) -> None:
    group = nodes.new_group()
    key = ShareKey(group, nodes.topic_id, 0)
    here, there = nodes.running[1], nodes.running[2]
    nodes.do(here.services.persister().ensure_topic)

    async def moved() -> list[m.StateResponse]:
        wait = m.InitializeState(key, here.services.groups().topics, 1, 7)
        before = await here.services.persister().ask(wait, m.StateResponse)
        state = (await there.metadata.poll()).topics_by_name[SHARE_GROUP_STATE_TOPIC]
        await there.metadata.change(SetLeaders((Leadership(state.topic_id, 1, 1, (1,)),)))
        return [before, await here.services.persister().ask(wait, m.StateResponse)]

    assert [answer.error for answer in nodes.call(moved())] == [ErrorCode.NONE] * 2
    assert nodes.call(here.services.persister().leader_of(key)) == 1
    assert here.data.partitions_on_disk(SHARE_GROUP_STATE_TOPIC) == [1]


def test_54_a_write_that_is_tried_again_is_not_overtaken(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = nodes.running[1]
    key = ShareKey(nodes.new_group(), nodes.topic_id, 0)
    nodes.do(here.services.persister().ensure_topic)
    sent: list[int] = []

    async def fail_once(
        _: object, __: int, request: m.WriteState, expect: type[m.StateResponse]
    ) -> m.StateResponse:
        sent.append(request.start_offset)
        if len(sent) == 1:
            raise PeerUnreachable("node 2: for a moment")
        return expect()

    monkeypatch.setattr(RemoteCoordinators, "ask", fail_once)

    async def write_all() -> list[m.StateResponse]:
        writes = [
            m.WriteState(key, here.services.groups().topics, 0, 0, start, ()) for start in (1, 2, 3)
        ]
        write = here.services.persister().write
        return await asyncio.gather(*(write(each)() for each in writes))

    assert [answer.error for answer in nodes.call(write_all())] == [ErrorCode.NONE] * 3
    assert sent == [1, 1, 2, 3]


def test_48_a_queue_that_moved_redirects_its_members(nodes: Nodes) -> None:
    group = nodes.new_group()
    produce(nodes, 1)
    with newcomer(nodes, group) as member:
        member.join()
        wait_for(lambda: is_assigned(member))
        assert member.first().offsets == [0]
        nodes.set_leader(TOPIC, 0, 2, by=1)
        refused = partitions_of(member.fetch([], {0: [(0, 0, ACCEPT)]}, max_wait_ms=WAIT_MS))[0]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.acknowledge_error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.current_leader.leader_id == 2
        wait_for(lambda: nodes.running[2].data.has(TopicPartition(TOPIC, 0)))
        with ShareMember(nodes.bootstrap(2), group, TOPIC) as moved:
            # Loading on the new leader fences the old one, and finds what was stored.
            row = partitions_of(moved.fetch([0], max_wait_ms=200))[0]
            assert row.error_code == 0


def test_a_start_is_resolved_from_the_newest_settings(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 2 leads the queue and has not looked yet when the group is set to `earliest`."""
    first = nodes.running[1]
    nodes.do(lambda: create_topic(first.cluster, "there", assignments={0: [2]}))
    nodes.do(nodes.running[2].metadata.poll)
    with RawClient(nodes.bootstrap(2)) as client:
        assert client.produce("there", batch(b"1", b"2", b"3")).error_code == 0
    held = nodes.running[2].jobs
    monkeypatch.setattr(held, "_poll_store", lambda: asyncio.sleep(0))
    for _ in range(3):
        group = nodes.new_group()
        with ShareMember(nodes.bootstrap(1), group, "there") as member:
            set_group_configs(member.client, group, share_auto_offset_reset="earliest")
            member.join()
            wait_for(lambda: is_assigned(member))
            with ShareMember(nodes.bootstrap(2), group, "there") as reader:
                assert reader.first().offsets == [0, 1, 2]


def test_59_the_lag_of_a_queue_on_the_other_node(nodes: Nodes) -> None:
    """Node 1 has the group, node 2 the queue: the end is node 2's to tell."""
    first = nodes.running[1]
    group = nodes.new_group()
    nodes.do(lambda: create_topic(first.cluster, "there", assignments={0: [2]}))
    wait_for(lambda: nodes.running[2].image.topic("there") is not None)
    with RawClient(nodes.bootstrap(2)) as client:
        assert client.produce("there", batch(b"1", b"2", b"3")).error_code == 0
    with ShareMember(nodes.bootstrap(1), group, "there") as member:
        set_group_configs(member.client, group, share_auto_offset_reset="earliest")
        member.join()
        wait_for(lambda: is_assigned(member))
        with ShareMember(nodes.bootstrap(2), group, "there") as reader:
            assert reader.first().offsets == [0, 1, 2]
            assert reader.ack(0, 0, ACCEPT) == 0
            row = described_offsets(member.client, group)["there", 0]
            assert (row.in_flight, row.delivery_complete_count, row.lag) == (2, 1, 2)
        assert described_offsets(member.client, group)["there", 0].lag == 2
        nodes.stop(2)
        row = described_offsets(member.client, group)["there", 0]
        assert row.error_code != 0


def test_dead_letters_go_to_the_node_that_leads_their_topic(nodes: Nodes) -> None:
    first = nodes.running[1]
    enabled = {"errors.deadletterqueue.group.enable": "true"}
    nodes.do(
        lambda: create_topic(first.cluster, "dlq.queue", assignments={0: [2]}, configs=enabled)
    )
    group = nodes.new_group()
    produce(nodes, 2)
    with newcomer(nodes, group) as member, RawClient(nodes.bootstrap(2)) as reader:
        set_group_configs(member.client, group, errors_deadletterqueue_topic_name="dlq.queue")
        member.join()
        wait_for(lambda: is_assigned(member))
        assert member.first().offsets == [0, 1]
        assert member.ack(0, 1, REJECT) == 0
        letters = records_of(reader.fetch_one("dlq.queue", 0))
        assert [one.value for one in letters] == [b"value", b"value"]
        assert [dict(one.headers)["__dlq.errors.offset"] for one in letters] == [b"0", b"1"]
    assert first.services.dead_letters().written[group] == 2
