"""Admin calls on nodes and on who leads partitions."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.client import arguments
from ottla.client.admin.base import AdminBase, by_topic, check_parts
from ottla.client.admin.types import NodeDescription, NodeState, Reassignment
from ottla.client.cluster.connection import Address
from ottla.client.cluster.view import Broker, TopicPartition
from ottla.client.errors import BadArgument, ClientError, check, failure
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.schema.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.wire.schema.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from ottla.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.wire.schema.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.client.cluster.view import Partition

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
# Of our broker's tag; another broker does not send it.
_STATES: Final = {0: NodeState.ACTIVE, 1: NodeState.DRAINING, 2: NodeState.FENCED}


class NodeCalls(AdminBase):
    """Describe and forget nodes, elect leaders, reassign partitions."""

    async def describe_nodes(self) -> list[NodeDescription]:
        """All registered nodes by id, those that are down as well.

        Apache Kafka does not tell how many partitions a node leads, nor its load.

        >>> from ottla import Admin
        >>> async with Admin("127.0.0.1:9092") as admin:
        ...     [(node.broker.id, node.state.value) for node in await admin.describe_nodes()]
        [(1, 'active')]
        """
        request = DescribeClusterRequest(include_fenced_brokers=True, with_state=True)

        async def attempt() -> list[NodeDescription]:
            answer: DescribeClusterResponse = await self._client.send(request, to="any")
            check(answer.error_code, "describe the nodes", answer.error_message)
            return await asyncio.gather(*map(with_load, answer.brokers))

        async def with_load(broker: DescribeClusterBroker) -> NodeDescription:
            """A node tells its own load alone; one that does not answer is described without."""
            if broker.leaders >= 0 and not broker.load and not broker.is_fenced:
                with suppress(ClientError):
                    answer = await self._client.send(request, to=broker.broker_id)
                    rows = {one.broker_id: one for one in answer.brokers}
                    broker = rows.get(broker.broker_id, broker)
            return _described(broker)

        return sorted(await self._client.retry(attempt), key=lambda one: one.broker.id)

    async def forget_node(self, node: int) -> None:
        """Take a node out of the cluster that is down for good; other nodes lead its partitions.

        Raises `KafkaError` if there is no such node, or if it is up.
        """
        request = UnregisterBrokerRequest(arguments.whole("node", node))

        async def attempt() -> None:
            answer: UnregisterBrokerResponse = await self._client.send(request, to="controller")
            check(answer.error_code, f"forget node {node}", answer.error_message)

        await self._client.retry(attempt)

    async def registry_url(self) -> str | None:
        """Where the broker serves a schema registry; None if it does not, or does not say."""
        request = DescribeClusterRequest()

        async def attempt() -> str | None:
            answer: DescribeClusterResponse = await self._client.send(request, to="any")
            check(answer.error_code, "look for the schema registry", answer.error_message)
            return answer.registry_url or None

        return await self._client.retry(attempt)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> list[TopicPartition]:
        """Let partitions be led by their preferred nodes, the first of their replicas.

        With `unclean`, give a leader to those that have none: any node that is up. None stands for
        all partitions. Returns those that have another leader now; raises `PartialFailure` if some
        cannot have one.
        """
        arguments.flag("unclean", unclean)
        topics = None
        if partitions is not None:
            wanted = dict.fromkeys(arguments.partitions("partitions", partitions))
            topics = [TopicPartitions(*one) for one in by_topic(wanted).items()]
        kind = _UNCLEAN if unclean else _PREFERRED
        request = ElectLeadersRequest(kind, topics, self._timeout_ms)

        async def attempt() -> list[TopicPartition]:
            answer: ElectLeadersResponse = await self._client.send(
                request, to="controller", min_version=1 if unclean else 0
            )
            check(answer.error_code, "elect leaders")
            results = {
                TopicPartition(topic.topic, one.partition_id): one
                for topic in answer.replica_election_results
                for one in topic.partition_result
                if one.error_code != ErrorCode.ELECTION_NOT_NEEDED
            }
            check_parts(
                "elect leaders",
                {
                    key: failure(one.error_code, f"elect a leader of {key}", one.error_message)
                    for key, one in results.items()
                },
            )
            return list(results)

        return await self._client.retry(attempt)

    async def reassign_partitions(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> None:
        """Replace the replicas of partitions: the nodes that may lead them, the preferred first.

        The leader moves if it is not among them. None cancels a reassignment that is under way.
        Raises `PartialFailure` if some are refused.

        >>> from ottla import Admin
        >>> async with Admin("127.0.0.1:9092") as admin:
        ...     await admin.reassign_partitions({("orders", 0): [1]})
        """
        wanted = arguments.mapping("replicas", replicas, "lists of nodes by partition")
        nodes = {
            arguments.partition("replicas", key): None
            if given is None
            else arguments.wholes(f"replicas of {key}", given, arguments.INT32)
            for key, given in wanted.items()
        }
        for key, given in nodes.items():
            if given is not None and len(set(given)) < max(1, len(given)):
                raise BadArgument(f"replicas of {key}: expected some nodes, each once, got {given}")
        request = AlterPartitionReassignmentsRequest(
            self._timeout_ms,
            topics=[
                ReassignableTopic(
                    topic,
                    [
                        ReassignablePartition(number, nodes[TopicPartition(topic, number)])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(nodes).items()
            ],
        )

        async def attempt() -> None:
            answer: AlterPartitionReassignmentsResponse = await self._client.send(
                request, to="controller"
            )
            check(answer.error_code, "reassign partitions", answer.error_message)
            check_parts(
                "reassign partitions",
                {
                    key: failure(one.error_code, f"reassign {key}", one.error_message)
                    for topic in answer.responses
                    for one in topic.partitions
                    for key in [TopicPartition(topic.name, one.partition_index)]
                },
            )

        await self._client.retry(attempt)

    async def list_reassignments(self) -> dict[TopicPartition, Reassignment]:
        """The reassignments that are under way; Ottla carries them out at once and has none."""
        request = ListPartitionReassignmentsRequest(self._timeout_ms, None)

        async def attempt() -> dict[TopicPartition, Reassignment]:
            answer: ListPartitionReassignmentsResponse = await self._client.send(
                request, to="controller"
            )
            check(answer.error_code, "list reassignments", answer.error_message)
            return {
                TopicPartition(topic.name, one.partition_index): Reassignment(
                    one.replicas, one.adding_replicas, one.removing_replicas
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._client.retry(attempt)


def led_by(partition: Partition, node: int) -> list[int]:
    """The replicas of a partition if this node led it.

    It takes the place of the leader unless it was among the replicas.
    """
    old = list(partition.replicas)
    if node not in old:
        old.remove(partition.leader if partition.leader in old else old[0])
    return [node, *(one for one in old if one != node)]


def _described(broker: DescribeClusterBroker) -> NodeDescription:
    state = _STATES.get(broker.state)
    if state is None:
        state = NodeState.FENCED if broker.is_fenced else NodeState.ACTIVE
    return NodeDescription(
        Broker(broker.broker_id, Address(broker.host, broker.port), broker.rack),
        state,
        None if broker.leaders < 0 else broker.leaders,
        json.loads(broker.load) if broker.load else None,
    )
