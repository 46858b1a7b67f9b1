"""The share coordinator's questions as RPCs: how one is sent to another node, and read from it.

Each question is about one share-partition; an RPC could carry many, and those that come in are
taken apart by the handlers. A response without our partition is an error, not an empty state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.peers import PeerUnreachable
from ottla.coordination.share import state_messages as m
from ottla.coordination.share.batches import StateBatch
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import delete_share_group_state as delete
from ottla.wire.schema import initialize_share_group_state as initialize
from ottla.wire.schema import read_share_group_state as read
from ottla.wire.schema import read_share_group_state_summary as summary
from ottla.wire.schema import write_share_group_state as write

if TYPE_CHECKING:
    from ottla.broker.peers import Peers

ReplyT = TypeVar("ReplyT", m.StateResponse, m.ReadStateResponse, m.StateSummaryResponse)


async def ask_remotely(
    peers: Peers, node_id: int, question: m.KeyedRequest, expect: type[ReplyT]
) -> ReplyT:
    """Ask the coordinator on another node."""
    request, version = _request(question)
    response = await peers.ask(node_id, request, version)
    topic_id = question.key.topic_id.bytes
    for topic in response.results:
        for partition in topic.partitions:
            if (topic.topic_id, partition.partition) == (topic_id, question.key.partition):
                answer = _answer(partition)
                assert isinstance(answer, expect)
                return answer
    raise PeerUnreachable(f"node {node_id} answered without {question.key}")


def _request(question: m.KeyedRequest) -> tuple[Any, int]:
    """The RPC of a question, and the version it is sent in."""
    group, topic_id, partition = question.key
    data: Any
    match question:
        case m.InitializeState():
            data = initialize.PartitionData(partition, question.state_epoch, question.start_offset)
            topics = [initialize.InitializeStateData(topic_id.bytes, [data])]
            return initialize.InitializeShareGroupStateRequest(group, topics), 0
        case m.ReadState():
            data = read.PartitionData(partition, question.leader_epoch)
            asked = [read.ReadStateData(topic_id.bytes, [data])]
            return read.ReadShareGroupStateRequest(group, asked), 0
        case m.WriteState():
            data = write.PartitionData(
                partition,
                question.state_epoch,
                question.leader_epoch,
                question.start_offset,
                question.delivery_complete_count,
                [write.StateBatch(*batch) for batch in question.batches],
            )
            written = [write.WriteStateData(topic_id.bytes, [data])]
            return write.WriteShareGroupStateRequest(group, written), 1
        case m.DeleteState():
            data = delete.PartitionData(partition)
            deleted = [delete.DeleteStateData(topic_id.bytes, [data])]
            return delete.DeleteShareGroupStateRequest(group, deleted), 0
        case m.ReadStateSummary():
            data = summary.PartitionData(partition, m.NO_EPOCH)
            summed = [summary.ReadStateSummaryData(topic_id.bytes, [data])]
            return summary.ReadShareGroupStateSummaryRequest(group, summed), 1


def _answer(result: Any) -> m.StateReply:
    error = ErrorCode(result.error_code)
    match result:
        case read.PartitionResult():
            return m.ReadStateResponse(
                error,
                result.error_message,
                result.state_epoch,
                result.start_offset,
                tuple(StateBatch(*batch) for batch in result.state_batches),
            )
        case summary.PartitionResult():
            return m.StateSummaryResponse(
                error,
                result.error_message,
                result.state_epoch,
                result.leader_epoch,
                result.start_offset,
                result.delivery_complete_count,
            )
    return m.StateResponse(error, result.error_message)
