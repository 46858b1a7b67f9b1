"""Three nodes over one metadata file: who leads what, as clients and tools see and change it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker.topics import create_topic, ensure_topic
from ottla.metadata.image import NO_LEADER
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import alter_partition_reassignments as reassign
from ottla.wire.schema import create_partitions as grow
from ottla.wire.schema import create_topics as create
from ottla.wire.schema import elect_leaders as elect
from ottla.wire.schema import incremental_alter_configs as alter
from ottla.wire.schema.describe_cluster import DescribeClusterRequest
from ottla.wire.schema.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.wire.schema.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema.unregister_broker import UnregisterBrokerRequest
from tests.support.raw_client import RawClient
from tests.support.share_nodes import Nodes, three_nodes, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TOPIC = "spread"
BROKER = 4
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with three_nodes(tmp_path) as nodes:
        yield nodes


@pytest.fixture
def client(nodes: Nodes) -> Iterator[RawClient]:
    with RawClient(nodes.bootstrap()) as client:
        yield client


def make(nodes: Nodes, assignments: Sequence[Sequence[int]]) -> None:
    cluster = nodes.running[1].cluster
    nodes.do(lambda: create_topic(cluster, TOPIC, assignments=dict(enumerate(assignments))))


def stop(nodes: Nodes, node: int) -> None:
    nodes.stop(node)
    wait_for(lambda: node not in nodes.running[1].image.alive)


def shown(client: RawClient) -> list[Any]:
    answer = client.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name=TOPIC)]))
    return list(answer.topics[0].partitions)


def leaders(client: RawClient) -> list[int]:
    return [partition.leader_id for partition in shown(client)]


def elected(client: RawClient, kind: int, partitions: list[int] | None) -> dict[int, int]:
    topics = None if partitions is None else [elect.TopicPartitions(TOPIC, partitions)]
    answer = client.ask("elect_leaders", 2, elect.ElectLeadersRequest(kind, topics))
    assert answer.error_code == 0
    return {
        one.partition_id: one.error_code
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }


def reassigned(
    client: RawClient, replicas: dict[int, list[int] | None], *, changes_count: bool = True
) -> dict[int, int]:
    partitions = [reassign.ReassignablePartition(one, to) for one, to in replicas.items()]
    request = reassign.AlterPartitionReassignmentsRequest(
        60_000, changes_count, [reassign.ReassignableTopic(TOPIC, partitions)]
    )
    answer = client.ask("alter_partition_reassignments", 1, request)
    assert answer.error_code == 0
    (topic,) = answer.responses
    return {one.partition_index: one.error_code for one in topic.partitions}


def test_topics_and_coordinators_are_spread(nodes: Nodes, client: RawClient) -> None:
    cluster = nodes.running[1].cluster
    nodes.do(lambda: create_topic(cluster, TOPIC, partitions=6))
    assert Counter(leaders(client)) == {1: 2, 2: 2, 3: 2}
    offsets = nodes.do(lambda: ensure_topic(cluster, CONSUMER_OFFSETS_TOPIC, partitions=50))
    spread = Counter(one.leader for one in offsets.partitions)
    assert sorted(spread.values()) == [16, 17, 17]
    added = grow.CreatePartitionsRequest([grow.CreatePartitionsTopic(TOPIC, 9, None)])
    assert client.ask("create_partitions", 3, added).results[0].error_code == 0
    assert Counter(leaders(client)) == {1: 3, 2: 3, 3: 3}


@pytest.mark.parametrize("factor", [0, 4, -2])
def test_a_replication_factor_is_between_one_and_the_nodes(client: RawClient, factor: int) -> None:
    topic = create.CreatableTopic(TOPIC, 1, factor)
    answer = client.ask("create_topics", 7, create.CreateTopicsRequest([topic]))
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_replicas_are_nodes_that_may_lead(nodes: Nodes, client: RawClient) -> None:
    topic = create.CreatableTopic(TOPIC, 3, 2)
    answer = client.ask("create_topics", 7, create.CreateTopicsRequest([topic]))
    assert (answer.topics[0].error_code, answer.topics[0].replication_factor) == (0, 2)
    for partition in shown(client):
        assert len(set(partition.replica_nodes)) == 2
        assert partition.replica_nodes[0] == partition.leader_id
        assert partition.isr_nodes == partition.replica_nodes
    stop(nodes, 3)
    for partition in shown(client):
        up = [node for node in partition.replica_nodes if node != 3]
        assert list(partition.isr_nodes) == up
        assert set(partition.offline_replicas) == {3} & set(partition.replica_nodes)


@pytest.mark.parametrize("replicas", [[1, 1], [4], [], [1, 9]])
def test_assignments_are_checked(client: RawClient, replicas: list[int]) -> None:
    given = create.CreatableTopic(TOPIC, -1, -1, [create.CreatableReplicaAssignment(0, replicas)])
    answer = client.ask("create_topics", 7, create.CreateTopicsRequest([given]))
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert (
        client.ask(
            "create_topics", 7, create.CreateTopicsRequest([create.CreatableTopic(TOPIC, 1, 1)])
        )
        .topics[0]
        .error_code
        == 0
    )
    assert reassigned(client, {0: replicas}) == {0: ErrorCode.INVALID_REPLICA_ASSIGNMENT}


def test_both_ways_to_describe_a_topic_show_the_same(nodes: Nodes, client: RawClient) -> None:
    make(nodes, [[3, 1], [3], [1]])
    stop(nodes, 3)
    answer = client.ask(
        "describe_topic_partitions",
        0,
        DescribeTopicPartitionsRequest([TopicRequest(TOPIC)], response_partition_limit=10),
    )
    for one, other in zip(shown(client), answer.topics[0].partitions, strict=True):
        assert (one.leader_id, one.replica_nodes, one.isr_nodes, one.offline_replicas) == (
            other.leader_id,
            other.replica_nodes,
            other.isr_nodes,
            other.offline_replicas,
        )


def test_the_preferred_leader_is_elected(nodes: Nodes, client: RawClient) -> None:
    make(nodes, [[1, 2], [2], [3]])
    assert reassigned(client, {0: [2, 1]}) == {0: 0}
    assert leaders(client)[0] == 1, "a leader in the list stays"
    assert elected(client, PREFERRED, [0, 1, 5]) == {
        0: 0,
        1: ErrorCode.ELECTION_NOT_NEEDED,
        5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert leaders(client)[:2] == [2, 2]
    stop(nodes, 3)
    assert elected(client, PREFERRED, [2]) == {2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_an_unclean_election_needs_a_partition_without_a_leader(
    nodes: Nodes, client: RawClient
) -> None:
    make(nodes, [[3], [1], [3, 2]])
    stop(nodes, 3)
    assert leaders(client) == [NO_LEADER, 1, NO_LEADER]
    assert elected(client, UNCLEAN, None) == {0: 0, 2: 0}
    assert leaders(client)[1:] == [1, 2]
    assert leaders(client)[0] in {1, 2}
    assert elected(client, UNCLEAN, [0, 1]) == dict.fromkeys([0, 1], ErrorCode.ELECTION_NOT_NEEDED)


def test_all_preferred_leaders_are_elected_at_once(nodes: Nodes, client: RawClient) -> None:
    make(nodes, [[1, 2], [1, 3], [1]])
    assert reassigned(client, {0: [2, 1], 1: [3, 1]}) == {0: 0, 1: 0}
    assert elected(client, PREFERRED, None) == {0: 0, 1: 0}
    assert leaders(client) == [2, 3, 1]


def test_an_unknown_election_is_refused(nodes: Nodes, client: RawClient) -> None:
    make(nodes, [[1]])
    request = elect.ElectLeadersRequest(2, [elect.TopicPartitions(TOPIC, [0])])
    answer = client.ask("elect_leaders", 2, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.replica_election_results[0].partition_result[0].error_code == 42


def test_what_is_named_twice_is_refused(nodes: Nodes, client: RawClient) -> None:
    make(nodes, [[1, 2], [1]])
    assert elected(client, PREFERRED, [0, 1, 0]) == {
        0: ErrorCode.INVALID_REQUEST,
        1: ErrorCode.ELECTION_NOT_NEEDED,
    }
    twice = [reassign.ReassignablePartition(0, [2]), reassign.ReassignablePartition(0, [3])]
    request = reassign.AlterPartitionReassignmentsRequest(
        topics=[reassign.ReassignableTopic(TOPIC, twice)]
    )
    answer = client.ask("alter_partition_reassignments", 1, request)
    assert [one.error_code for one in answer.responses[0].partitions] == [42]
    assert leaders(client) == [1, 1]


def test_a_reassignment_moves_the_leader_if_it_must(nodes: Nodes, client: RawClient) -> None:
    make(nodes, [[1], [1], [1], [1]])
    assert reassigned(client, {0: [2], 1: [3, 2], 2: None, 9: [1]}) == {
        0: 0,
        1: 0,
        2: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert leaders(client) == [2, 3, 1, 1]
    assert [list(one.replica_nodes) for one in shown(client)[:2]] == [[2], [3, 2]]
    assert reassigned(client, {0: [1, 2]}, changes_count=False) == {
        0: ErrorCode.INVALID_REPLICATION_FACTOR
    }
    listed = client.ask("list_partition_reassignments", 0, ListPartitionReassignmentsRequest())
    assert (listed.error_code, list(listed.topics)) == (0, [])


def test_a_reassignment_to_nodes_that_are_down_keeps_the_leader(
    nodes: Nodes, client: RawClient
) -> None:
    make(nodes, [[1]])
    stop(nodes, 3)
    assert reassigned(client, {0: [3]}) == {0: 0}
    assert leaders(client) == [1]
    (partition,) = shown(client)
    assert (list(partition.replica_nodes), list(partition.isr_nodes)) == ([3], [1])


def test_the_state_of_nodes_is_told_where_it_is_asked_for(nodes: Nodes, client: RawClient) -> None:
    make(nodes, [[1], [1], [2]])
    drain(nodes, 2)
    stop(nodes, 3)
    wait_for(lambda: leaders(client) == [1, 1, 1])
    answer = client.ask("describe_cluster", 2, DescribeClusterRequest(with_state=True))
    states = {one.broker_id: (one.state, one.leaders, one.is_fenced) for one in answer.brokers}
    assert states == {1: (0, 3, False), 2: (1, 0, False), 3: (2, 0, True)}
    own, *others = [one.load for one in sorted(answer.brokers)]
    assert json.loads(own).keys() == {"cpu", "requests", "connections"}
    assert others == ["", ""]  # each node tells its own
    plain = client.ask("describe_cluster", 2, DescribeClusterRequest())
    assert [(one.broker_id, one.state, one.leaders) for one in plain.brokers] == [
        (1, -1, -1),
        (2, -1, -1),
    ]
    fenced = client.ask("describe_cluster", 2, DescribeClusterRequest(include_fenced_brokers=True))
    assert [one.is_fenced for one in fenced.brokers] == [False, False, True]


def drain(nodes: Nodes, node: int, value: str = "true") -> None:
    """Each node takes its own settings, as in Kafka."""
    config = alter.AlterableConfig("ottla.node.drain", 0, value)
    resource = alter.AlterConfigsResource(BROKER, str(node), [config])
    request = alter.IncrementalAlterConfigsRequest([resource])
    with RawClient(nodes.bootstrap(node)) as client:
        answer = client.ask("incremental_alter_configs", 1, request)
    assert answer.responses[0].error_code == 0
    nodes.do(nodes.running[1].metadata.poll)


def test_a_draining_node_loses_its_partitions_and_gets_no_new_ones(
    nodes: Nodes, client: RawClient
) -> None:
    make(nodes, [[1], [2], [3, 2]])
    drain(nodes, 3)
    wait_for(lambda: 3 not in leaders(client))
    cluster = nodes.running[1].cluster
    topic = nodes.do(lambda: create_topic(cluster, "another", partitions=4))
    assert {one.leader for one in topic.partitions} == {1, 2}
    drain(nodes, 3, "false")
    topic = nodes.do(lambda: create_topic(cluster, "third", partitions=3))
    assert {one.leader for one in topic.partitions} == {1, 2, 3}


def test_every_node_changes_who_leads(nodes: Nodes) -> None:
    make(nodes, [[1], [1], [1]])
    for node in (1, 2, 3):
        with RawClient(nodes.bootstrap(node)) as client:
            nodes.do(nodes.running[node].metadata.poll)
            assert reassigned(client, {node - 1: [node]}) == {node - 1: 0}

    async def seen() -> list[list[int]]:
        await asyncio.gather(*(one.metadata.poll() for one in nodes.running.values()))
        return [
            [one.leader for one in node.image.topics_by_name[TOPIC].partitions]
            for node in nodes.running.values()
        ]

    assert nodes.call(seen()) == [[1, 2, 3]] * 3


def forgotten(client: RawClient, node: int) -> int:
    answer = client.ask("unregister_broker", 0, UnregisterBrokerRequest(node))
    code: int = answer.error_code
    return code


def test_a_node_that_is_down_is_forgotten(nodes: Nodes, client: RawClient) -> None:
    make(nodes, [[3], [2, 3], [1]])
    assert forgotten(client, 9) == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert forgotten(client, 3) == ErrorCode.INVALID_REQUEST  # it is up
    stop(nodes, 3)
    assert forgotten(client, 3) == 0
    image = nodes.running[1].image
    assert sorted(image.brokers) == [1, 2]
    found = image.topics_by_name[TOPIC].partitions
    assert {node for one in found for node in one.replicas} == {1, 2}
    assert {one.leader for one in found} == {1, 2}
    assert forgotten(client, 3) == ErrorCode.BROKER_ID_NOT_REGISTERED
