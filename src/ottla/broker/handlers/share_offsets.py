"""DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91) and DeleteShareGroupOffsets (92).

Describe returns the share coordinator's state: the start offset, and from v1 the lag (KIP-1226),
the number of records below the high watermark that are not settled. Only the partition's leader
knows how many records members hold: the coordinator asks it by the same API, with a tagged field,
and returns the number in another one. With `window_runs` it returns the window as well: the state
of each record between start and end, who holds it and for how long, for the first 64 partitions of
a request. All these fields are Ottla's own. Alter and delete need an empty group;
altering resets a share-partition's state to the given offset.

Permissions: to describe, describe on the group and on each topic, or cluster action for nodes; to
alter, read on both; to delete, delete on the group and read on each topic.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.errors import ApiError
from ottla.broker.running.peers import PeerUnreachable
from ottla.broker.serving.context import refusal
from ottla.coordination.groups import share_messages as m
from ottla.coordination.share_state import messages as state_messages
from ottla.coordination.share_state.records import ShareKey
from ottla.log.errors import LogError
from ottla.metadata.image import NO_LEADER
from ottla.metadata.security.acls import Operation, Resource
from ottla.sharing.describing import Held
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import alter_share_group_offsets as alter
from ottla.wire.schema import delete_share_group_offsets as delete
from ottla.wire.schema import describe_share_group_offsets as describe
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.running.peers import Peers
    from ottla.broker.running.services import Lazy
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.shares.partitions import LedSharePartitions
    from ottla.broker.shares.persister import Persister

DESCRIBE, READ, TOPIC = Operation.DESCRIBE, Operation.READ, Resource.TOPIC
UNKNOWN = -1
LATEST = -1  # the timestamp for the end
MOST_WINDOWS: Final = 64
"""Partitions of a request that are described with their windows: 4 MB of response at most."""


class Windows:
    """How many runs of a window the next partition of a request gets."""

    __slots__ = ("_left", "_runs")

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._left = MOST_WINDOWS

    def take(self) -> int:
        if self._runs <= 0 or self._left == 0:
            return 0
        self._left -= 1
        return self._runs


class Leaders(NamedTuple):
    """Values that only the leader of a partition knows; it may be another node."""

    cluster: Cluster
    partitions: Partitions
    shares: Lazy[LedSharePartitions]
    peers: Lazy[Peers]

    async def held(self, key: ShareKey, topic: str, runs: int) -> Held:
        """What members hold, with so many runs of the window; unknown if the leader is away."""
        leader = self.cluster.image.topics_by_name[topic].partitions[key.partition].leader
        if leader == self.cluster.node_id:
            return self.shares().held(key.group_id, key.topic_id.bytes, key.partition, runs)
        asked = describe.DescribeShareGroupOffsetsRequestTopic(topic, [key.partition])
        group = describe.DescribeShareGroupOffsetsRequestGroup(key.group_id, [asked])
        request = describe.DescribeShareGroupOffsetsRequest(
            [group], from_leader=True, window_runs=runs
        )
        try:
            answer = await self.peers().ask(leader, request, 1)
        except PeerUnreachable:
            return Held(UNKNOWN)
        row: describe.DescribeShareGroupOffsetsResponsePartition
        row = answer.groups[0].topics[0].partitions[0]
        return Held(
            row.in_flight,
            row.window,
            row.members,
            row.end_offset,
            row.window_cut,
            row.stalled_ms,
        )

    async def end_offset(self, topic: str, index: int) -> int:
        """The high watermark."""
        found = self.cluster.image.topic(topic)
        leader = NO_LEADER if found is None else found.partitions[index].leader
        if leader in (NO_LEADER, self.cluster.node_id):
            return (await self.partitions.open(topic, index)).log.high_watermark
        asked = ListOffsetsTopic(topic, [ListOffsetsPartition(index, UNKNOWN, LATEST)])
        try:
            answer = await self.peers().ask(leader, ListOffsetsRequest(UNKNOWN, 0, [asked]), 1)
        except PeerUnreachable as error:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)) from error
        row = answer.topics[0].partitions[0]
        if row.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(row.error_code))
        end: int = row.offset
        return end


async def describe_share_group_offsets(
    context: RequestContext,
    request: describe.DescribeShareGroupOffsetsRequest,
    cluster: Cluster,
    partitions: Partitions,
    groups: Lazy[GroupService],
    persister: Lazy[Persister],
    shares: Lazy[LedSharePartitions],
    peers: Lazy[Peers],
) -> describe.DescribeShareGroupOffsetsResponse:
    described = []
    leaders = Leaders(cluster, partitions, shares, peers)
    windows = Windows(request.window_runs)
    for group in request.groups:
        try:
            if request.from_leader:
                context.require_cluster(Operation.CLUSTER_ACTION)
                described.append(_held_here(cluster, shares(), group, request.window_runs))
            else:
                context.require(Operation.DESCRIBE, Resource.GROUP, group.group_id)
                described.append(
                    await _describe(context, leaders, groups(), persister(), group, windows)
                )
        except ApiError as error:
            described.append(
                describe.DescribeShareGroupOffsetsResponseGroup(
                    group.group_id, error_code=error.code, error_message=str(error)
                )
            )
    return describe.DescribeShareGroupOffsetsResponse(groups=described)


def _held_here(
    cluster: Cluster,
    shares: LedSharePartitions,
    asked: describe.DescribeShareGroupOffsetsRequestGroup,
    runs: int,
) -> describe.DescribeShareGroupOffsetsResponseGroup:
    """Answer the coordinator: which records members hold."""
    topics = []
    for topic in asked.topics or ():
        found = cluster.image.topic(topic.topic_name)
        topic_id = _id_bytes(None if found is None else found.topic_id)
        rows = [
            describe.DescribeShareGroupOffsetsResponsePartition(
                index,
                UNKNOWN,
                **shares.held(asked.group_id, topic_id, index, runs)._asdict(),
            )
            for index in topic.partitions
        ]
        topics.append(
            describe.DescribeShareGroupOffsetsResponseTopic(topic.topic_name, topic_id, rows)
        )
    return describe.DescribeShareGroupOffsetsResponseGroup(asked.group_id, topics)


async def _describe(
    context: RequestContext,
    leaders: Leaders,
    groups: GroupService,
    persister: Persister,
    asked: describe.DescribeShareGroupOffsetsRequestGroup,
    windows: Windows,
) -> describe.DescribeShareGroupOffsetsResponseGroup:
    wanted = None
    hidden = []
    if asked.topics is not None:
        hidden = [t for t in asked.topics if not context.may(DESCRIBE, TOPIC, t.topic_name)]
        wanted = tuple(
            (topic.topic_name, tuple(topic.partitions))
            for topic in asked.topics
            if topic not in hidden
        )
    answer = await groups.ask(
        asked.group_id,
        m.DescribeShareOffsets(asked.group_id, groups.topics, wanted),
        m.DescribeShareOffsetsResponse,
    )
    topics: dict[str, list[describe.DescribeShareGroupOffsetsResponsePartition]] = defaultdict(list)
    ids: dict[str, bytes] = {}
    for partition in answer.partitions:
        if wanted is None and not context.sees(TOPIC, partition.topic):
            continue
        ids[partition.topic] = _id_bytes(partition.topic_id)
        topics[partition.topic].append(
            await _summed_up(leaders, groups, persister, asked.group_id, partition, windows)
        )
    return describe.DescribeShareGroupOffsetsResponseGroup(
        asked.group_id,
        [
            describe.DescribeShareGroupOffsetsResponseTopic(name, ids[name], partitions)
            for name, partitions in topics.items()
        ]
        + [_hidden(topic) for topic in hidden],
        answer.error,
    )


def _hidden(
    asked: describe.DescribeShareGroupOffsetsRequestTopic,
) -> describe.DescribeShareGroupOffsetsResponseTopic:
    error = refusal(DESCRIBE, TOPIC, asked.topic_name)
    row = describe.DescribeShareGroupOffsetsResponsePartition
    return describe.DescribeShareGroupOffsetsResponseTopic(
        asked.topic_name,
        partitions=[
            row(index, UNKNOWN, 0, UNKNOWN, error.code, str(error)) for index in asked.partitions
        ],
    )


async def _summed_up(
    leaders: Leaders,
    groups: GroupService,
    persister: Persister,
    group_id: str,
    partition: m.SharePartition,
    windows: Windows,
) -> describe.DescribeShareGroupOffsetsResponsePartition:
    row = describe.DescribeShareGroupOffsetsResponsePartition
    if not partition.has_state or partition.topic_id is None:
        return row(partition.partition, UNKNOWN, 0, UNKNOWN)
    key = ShareKey(group_id, partition.topic_id, partition.partition)
    answer = await persister.ask(
        state_messages.ReadStateSummary(key, groups.topics),
        state_messages.StateSummaryResponse,
    )
    if answer.error != ErrorCode.NONE:
        return row(partition.partition, UNKNOWN, 0, UNKNOWN, answer.error, answer.message or None)
    try:
        end = await leaders.end_offset(partition.topic, partition.partition)
    except (ApiError, LogError) as error:
        return row(partition.partition, UNKNOWN, 0, UNKNOWN, error.code, str(error))
    return row(
        partition.partition,
        answer.start_offset,
        answer.leader_epoch,
        answer.lag(end),
        delivery_complete_count=answer.delivery_complete_count,
        **(await leaders.held(key, partition.topic, windows.take()))._asdict(),
    )


async def alter_share_group_offsets(
    context: RequestContext,
    request: alter.AlterShareGroupOffsetsRequest,
    groups: Lazy[GroupService],
) -> alter.AlterShareGroupOffsetsResponse:
    hidden = [t for t in request.topics if not context.may(READ, TOPIC, t.topic_name)]
    starts = tuple(
        m.ShareStart(topic.topic_name, partition.partition_index, partition.start_offset)
        for topic in request.topics
        if topic not in hidden
        for partition in topic.partitions
    )
    try:
        context.require(READ, Resource.GROUP, request.group_id)
        answer = await groups().ask(
            request.group_id,
            m.AlterShareOffsets(request.group_id, groups().topics, starts),
            m.AlterShareOffsetsResponse,
        )
    except ApiError as error:
        return alter.AlterShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
    topics: dict[str, list[alter.AlterShareGroupOffsetsResponsePartition]] = defaultdict(list)
    ids: dict[str, bytes] = {}
    for topic, topic_id, index, error_code in answer.partitions:
        ids[topic] = _id_bytes(topic_id)
        topics[topic].append(alter.AlterShareGroupOffsetsResponsePartition(index, error_code))
    for refused in hidden if answer.error == ErrorCode.NONE else ():
        ids[refused.topic_name] = ZERO_UUID
        topics[refused.topic_name] = [
            alter.AlterShareGroupOffsetsResponsePartition(
                row.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            for row in refused.partitions
        ]
    return alter.AlterShareGroupOffsetsResponse(
        error_code=answer.error,
        responses=[
            alter.AlterShareGroupOffsetsResponseTopic(name, ids[name], partitions)
            for name, partitions in topics.items()
        ],
    )


async def delete_share_group_offsets(
    context: RequestContext,
    request: delete.DeleteShareGroupOffsetsRequest,
    groups: Lazy[GroupService],
) -> delete.DeleteShareGroupOffsetsResponse:
    asked = [topic.topic_name for topic in request.topics]
    names = tuple(name for name in asked if context.may(READ, TOPIC, name))
    try:
        context.require(Operation.DELETE, Resource.GROUP, request.group_id)
        answer = await groups().ask(
            request.group_id,
            m.DeleteShareOffsets(request.group_id, groups().topics, names),
            m.DeleteShareOffsetsResponse,
        )
    except ApiError as error:
        return delete.DeleteShareGroupOffsetsResponse(
            error_code=error.code, error_message=str(error)
        )
    return delete.DeleteShareGroupOffsetsResponse(
        error_code=answer.error,
        responses=[
            delete.DeleteShareGroupOffsetsResponseTopic(topic, _id_bytes(topic_id), error_code)
            for topic, topic_id, error_code in answer.topics
        ]
        + [
            delete.DeleteShareGroupOffsetsResponseTopic(
                name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            for name in asked
            if name not in names and answer.error == ErrorCode.NONE
        ],
    )


def _id_bytes(topic_id: UUID | None) -> bytes:
    return ZERO_UUID if topic_id is None else topic_id.bytes
