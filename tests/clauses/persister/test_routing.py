"""Routing: the coordinator of a state, here or on another node

Two nodes over one metadata file, started as the broker's own tests start them, since users cannot
start a second node yet. Node 1 leads the queue and coordinates the groups; the state of these
groups belongs to node 2, so that each request goes over the wire.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Final

import pytest

from ottla.wire.schema.delete_groups import DeleteGroupsRequest
from tests.clauses.persister.state import (
    COORDINATOR_NOT_AVAILABLE,
    INVALID_REQUEST,
    NOT_COORDINATOR,
    STATE_TOPIC,
    Batch,
    ShareState,
)
from tests.support.raw_client import RawClient, batch
from tests.support.share_member import ACCEPT, ShareMember, set_group_configs
from tests.support.share_nodes import TOPIC, Nodes, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

ACKNOWLEDGED: Final = 2


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        # Fifteen seconds otherwise.
        patch.setattr("ottla.broker.shares.persister.PATIENCE_SECONDS", 0.3)
        nodes = Nodes(tmp_path_factory.mktemp("nodes"))
        try:
            nodes.start(1)
            nodes.start(2)
            wait_for(lambda: len(nodes.running[1].image.brokers) == 2)
            nodes.make_topics()
            wait_for(lambda: nodes.running[2].image.topic(TOPIC) is not None)
            with RawClient(nodes.bootstrap()) as client:
                assert client.produce(TOPIC, batch(b"value")).error_code == 0
            yield nodes
        finally:
            nodes.close()


@pytest.fixture
def there(nodes: Nodes) -> Iterator[ShareState]:
    """The state of a new group, asked for at node 1, which does not have it."""
    state = ShareState(nodes.bootstrap(1), nodes.new_group(), TOPIC)
    yield state
    state.close()


def test_the_leader_of_the_state_partition_is_the_coordinator(
    nodes: Nodes, there: ShareState
) -> None:
    """The key's state partition has a leader, and that broker is asked."""
    found = there.coordinator()
    assert (found.error_code, found.node_id) == (0, 2)
    assert f"{found.host}:{found.port}" == nodes.bootstrap(2)


def test_another_broker_says_that_it_is_not_the_coordinator(
    nodes: Nodes, there: ShareState
) -> None:
    """A broker answers for the state partitions that it leads, and for no others."""
    there.coordinator()
    assert there.initialize() == NOT_COORDINATOR
    here = ShareState(nodes.bootstrap(2), there.group, TOPIC)
    wait_for(lambda: here.initialize() == 0)
    here.close()


def test_state_that_is_led_here_is_kept_here(nodes: Nodes) -> None:
    """If this broker leads the state partition, its own coordinator is asked."""
    group = nodes.new_group(state_partition=0)
    with _member(nodes, group) as member:
        member.join()
        wait_for(lambda: _has_partitions(member))
        assert member.first().offsets == [0]
        assert member.ack(0, 0, ACCEPT) == 0
    state = ShareState(nodes.bootstrap(1), group, TOPIC)
    assert state.coordinator().node_id == 1
    assert state.batches() == [Batch(0, 0, ACKNOWLEDGED, 1)]
    state.close()


def test_state_that_is_led_elsewhere_goes_over_the_wire(nodes: Nodes, there: ShareState) -> None:
    """Otherwise the request is sent to the leader: initialize, read and write alike."""
    with _member(nodes, there.group) as member:
        member.join()
        wait_for(lambda: _has_partitions(member))
        assert member.first().offsets == [0]
        assert member.ack(0, 0, ACCEPT) == 0
    at_leader = ShareState(nodes.bootstrap(2), there.group, TOPIC)
    assert at_leader.batches() == [Batch(0, 0, ACKNOWLEDGED, 1)]
    at_leader.close()


def test_a_deletion_goes_over_the_wire_as_well(nodes: Nodes, there: ShareState) -> None:
    """`delete` is sent to the leader, too: a deleted group has no state left on any node."""
    with _member(nodes, there.group) as member:
        member.join()
        wait_for(lambda: _has_partitions(member))
        member.leave()
        answer = member.client.ask("delete_groups", 2, DeleteGroupsRequest([there.group]))
        assert answer.results[0].error_code == 0
    at_leader = ShareState(nodes.bootstrap(2), there.group, TOPIC)
    assert at_leader.read().error_code == INVALID_REQUEST
    at_leader.close()


