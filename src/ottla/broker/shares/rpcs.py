"""The share coordinator's questions as RPCs: how they are sent to another node, and answered.

One RPC of a kind is under way to a node at a time. What is asked meanwhile waits, and goes out
together: all that is about the same group, each share-partition once, so that the questions about
one share-partition arrive in the order in which they were asked. A response without a
share-partition that was asked about is an error, not an empty state.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from ottla.broker.running.peers import PeerUnreachable
from ottla.coordination.share_state import messages as m
from ottla.coordination.share_state.batches import StateBatch
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import delete_share_group_state as delete
from ottla.wire.schema import initialize_share_group_state as initialize
from ottla.wire.schema import read_share_group_state as read
from ottla.wire.schema import read_share_group_state_summary as summary
from ottla.wire.schema import write_share_group_state as write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.running.peers import Peers
    from ottla.coordination.share_state.records import ShareKey

ReplyT = TypeVar("ReplyT", m.StateResponse, m.ReadStateResponse, m.StateSummaryResponse)
Place: TypeAlias = "tuple[int, type[m.KeyedRequest]]"

MAX_TOGETHER: Final = 1000  # share-partitions in one RPC: its answer is worked out in one go


class _Asked(NamedTuple):
    question: m.KeyedRequest
    answered: asyncio.Future[m.StateReply]


class RemoteCoordinators:
    """The share coordinators on other nodes."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._waiting: dict[Place, list[_Asked]] = {}
        self._sending: dict[Place, asyncio.Task[None]] = {}

    async def ask(self, node_id: int, question: m.KeyedRequest, expect: type[ReplyT]) -> ReplyT:
        """The answer of the coordinator there, or `PeerUnreachable`."""
        place = node_id, type(question)
        asked = _Asked(question, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(place, []).append(asked)
        if place not in self._sending:
            self._sending[place] = asyncio.ensure_future(self._send_all(place))
        answer = await asked.answered
        assert isinstance(answer, expect)
        return answer

    async def _send_all(self, place: Place) -> None:
        try:
            while waiting := self._waiting.pop(place, None):
                together, later = _together(waiting)
                if later:
                    self._waiting[place] = later
                await self._send(place[0], together)
        finally:
            del self._sending[place]

    async def _send(self, node_id: int, together: Sequence[_Asked]) -> None:
        failure = PeerUnreachable(f"node {node_id} was not asked to the end")
        try:
            request, version = _request([asked.question for asked in together])
            response = await self._peers.ask(node_id, request, version)
            answers = {
                (topic.topic_id, partition.partition): _answer(partition)
                for topic in response.results
                for partition in topic.partitions
            }
            for question, answered in together:
                found = answers.get((question.key.topic_id.bytes, question.key.partition))
                if found is not None and not answered.done():
                    answered.set_result(found)
            failure = PeerUnreachable(f"node {node_id} answered without a share-partition")
        except PeerUnreachable as error:
            failure = error
        finally:
            for _, answered in together:
                if not answered.done():
                    answered.set_exception(failure)


def _together(waiting: Sequence[_Asked]) -> tuple[list[_Asked], list[_Asked]]:
    """What goes out with the first of those that wait, and what waits on, in their order."""
    group = waiting[0].question.key.group_id
    keys: set[ShareKey] = set()
    together: list[_Asked] = []
    later: list[_Asked] = []
    for asked in waiting:
        key = asked.question.key
        if key.group_id == group and key not in keys and len(together) < MAX_TOGETHER:
            keys.add(key)
            together.append(asked)
        else:
            later.append(asked)
    return together, later


def _request(questions: Sequence[m.KeyedRequest]) -> tuple[Any, int]:
    """One RPC for questions of one kind about one group, and the version it is sent in."""
    topics: dict[bytes, list[Any]] = {}
    for question in questions:
        topics.setdefault(question.key.topic_id.bytes, []).append(_data(question))
    request, topic, version = _KINDS[type(questions[0])]
    group = questions[0].key.group_id
    return request(group, [topic(topic_id, data) for topic_id, data in topics.items()]), version


_KINDS: Final[dict[type[m.KeyedRequest], tuple[Any, Any, int]]] = {
    m.InitializeState: (
        initialize.InitializeShareGroupStateRequest,
        initialize.InitializeStateData,
        0,
    ),
    m.ReadState: (read.ReadShareGroupStateRequest, read.ReadStateData, 0),
    m.WriteState: (write.WriteShareGroupStateRequest, write.WriteStateData, 1),
    m.DeleteState: (delete.DeleteShareGroupStateRequest, delete.DeleteStateData, 0),
    m.ReadStateSummary: (
        summary.ReadShareGroupStateSummaryRequest,
        summary.ReadStateSummaryData,
        1,
    ),
}


def _data(question: m.KeyedRequest) -> Any:
    partition = question.key.partition
    match question:
        case m.InitializeState():
            return initialize.PartitionData(partition, question.state_epoch, question.start_offset)
        case m.ReadState():
            return read.PartitionData(partition, question.leader_epoch)
        case m.WriteState():
            return write.PartitionData(
                partition,
                question.state_epoch,
                question.leader_epoch,
                question.start_offset,
                question.delivery_complete_count,
                [write.StateBatch(*batch) for batch in question.batches],
            )
        case m.DeleteState():
            return delete.PartitionData(partition)
        case m.ReadStateSummary():
            return summary.PartitionData(partition, m.NO_EPOCH)


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
