"""The share coordinator's RPCs between nodes: Initialize (83), Read (84), Write (85), Delete (86)
and ReadSummary (87) ShareGroupState.

A request may contain many share-partitions, each with its own result. A share-partition whose
coordinator is on another node gets NOT_COORDINATOR. Needs cluster action; without it each partition
is 31.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ottla.broker.errors import ApiError
from ottla.coordination.share_state import messages as m
from ottla.coordination.share_state.batches import StateBatch
from ottla.coordination.share_state.records import ShareKey
from ottla.metadata.security.acls import Operation
from ottla.wire.schema import delete_share_group_state as delete
from ottla.wire.schema import initialize_share_group_state as initialize
from ottla.wire.schema import read_share_group_state as read
from ottla.wire.schema import read_share_group_state_summary as summary
from ottla.wire.schema import write_share_group_state as write

if TYPE_CHECKING:
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.running.services import Lazy
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.shares.persister import Persister

ReplyT = TypeVar("ReplyT", m.StateResponse, m.ReadStateResponse, m.StateSummaryResponse)


async def initialize_share_group_state(
    context: RequestContext,
    request: initialize.InitializeShareGroupStateRequest,
    groups: Lazy[GroupService],
    persister: Lazy[Persister],
) -> initialize.InitializeShareGroupStateResponse:
    results = []
    for topic in request.topics if request.group_id else ():
        partitions = []
        for data in topic.partitions:
            question = m.InitializeState(
                _key(request.group_id, topic.topic_id, data.partition),
                groups().topics,
                data.state_epoch,
                data.start_offset,
            )
            answer = await _ask(context, persister, question, m.StateResponse)
            partitions.append(
                initialize.PartitionResult(data.partition, answer.error, answer.message)
            )
        results.append(initialize.InitializeStateResult(topic.topic_id, partitions))
    return initialize.InitializeShareGroupStateResponse(results)


async def read_share_group_state(
    context: RequestContext,
    request: read.ReadShareGroupStateRequest,
    groups: Lazy[GroupService],
    persister: Lazy[Persister],
) -> read.ReadShareGroupStateResponse:
    results = []
    for topic in request.topics if request.group_id else ():
        partitions = []
        for data in topic.partitions:
            question = m.ReadState(
                _key(request.group_id, topic.topic_id, data.partition),
                groups().topics,
                data.leader_epoch,
            )
            answer = await _ask(context, persister, question, m.ReadStateResponse)
            partitions.append(
                read.PartitionResult(
                    data.partition,
                    answer.error,
                    answer.message,
                    answer.state_epoch,
                    answer.start_offset,
                    [read.StateBatch(*batch) for batch in answer.batches],
                )
            )
        results.append(read.ReadStateResult(topic.topic_id, partitions))
    return read.ReadShareGroupStateResponse(results)


async def write_share_group_state(
    context: RequestContext,
    request: write.WriteShareGroupStateRequest,
    groups: Lazy[GroupService],
    persister: Lazy[Persister],
) -> write.WriteShareGroupStateResponse:
    results = []
    for topic in request.topics if request.group_id else ():
        partitions = []
        for data in topic.partitions:
            question = m.WriteState(
                _key(request.group_id, topic.topic_id, data.partition),
                groups().topics,
                data.state_epoch,
                data.leader_epoch,
                data.start_offset,
                tuple(StateBatch(*batch) for batch in data.state_batches),
                data.delivery_complete_count,
            )
            answer = await _ask(context, persister, question, m.StateResponse)
            partitions.append(write.PartitionResult(data.partition, answer.error, answer.message))
        results.append(write.WriteStateResult(topic.topic_id, partitions))
    return write.WriteShareGroupStateResponse(results)


async def delete_share_group_state(
    context: RequestContext,
    request: delete.DeleteShareGroupStateRequest,
    persister: Lazy[Persister],
) -> delete.DeleteShareGroupStateResponse:
    results = []
    for topic in request.topics if request.group_id else ():
        partitions = []
        for data in topic.partitions:
            question = m.DeleteState(_key(request.group_id, topic.topic_id, data.partition))
            answer = await _ask(context, persister, question, m.StateResponse)
            partitions.append(delete.PartitionResult(data.partition, answer.error, answer.message))
        results.append(delete.DeleteStateResult(topic.topic_id, partitions))
    return delete.DeleteShareGroupStateResponse(results)


async def read_share_group_state_summary(
    context: RequestContext,
    request: summary.ReadShareGroupStateSummaryRequest,
    groups: Lazy[GroupService],
    persister: Lazy[Persister],
) -> summary.ReadShareGroupStateSummaryResponse:
    results = []
    for topic in request.topics if request.group_id else ():
        partitions = []
        for data in topic.partitions:
            question = m.ReadStateSummary(
                _key(request.group_id, topic.topic_id, data.partition), groups().topics
            )
            answer = await _ask(context, persister, question, m.StateSummaryResponse)
            partitions.append(
                summary.PartitionResult(
                    data.partition,
                    answer.error,
                    answer.message,
                    answer.state_epoch,
                    answer.leader_epoch,
                    answer.start_offset,
                    answer.delivery_complete_count,
                )
            )
        results.append(summary.ReadStateSummaryResult(topic.topic_id, partitions))
    return summary.ReadShareGroupStateSummaryResponse(results)


def _key(group_id: str, topic_id: bytes, partition: int) -> ShareKey:
    return ShareKey(group_id, UUID(bytes=topic_id), partition)


async def _ask(
    context: RequestContext,
    persister: Lazy[Persister],
    question: m.KeyedRequest,
    expect: type[ReplyT],
) -> ReplyT:
    """This node's coordinator, or the error if this node does not coordinate the key."""
    try:
        context.require_cluster(Operation.CLUSTER_ACTION)
        return await persister().coordinators.ask(str(question.key), question, expect)
    except ApiError as error:
        return expect(error.code, str(error))
