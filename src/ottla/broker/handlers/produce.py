"""Produce (0): append batches.

- Partitions are independent: one that is refused does not affect the others.
- acks=all answers when the batches are durable (or written, with ottla.flush.mode=os); requests
  that a client sends meanwhile are appended meanwhile, so that one sync serves them all;
  acks=1 when they are written; acks=0 is not answered, and an error closes the connection so that
  the client learns of it.
- A batch that opens a transaction waits until the transaction's coordinator knows of it, and so do
  later requests of its connection (`admission`). Requests without transactional batches, or with
  batches of open transactions, do not wait.
- Invalid batches are refused (`ottla.log.validate`). If checking a batch takes long, a worker does
  it; later requests of the connection wait until the batch is appended.
- A request with more than `TURN_BYTES` of batches is appended in several turns of the loop.
- A repeated batch of an idempotent producer is answered with the offsets it got the first time.
- A partition's log is opened, or created, with the first batch; the request waits for that, and so
  do later requests of its connection. The logs that these need are opened meanwhile.
- Topics are named up to v12 and identified by id in v13.
- From v10 on the answer for a partition that another node leads names that node
  (`ottla.broker.handlers.leaders`).
- Needs write on each topic; batches of a transaction also write on the transactional id of the
  request: without it all partitions are 53. Who may not write to a topic does not learn whether it
  exists. Logs of such topics are not opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.broker.access.everything import EVERYTHING
from ottla.broker.errors import ApiError
from ottla.broker.handlers.appending import (
    ACKS_ALL,
    ACKS_NONE,
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_LEADERS,
    Produced,
    refused_row,
)
from ottla.broker.handlers.leaders import NOT_LED, addresses, current_leader
from ottla.broker.serving.context import Ack, refusal
from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.batch import TRANSACTIONAL
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import MessageError
from ottla.wire.schema.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.admission import Admission
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.hosting.durability import Durability
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.running.services import Lazy
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.workers import Workers
    from ottla.clock import Clock

Answer: TypeAlias = "ProduceResponse | Ack | None"

WRITE = Operation.WRITE
TOPIC, TRANSACTIONAL_ID = Resource.TOPIC, Resource.TRANSACTIONAL_ID
ATTRIBUTES_BYTE = 22  # of a batch, the lower one
# Batches of one request that are appended in one turn of the loop, at 2 ms a MiB or less. A batch
# is never divided: `max.message.bytes`, 1 MiB unless a topic says more, bounds it.
TURN_BYTES: Final = 4 << 20


class AcksNoneFailed(MessageError):
    """With acks=0 the client reads no answers; only closing the connection shows the failure."""

    summary = "produce without acknowledgement failed"


class Serving(NamedTuple):
    """One request and what it is served with."""

    context: RequestContext
    request: ProduceRequest
    cluster: Cluster
    partitions: Partitions
    durability: Durability
    workers: Workers
    clock: Clock
    refused: Sequence[TopicProduceResponse] = ()
    """Answers of topics that the client may not write to; the request has the others."""


def produce(
    context: RequestContext,
    request: ProduceRequest,
    cluster: Cluster,
    partitions: Partitions,
    durability: Durability,
    workers: Workers,
    clock: Clock,
    transactions: Lazy[TransactionService],
    settings: Settings,
) -> Answer | Awaitable[Answer]:
    serving = Serving(context, request, cluster, partitions, durability, workers, clock)
    closed, transactional = _survey(request, partitions, context.version)
    if transactional and not _may_be_transactional(context, request):
        error = refusal(WRITE, TRANSACTIONAL_ID, request.transactional_id or "null")
        return _refuse_all(serving, error)
    if context.peer.access is not EVERYTHING:
        serving = _authorized(serving)
        if serving.refused:
            closed, transactional = _survey(serving.request, partitions, context.version)
    if closed and (opening := partitions.opening(closed, write=True)) is not None:
        serve = partial(_append, serving, None)
        if transactional:
            serve = partial(_serve_transaction, serving, transactions, settings)
        return _when_open(opening, serve)
    if transactional:
        return _serve_transaction(serving, transactions, settings)
    return _append(serving, None)


def foresee(context: RequestContext, request: ProduceRequest, partitions: Partitions) -> None:
    """Start opening the logs of a request that cannot be served yet."""
    if context.peer.access is not EVERYTHING:
        return  # its rights are looked at when its turn comes
    closed, _ = _survey(request, partitions, context.version)
    if closed:
        partitions.foresee(closed)


def _authorized(serving: Serving) -> Serving:
    """Leave those topics in the request that the client may write to; mostly all of them."""
    context, partitions = serving.context, serving.partitions
    may = context.peer.access.may
    try:
        for topic in serving.request.topic_data:
            name = topic.name
            if context.version >= FIRST_VERSION_WITH_IDS:
                name = partitions.name_of(topic.topic_id)
            if not may(WRITE, TOPIC, name):
                return _without_refused(serving)
    except ApiError:
        return _without_refused(serving)
    return serving


def _without_refused(serving: Serving) -> Serving:
    context, request, partitions = serving.context, serving.request, serving.partitions
    allowed: list[TopicProduceData] = []
    refused: list[TopicProduceResponse] = []
    by_id = context.version >= FIRST_VERSION_WITH_IDS
    for topic in request.topic_data:
        try:
            name = partitions.name_of(topic.topic_id) if by_id else topic.name
            context.require(WRITE, TOPIC, name)
        except ApiError as error:
            refused.append(_refused_topic(topic, error))
        else:
            allowed.append(topic)
    return serving._replace(request=request._replace(topic_data=allowed), refused=refused)


def _may_be_transactional(context: RequestContext, request: ProduceRequest) -> bool:
    """The flags of the batches tell that they are of a transaction, not the request."""
    name = request.transactional_id
    return name is not None and context.may(WRITE, TRANSACTIONAL_ID, name)


def _survey(
    request: ProduceRequest, partitions: Partitions, version: int
) -> tuple[list[tuple[str, int]], bool]:
    """Which logs have to be opened or made first, and whether any batch is of a transaction.

    Unknown partitions and invalid batches are refused later.
    """
    open_names = partitions.open_names
    closed: list[tuple[str, int]] = []
    transactional = False
    for topic in request.topic_data:
        name: str | None = topic.name
        if version >= FIRST_VERSION_WITH_IDS:
            try:
                name = partitions.name_of(topic.topic_id)
            except ApiError:
                name = None
        for index, records in topic.partition_data:
            if name is not None and (name, index) not in open_names:
                closed.append((name, index))
            if records and len(records) > ATTRIBUTES_BYTE:
                assert isinstance(records, memoryview)
                if records[ATTRIBUTES_BYTE] & TRANSACTIONAL:
                    transactional = True
    return closed, transactional


async def _when_open(
    opening: Awaitable[None],
    serve: Callable[[], Answer | Coroutine[None, None, Answer]],
) -> Answer:
    """Later requests of the connection wait, so that batches keep their order."""
    await opening
    answer = serve()
    return await answer if isinstance(answer, Coroutine) else answer


def _serve_transaction(
    serving: Serving, transactions: Lazy[TransactionService], settings: Settings
) -> Answer | Coroutine[None, None, Answer]:
    from ottla.broker.coordinators.admission import Admission

    try:
        admission = Admission(
            serving.context.version, serving.request, serving.partitions, transactions, settings
        )
    except ApiError as error:
        return _refuse_all(serving, error)
    if admission.must_wait:
        return _append_verified(serving, admission)
    return _append(serving, admission)


async def _append_verified(serving: Serving, admission: Admission) -> Answer:
    await admission.verify()
    answer = _append(serving, admission)
    return await answer if isinstance(answer, Coroutine) else answer


def _append(
    serving: Serving, admission: Admission | None
) -> Answer | Coroutine[None, None, Answer]:
    context, request, partitions = serving.context, serving.request, serving.partitions
    produced = Produced(context, request.acks, partitions, serving.clock.wall_ms(), admission)
    if _is_large(request):
        return _append_slowly(produced, serving)
    response = ProduceResponse([produced.topic(topic) for topic in request.topic_data])
    if produced.long:
        return _append_long(produced, response, serving)
    return _answer(produced, response, serving)


def _is_large(request: ProduceRequest) -> bool:
    """Whether its batches take more than one turn of the loop. A single one cannot be divided."""
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return False
    sizes = (len(data.records or b"") for topic in topics for data in topic.partition_data)
    return sum(sizes) > TURN_BYTES


async def _append_slowly(produced: Produced, serving: Serving) -> Answer:
    """Append a part per turn; later requests of the connection wait."""
    topics: list[TopicProduceResponse] = []
    left = TURN_BYTES
    for topic in serving.request.topic_data:
        rows: list[PartitionProduceResponse] = []
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, rows))
        for data in topic.partition_data:
            size = len(data.records or b"")
            if size > left < TURN_BYTES:
                # A client that goes away leaves nothing behind that readers never see.
                serving.durability.enlist(produced.written, None)
                await asyncio.sleep(0)
                left = TURN_BYTES
            left -= size
            produced.one(topic, data, rows)
    return await _append_long(produced, ProduceResponse(topics), serving)


async def _append_long(produced: Produced, response: ProduceResponse, serving: Serving) -> Answer:
    if produced.long:
        serving.durability.enlist(produced.written, None)
        await produced.look_into_long(serving.workers)
    return _answer(produced, response, serving)


def _with_refused(
    produced: Produced, response: ProduceResponse, refused: Sequence[TopicProduceResponse]
) -> ProduceResponse:
    produced.failed = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return response._replace(responses=[*response.responses, *refused])


def _with_leaders(response: ProduceResponse, serving: Serving) -> ProduceResponse:
    """The answer that names the leaders of partitions which this node does not lead."""
    cluster, by_id = serving.cluster, serving.context.version >= FIRST_VERSION_WITH_IDS
    leaders: set[int] = set()

    def named(
        topic: TopicProduceResponse, row: PartitionProduceResponse
    ) -> PartitionProduceResponse:
        if row.error_code not in NOT_LED:
            return row
        leader = current_leader(cluster, topic.topic_id if by_id else topic.name, row.index_)
        leaders.add(leader.leader_id)
        return row._replace(current_leader=LeaderIdAndEpoch(*leader))

    topics = [
        topic._replace(partition_responses=[named(topic, row) for row in topic.partition_responses])
        for topic in response.responses
    ]
    listener = serving.context.peer.listener
    endpoints = [NodeEndpoint(*one) for one in addresses(cluster, listener, leaders)]
    return response._replace(responses=topics, node_endpoints=endpoints)


def _answer(produced: Produced, response: ProduceResponse, serving: Serving) -> Answer:
    written, durability = produced.written, serving.durability
    if produced.failed is not None and produced.version >= FIRST_VERSION_WITH_LEADERS:
        response = _with_leaders(response, serving)
    if serving.refused:
        response = _with_refused(produced, response, serving.refused)
    if produced.acks == ACKS_ALL:
        ack = Ack(response, written, _with_failures)
        return ack if durability.enlist(written, ack) else response
    durability.enlist(written, None)
    if produced.acks == ACKS_NONE:
        if produced.failed is not None:
            raise AcksNoneFailed("batches that can be appended", str(produced.failed), "Produce")
        return None
    return response


def _refuse_all(serving: Serving, error: ApiError) -> ProduceResponse | None:
    if serving.request.acks == ACKS_NONE:
        raise AcksNoneFailed("batches that can be appended", str(error), "Produce")
    topics = [_refused_topic(topic, error) for topic in serving.request.topic_data]
    return ProduceResponse([*topics, *serving.refused])


def _refused_topic(topic: TopicProduceData, error: ApiError) -> TopicProduceResponse:
    return TopicProduceResponse(
        topic.name,
        topic.topic_id,
        [refused_row(data.index_, error) for data in topic.partition_data],
    )


def _with_failures(response: ProduceResponse, written: list[HostedPartition]) -> ProduceResponse:
    """The answer if a sync has failed: the content of the disk is unknown."""
    offline = {
        (topic, partition.index)
        for partition in written
        if not partition.log.online
        for topic in (partition.topic, partition.topic_id)
    }
    return response._replace(
        responses=[
            topic._replace(
                partition_responses=[
                    PartitionProduceResponse(p.index_, ErrorCode.KAFKA_STORAGE_ERROR, -1)
                    if (topic.name, p.index_) in offline or (topic.topic_id, p.index_) in offline
                    else p
                    for p in topic.partition_responses
                ]
            )
            for topic in response.responses
        ]
    )
