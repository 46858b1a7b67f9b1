"""InitProducerId (22) and DescribeProducers (61).

A producer without a transactional id gets a fresh id at epoch 0, or, when it names the id it has
(v3, KIP-360), the next epoch of that. Transactions are not served yet: a transactional id is
refused with error 35, which clients take as final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.errors import ApiError
from ottla.log.errors import LogError
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
    from ottla.broker.context import RequestContext

MAX_EPOCH: Final = 32767
NO_PRODUCER: Final = -1


def init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            producer_epoch=NO_PRODUCER,
        )
    if request.producer_id >= 0 and 0 <= request.producer_epoch < MAX_EPOCH - 1:
        return InitProducerIdResponse(
            producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
        )
    try:
        producer_id = context.node.next_producer_id()
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=NO_PRODUCER)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def describe_producers(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [_producers(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        producers = context.node.partitions.find(topic, index).log.producers()
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
