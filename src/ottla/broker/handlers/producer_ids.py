"""InitProducerId (22) and DescribeProducers (61).

A producer without a transactional id gets a new id with epoch 0, or the next epoch if it names its
current id (v3, KIP-360). With a transactional id the coordinator of that id answers.

Permissions: InitProducerId needs write on the transactional id; without one, idempotent write on
the cluster or write on any topic. DescribeProducers needs read on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import refusal
from ottla.log.errors import LogError
from ottla.metadata.security.acls import CLUSTER_NAME, Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.transactions import TransactionService
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.running.services import Lazy
    from ottla.broker.serving.context import RequestContext

MAX_EPOCH: Final = 32767
NO_PRODUCER: Final = -1
FIRST_VERSION_WITH_FENCED: Final = 4


async def init_producer_id(
    context: RequestContext,
    request: InitProducerIdRequest,
    cluster: Cluster,
    transactions: Lazy[TransactionService],
) -> InitProducerIdResponse:
    refused = _refused(context, request.transactional_id)
    if refused is not None:
        return InitProducerIdResponse(error_code=refused.code, producer_epoch=NO_PRODUCER)
    if request.transactional_id is not None:
        return await _begin_transactional(
            context, cluster, transactions, request.transactional_id, request
        )
    if request.producer_id >= 0 and 0 <= request.producer_epoch < MAX_EPOCH - 1:
        return InitProducerIdResponse(
            producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
        )
    try:
        producer_id = await _fresh_id(cluster)
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=NO_PRODUCER)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(context: RequestContext, transactional_id: str | None) -> ApiError | None:
    write = Operation.WRITE
    if transactional_id is not None:
        if context.may(write, Resource.TRANSACTIONAL_ID, transactional_id):
            return None
        return refusal(write, Resource.TRANSACTIONAL_ID, transactional_id)
    access = context.peer.access
    idempotent = Operation.IDEMPOTENT_WRITE
    if access.may(idempotent, Resource.CLUSTER, CLUSTER_NAME) or access.may_on_any(
        write, Resource.TOPIC
    ):
        return None
    access.refused(context, idempotent, Resource.CLUSTER, CLUSTER_NAME)
    return refusal(idempotent, Resource.CLUSTER, CLUSTER_NAME)


async def _fresh_id(cluster: Cluster) -> int:
    try:
        return await cluster.next_producer_id()
    except ApiError as error:
        if error.code != ErrorCode.REQUEST_TIMED_OUT:
            raise
        # Kafka's response without a block of ids; producers before 4.0 treat a timeout as fatal.
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error


async def _begin_transactional(
    context: RequestContext,
    cluster: Cluster,
    transactions: Lazy[TransactionService],
    transactional_id: str,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse:
    from ottla.coordination.transactions import messages as m

    try:
        question = m.InitProducerId(
            transactional_id,
            request.transaction_timeout_ms,
            await _fresh_id(cluster),
            request.producer_id,
            request.producer_epoch,
        )
        service = await transactions.ready()
        answer = await service.ask(transactional_id, question, m.InitProducerIdResponse)
        code = answer.error
    except ApiError as error:
        code = error.code
    if code == ErrorCode.NONE:
        return InitProducerIdResponse(
            producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
        )
    if code == ErrorCode.PRODUCER_FENCED and context.version < FIRST_VERSION_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER)


async def describe_producers(
    context: RequestContext, request: DescribeProducersRequest, partitions: Partitions
) -> DescribeProducersResponse:
    opening = partitions.opening(
        (topic.name, index)
        for topic in request.topics
        if context.peer.access.may(Operation.READ, Resource.TOPIC, topic.name)
        for index in topic.partition_indexes
    )
    if opening is not None:
        await opening
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [
                    _producers(context, partitions, topic.name, index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _producers(
    context: RequestContext, partitions: Partitions, topic: str, index: int
) -> PartitionResponse:
    try:
        context.require(Operation.READ, Resource.TOPIC, topic)
        producers = partitions.find(topic, index).log.producers()
    except (ApiError, LogError) as error:
        return PartitionResponse(index, error.code, str(error))
    return PartitionResponse(
        index,
        active_producers=[
            ProducerState(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.current_txn_first_offset,
            )
            for producer in producers
        ],
    )
