"""Who leads, and who may: ElectLeaders (43), AlterPartitionReassignments (45),
ListPartitionReassignments (46), UnregisterBroker (64).

Replicas are the nodes that may lead a partition, the preferred one first; there are no copies to
be made, so what is asked for is one change of the metadata, and the log follows by a rename.

- ElectLeaders, preferred (0): the partition moves to the first of its replicas; 80 if that node is
  down, 84 if it leads already. Unclean (1): a partition without a leader gets one, any node that is
  up; 84 if it has one, 83 if no node is up. Without topics all partitions are meant, and those that
  are 84 are left out. Before v1 there is only the preferred election.
- AlterPartitionReassignments replaces the replicas. The leader moves if it is not among them and
  one of them is up. It is done with the answer: there is nothing to be cancelled (85), and nothing
  is ever listed. Empty, repeated or unknown nodes are 39; another number of replicas is 38 where
  the request does not allow it.
- Both answer each partition by itself, and change all that they can in one step. A partition that
  is named twice is refused (42).
- UnregisterBroker takes a node that is down out of the cluster: other nodes lead its partitions,
  their logs follow, and no list of replicas names it any more. 102 if there is no such node, 42 if
  it is up. A node that is started again registers again.
- Elections, reassignments and the end of a node need alter on the cluster, the list needs describe.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.errors import ApiError
from ottla.broker.topics import decided
from ottla.cluster.placement import Place, decide_leaders, partitions
from ottla.metadata.changes.topics import Leadership, SetLeaders
from ottla.metadata.image import NO_LEADER
from ottla.metadata.security.acls import Operation
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.schema.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.wire.schema.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.serving.context import RequestContext
    from ottla.metadata.changes.apply import Change
    from ottla.metadata.image import MetadataImage, Partition, Topic

    # Says what to change of a partition, or raises an `ApiError`.
    Rule = Callable[[MetadataImage, Place, Partition], Leadership]


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class Named(NamedTuple):
    """A partition as requests name it."""

    topic: str
    partition: int


class Outcome(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


async def elect_leaders(
    context: RequestContext, request: ElectLeadersRequest, cluster: Cluster
) -> ElectLeadersResponse:
    named = [
        Named(topic.topic, partition)
        for topic in request.topic_partitions or ()
        for partition in topic.partitions
    ]
    try:
        context.require_cluster(Operation.ALTER)
        try:
            rule = _RULES[Election(request.election_type)]
        except ValueError:
            text = f"Election type {request.election_type}: 0 (preferred) or 1 (unclean)."
            raise ApiError(ErrorCode.INVALID_REQUEST, text) from None
        wants_all = request.topic_partitions is None
        repeated = _repeated(named)
        rules = {one: rule for one in named if one not in repeated}
        outcomes = await _changed(cluster, None if wants_all else rules, rule)
    except ApiError as error:
        refused = dict.fromkeys(named, Outcome(error.code, str(error)))
        return ElectLeadersResponse(
            error_code=error.code, replica_election_results=_elections(refused)
        )
    if wants_all:
        outcomes = {
            one: outcome
            for one, outcome in outcomes.items()
            if outcome.code != ErrorCode.ELECTION_NOT_NEEDED
        }
    outcomes |= dict.fromkeys(repeated, _TWICE)
    return ElectLeadersResponse(replica_election_results=_elections(outcomes))


async def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest, cluster: Cluster
) -> AlterPartitionReassignmentsResponse:
    asked = [
        (Named(topic.name, one.partition_index), one.replicas)
        for topic in request.topics
        for one in topic.partitions
    ]
    same_count = not request.allow_replication_factor_change
    rules = {one: _reassigned(replicas, same_count=same_count) for one, replicas in asked}
    repeated = _repeated(one for one, _ in asked)
    for one in repeated:
        del rules[one]
    try:
        context.require_cluster(Operation.ALTER)
        outcomes = await _changed(cluster, rules)
    except ApiError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=error.code,
            error_message=str(error),
            responses=_reassignments({one: Outcome(error.code) for one, _ in asked}),
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=_reassignments({**outcomes, **dict.fromkeys(repeated, _TWICE)}),
    )


def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        context.require_cluster(Operation.DESCRIBE)
    except ApiError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    return ListPartitionReassignmentsResponse(error_message=None)


async def unregister_broker(
    context: RequestContext, request: UnregisterBrokerRequest, cluster: Cluster
) -> UnregisterBrokerResponse:
    # Not needed by elections and reassignments.
    from ottla.broker.membership.retirement import retired

    node_id = request.broker_id

    def decide(image: MetadataImage) -> Sequence[Change]:
        broker = image.brokers.get(node_id)
        if broker is None:
            text = f"There is no node {node_id}; nodes are {sorted(image.brokers)}."
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
        if not broker.fenced:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Node {node_id} is up; stop it first.")
        return retired(image, [node_id])

    try:
        context.require_cluster(Operation.ALTER)
        await decided(cluster, decide)
    except ApiError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=str(error))
    return UnregisterBrokerResponse(error_message=None)


async def _changed(
    cluster: Cluster, rules: Mapping[Named, Rule] | None, of_all: Rule | None = None
) -> dict[Named, Outcome]:
    """Carry out the rule of each partition, all that are possible in one change.

    Without `rules` the rule `of_all` counts for all partitions.
    """
    outcomes: dict[Named, Outcome] = {}

    def decide(image: MetadataImage) -> list[Change]:
        outcomes.clear()
        found: list[Leadership] = []
        for one, place, partition, rule in _to_change(image, rules, of_all):
            try:
                if place is None or partition is None:
                    text = f"Partition {one.topic}-{one.partition} does not exist."
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
                found.append(rule(image, place, partition))
                outcomes[one] = Outcome()
            except ApiError as error:
                outcomes[one] = Outcome(error.code, str(error))
        return [SetLeaders(tuple(found))] if found else []

    await decided(cluster, decide)
    return outcomes


def _to_change(
    image: MetadataImage, rules: Mapping[Named, Rule] | None, of_all: Rule | None
) -> Iterable[tuple[Named, Place | None, Partition | None, Rule]]:
    if rules is None:
        assert of_all is not None
        for topic, place, partition in partitions(image):
            yield Named(topic.name, place.partition), place, partition, of_all
        return
    for one, rule in rules.items():
        found: Topic | None = image.topic(one.topic)
        if found is None or not 0 <= one.partition < len(found.partitions):
            yield one, None, None, rule
        else:
            place = Place(found.topic_id, one.partition)
            yield one, place, found.partitions[one.partition], rule


def _preferred(image: MetadataImage, place: Place, partition: Partition) -> Leadership:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"Node {preferred} leads it already.")
    if preferred not in image.alive:
        text = f"Node {preferred}, the preferred leader, is not up."
        raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
    return Leadership(*place, preferred, None, partition.partition_epoch)


def _unclean(image: MetadataImage, place: Place, partition: Partition) -> Leadership:
    if partition.leader != NO_LEADER:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"Node {partition.leader} leads it.")
    found = decide_leaders(image, [place])
    if not found:
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No node is up.")
    return found[0]


_RULES: Mapping[Election, Rule] = {Election.PREFERRED: _preferred, Election.UNCLEAN: _unclean}


def _reassigned(replicas: Sequence[int] | None, *, same_count: bool) -> Rule:
    def rule(image: MetadataImage, place: Place, partition: Partition) -> Leadership:
        if replicas is None:
            text = "A reassignment is done at once; none can be cancelled."
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, text)
        known = image.brokers.keys()
        if not replicas or len(set(replicas)) < len(replicas) or not known >= set(replicas):
            text = f"Replicas are some of nodes {sorted(known)}, each once, not {list(replicas)}."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        if same_count and len(replicas) != len(partition.replicas):
            text = (
                f"{len(replicas)} replicas instead of {len(partition.replicas)}, "
                "and the request does not allow another number."
            )
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        leader = None
        if partition.leader not in replicas:
            leader = next((node for node in replicas if node in image.alive), None)
        return Leadership(*place, leader, tuple(replicas), partition.partition_epoch)

    return rule


_TWICE = Outcome(ErrorCode.INVALID_REQUEST, "The partition is named more than once.")


def _repeated(named: Iterable[Named]) -> set[Named]:
    return {one for one, count in Counter(named).items() if count > 1}


def _by_topic(outcomes: Mapping[Named, Outcome]) -> dict[str, list[tuple[int, Outcome]]]:
    topics: dict[str, list[tuple[int, Outcome]]] = {}
    for one, outcome in outcomes.items():
        topics.setdefault(one.topic, []).append((one.partition, outcome))
    return topics


def _reassignments(outcomes: Mapping[Named, Outcome]) -> list[ReassignableTopicResponse]:
    return [
        ReassignableTopicResponse(
            topic,
            [ReassignablePartitionResponse(index, *outcome) for index, outcome in results],
        )
        for topic, results in _by_topic(outcomes).items()
    ]


def _elections(outcomes: Mapping[Named, Outcome]) -> list[ReplicaElectionResult]:
    return [
        ReplicaElectionResult(
            topic, [PartitionResult(index, *outcome) for index, outcome in results]
        )
        for topic, results in _by_topic(outcomes).items()
    ]
