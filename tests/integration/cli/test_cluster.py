"""`ottla cluster` and the Admin calls behind it, on three nodes over one metadata file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import ottla
from ottla import NodeState, TopicPartition, sync
from ottla.broker.topics import create_topic
from ottla.cli.whole import app
from ottla.errors import BadArgument, KafkaError, PartialFailure
from ottla.metadata.image import NO_LEADER
from ottla.wire.error_codes import ErrorCode
from tests.support.share_nodes import Nodes, three_nodes, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TOPIC = "orders"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with three_nodes(tmp_path) as nodes:
        yield nodes


@pytest.fixture
def admin(nodes: Nodes) -> Iterator[sync.Admin]:
    with sync.Admin(nodes.bootstrap()) as admin:
        yield admin


def make(nodes: Nodes, assignments: Sequence[Sequence[int]]) -> None:
    cluster = nodes.running[1].cluster
    nodes.call(create_topic(cluster, TOPIC, assignments=dict(enumerate(assignments))))


def stop(nodes: Nodes, node: int) -> None:
    nodes.stop(node)
    wait_for(lambda: node not in nodes.running[1].image.alive)


def leaders(nodes: Nodes) -> list[int]:
    nodes.do(nodes.running[1].metadata.poll)
    topic = nodes.running[1].image.topics_by_name[TOPIC]
    return [one.leader for one in topic.partitions]


def replicas(nodes: Nodes) -> list[tuple[int, ...]]:
    return [one.replicas for one in nodes.running[1].image.topics_by_name[TOPIC].partitions]


def run(nodes: Nodes, *args: str, status: int = 0) -> str:
    found = CliRunner().invoke(app, ["cluster", *args, "--bootstrap", nodes.bootstrap()])
    assert found.exit_code == status, found.output
    return found.output


def value(nodes: Nodes, *args: str, status: int = 0) -> Any:
    return json.loads(run(nodes, *args, "--json", status=status))


def test_the_status_shows_nodes_and_partitions_in_need(nodes: Nodes) -> None:
    make(nodes, [[1], [2, 3], [3]])
    text = run(nodes, "status")
    assert nodes.bootstrap(2) in text
    assert "3 partitions, 0 without a leader, 0 with replicas on nodes that are down" in text
    stop(nodes, 3)
    found = value(nodes, "status", status=1)
    assert [(one["node"], one["state"], one["leaders"]) for one in found["nodes"]] == [
        (1, "active", 1),
        (2, "active", 1),
        (3, "fenced", 0),
    ]
    assert [one["connections"] is not None for one in found["nodes"]] == [True, True, False]
    assert found["without_leader"] == ["orders:2"]
    assert found["with_nodes_down"] == ["orders:1", "orders:2"]


def test_a_partition_is_moved(nodes: Nodes) -> None:
    make(nodes, [[1], [1, 2], [1]])
    assert run(nodes, "move", "orders:0", "2") == "moved orders:0\n"
    assert value(nodes, "move", "orders:1", "2") == [{"topic": "orders", "partition": 1}]
    assert run(nodes, "move", "orders:1", "2") == "nothing to move\n"
    assert leaders(nodes) == [2, 2, 1]
    assert replicas(nodes) == [(2,), (2, 1), (1,)]


def test_all_of_a_node_are_moved(nodes: Nodes) -> None:
    make(nodes, [[1], [1, 2], [3]])
    assert len(value(nodes, "move", "--from", "1", "--to", "3")) == 2
    assert leaders(nodes) == [3, 3, 3]
    assert replicas(nodes) == [(3,), (3, 2), (3,)]


def test_partitions_return_to_their_preferred_nodes(nodes: Nodes) -> None:
    make(nodes, [[1, 2], [1]])
    with sync.Admin(nodes.bootstrap()) as admin:
        admin.reassign_partitions({TopicPartition(TOPIC, 0): [2, 1]})
    assert run(nodes, "move", "--balance") == "moved orders:0\n"
    assert leaders(nodes) == [2, 1]


def test_partitions_of_a_node_that_is_down_are_skipped_by_a_balance(nodes: Nodes) -> None:
    make(nodes, [[1], [1], [1], [1], [3]])
    stop(nodes, 3)
    wait_for(lambda: 3 not in nodes.running[2].image.alive)  # it may be the one that is asked
    text = run(nodes, "move", "--balance")
    assert text.count("moved orders:") == 2
    assert "skipped 1 partitions whose preferred nodes are not active" in text
    assert sorted(leaders(nodes)[:4]) == [1, 1, 2, 2]
    assert replicas(nodes)[4] == (3,)


@pytest.mark.long
def test_leaders_are_spread_over_the_active_nodes(nodes: Nodes) -> None:
    make(nodes, [[3], [3, 1], [3, 2, 1], [3], [3], [3]])
    assert len(value(nodes, "move", "--balance")) == 4
    assert sorted(leaders(nodes)) == [1, 1, 2, 2, 3, 3]
    assert [one[0] for one in replicas(nodes)] == leaders(nodes)
    assert [len(one) for one in replicas(nodes)] == [1, 2, 3, 1, 1, 1]


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        ([], 2, "give TOPIC:PARTITION NODE"),
        (["orders:0"], 2, "give TOPIC:PARTITION and NODE"),
        (["--from", "1"], 2, "give --from and --to"),
        (["orders:0", "2", "--balance"], 2, "give TOPIC:PARTITION NODE"),
        (["orders", "2"], 2, "is not TOPIC:PARTITION"),
        (["orders:7", "2"], 1, "has 1 partitions"),
        (["orders:0", "9"], 1, "there is no node 9; nodes are 1, 2, 3"),
        (["--from", "9", "--to", "1"], 1, "there is no node 9"),
        (["nothing:0", "1"], 1, "nothing"),
    ],
)
def test_what_cannot_be_moved(nodes: Nodes, args: list[str], status: int, said: str) -> None:
    make(nodes, [[1]])
    text = " ".join(run(nodes, "move", *args, status=status).replace("│", " ").split())
    assert said in text


def test_a_node_is_drained_and_comes_back(nodes: Nodes) -> None:
    make(nodes, [[1], [2], [2, 3]])
    assert run(nodes, "drain", "2") == "node 2 leads no partitions\n"
    assert 2 not in leaders(nodes)
    assert [one["state"] for one in value(nodes, "status")["nodes"]][1] == "draining"
    assert run(nodes, "drain", "2", "--back") == "node 2 may lead partitions again\n"
    wait_for(lambda: value(nodes, "status")["nodes"][1]["state"] == "active")


def test_what_cannot_be_drained(nodes: Nodes) -> None:
    make(nodes, [[1]])
    assert "there is no node 7" in run(nodes, "drain", "7", status=1)
    stop(nodes, 3)
    assert "node 3 is down" in run(nodes, "drain", "3", status=1)
    stop(nodes, 2)
    assert "no other node could take over" in run(nodes, "drain", "1", status=1)


def test_a_drain_that_is_not_waited_for_is_not_finished(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(nodes, [[2]])

    async def nothing() -> None:
        pass

    monkeypatch.setattr("ottla.broker.running.balancing.Balancing.run", lambda _: nothing())
    assert "node 2 still leads 1 partitions" in run(nodes, "drain", "2", "--wait", "0", status=3)
    wait_for(lambda: value(nodes, "status")["nodes"][1]["state"] == "draining")


def test_nodes_as_a_client_sees_them(nodes: Nodes, admin: sync.Admin) -> None:
    make(nodes, [[1], [2], [2]])
    stop(nodes, 3)
    found = admin.describe_nodes()
    assert [(one.broker.id, one.state, one.leaders) for one in found] == [
        (1, NodeState.ACTIVE, 1),
        (2, NodeState.ACTIVE, 2),
        (3, NodeState.FENCED, 0),
    ]
    assert str(found[1].broker.address) == nodes.bootstrap(2)
    assert admin.list_reassignments() == {}


def test_elections_by_a_client(nodes: Nodes, admin: sync.Admin) -> None:
    make(nodes, [[3], [1, 2], [2]])
    place = TopicPartition(TOPIC, 1)
    admin.reassign_partitions({place: [2, 1]})
    assert admin.elect_leaders([place, TopicPartition(TOPIC, 2)]) == [place]
    assert admin.elect_leaders() == []
    stop(nodes, 3)
    assert leaders(nodes)[0] == NO_LEADER
    lost = TopicPartition(TOPIC, 0)
    with pytest.raises(KafkaError, match="the preferred leader, is not up") as refused:
        admin.elect_leaders([lost])
    assert refused.value.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert admin.elect_leaders(unclean=True) == [lost]
    assert leaders(nodes)[0] in {1, 2}


def test_reassignments_that_are_refused(nodes: Nodes, admin: sync.Admin) -> None:
    make(nodes, [[1], [1]])
    places = [TopicPartition(TOPIC, index) for index in (0, 1)]
    with pytest.raises(PartialFailure) as failed:
        admin.reassign_partitions({places[0]: [9], places[1]: [2]})
    assert "orders-0" in str(failed.value)
    assert leaders(nodes) == [1, 2]
    with pytest.raises(KafkaError) as none:
        admin.reassign_partitions({places[0]: None})
    assert none.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    for wrong in ([], [1, 1]):
        with pytest.raises(BadArgument, match="some nodes, each once"):
            admin.reassign_partitions({places[0]: wrong})


def test_a_broker_alone_has_one_node() -> None:
    with ottla.EmbeddedBroker() as broker, sync.Admin(broker.bootstrap) as admin:
        broker.create_topic(TOPIC, partitions=3)
        (only,) = admin.describe_nodes()
        assert (only.broker.id, only.state, only.leaders) == (1, NodeState.ACTIVE, 3)
        found = CliRunner().invoke(app, ["cluster", "status", "--bootstrap", broker.bootstrap])
        assert found.exit_code == 0, found.output


def test_a_node_that_is_down_is_forgotten(nodes: Nodes) -> None:
    make(nodes, [[1], [3]])
    assert "node 3 is up; stop it" in run(nodes, "forget", "3", status=1)
    assert "there is no node 9; nodes are 1, 2, 3" in run(nodes, "forget", "9", status=1)
    stop(nodes, 3)
    assert run(nodes, "forget", "3") == "node 3 is forgotten\n"
    assert [one["node"] for one in value(nodes, "status")["nodes"]] == [1, 2]
    assert 3 not in leaders(nodes)
    stop(nodes, 2)
    assert value(nodes, "forget", "2") == {"node": 2, "forgotten": True}