def test_a_coordinator_that_is_away_fails_no_heartbeat(nodes: Nodes, there: ShareState) -> None:
    """Errors of the persister never fail a heartbeat; it is tried again with the next one."""
    there.coordinator()
    nodes.stop(2)
    with _member(nodes, there.group) as member:
        member.join()
        assert not _has_partitions(member)
        nodes.start(2)
        wait_for(lambda: _has_partitions(member))


def test_a_coordinator_that_is_away_fails_the_acknowledgement(
    nodes: Nodes, there: ShareState
) -> None:
    """A write that cannot be sent is an error that the caller gets.

    Differs: so does the member: an acknowledgement that was answered must hold. It can be repeated.
    """
    with _member(nodes, there.group) as member:
        member.join()
        wait_for(lambda: _has_partitions(member))
        assert member.first().offsets == [0]
        nodes.stop(2)
        assert member.ack(0, 0, ACCEPT) == COORDINATOR_NOT_AVAILABLE
        nodes.start(2)
        wait_for(lambda: member.ack(0, 0, ACCEPT) == 0)


def test_a_state_that_cannot_be_read_is_not_an_empty_state(nodes: Nodes, there: ShareState) -> None:
    """A read that fails on the remote path counts as no state, and the window starts empty.

    Differs: the partition delivers nothing until its state can be read, as what was accepted
    would come again otherwise.
    """
    with _member(nodes, there.group) as member:
        member.join()
        wait_for(lambda: _has_partitions(member))
        assert member.first().offsets == [0]
        assert member.ack(0, 0, ACCEPT) == 0
    nodes.stop(2)
    with _member(nodes, there.group) as later:
        assert later.first(max_wait_ms=100).offsets == []
        nodes.start(2)
        with RawClient(nodes.bootstrap()) as client:
            added = client.produce(TOPIC, batch(b"value")).base_offset
        wait_for(lambda: later.acquire(max_wait_ms=200).offsets[:1] == [added])


def test_a_coordinator_that_moved_is_looked_up_again(nodes: Nodes, there: ShareState) -> None:
    """Leadership is looked up for each request."""
    with _member(nodes, there.group) as member:
        member.join()
        wait_for(lambda: _has_partitions(member))
        held = member.first().offsets
        nodes.set_leader(STATE_TOPIC, 1, -1, by=2)
        answers: list[int] = []
        asking = threading.Thread(
            target=lambda: answers.append(member.ack(held[0], held[0], ACCEPT))
        )
        asking.start()
        nodes.set_leader(STATE_TOPIC, 1, 2, by=2)
        asking.join()
        assert answers == [0]


def test_nodes_use_the_listener_that_is_named_for_them(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The leader's endpoint on the inter-broker listener is used, under this node's client id."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    port = listener.getsockname()[1]
    nodes = Nodes(tmp_path_factory.mktemp("listeners"))
    named = {
        "listeners": "PLAINTEXT://127.0.0.1:0,NODES://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NODES:PLAINTEXT",
        "inter.broker.listener.name": "NODES",
    }
    try:
        nodes.start(1, named)
        elsewhere = f"PLAINTEXT://127.0.0.1:1,NODES://127.0.0.1:{port}"
        nodes.start(2, {**named, "advertised.listeners": elsewhere})
        wait_for(lambda: len(nodes.running[1].image.brokers) == 2)
        nodes.make_topics()
        with _member(nodes, nodes.new_group()) as member:
            member.join()
            connection, _ = listener.accept()
            with connection:
                assert b"ottla-node-1" in connection.recv(1000)
    finally:
        nodes.close()
        listener.close()


def _member(nodes: Nodes, group: str) -> ShareMember:
    member = ShareMember(nodes.bootstrap(), group, TOPIC)
    set_group_configs(member.client, group, share_auto_offset_reset="earliest")
    return member


def _has_partitions(member: ShareMember) -> bool:
    """Whether a heartbeat, which always succeeds, brings partitions."""
    answer = member.heartbeat(topics=[member.topic])
    assert answer.error_code == 0, answer
    assert answer.assignment is not None
    return bool(answer.assignment.topic_partitions)
