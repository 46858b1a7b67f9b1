"""describe_producers, API key 61. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class TopicRequest(NamedTuple):
    name: str = ""
    partition_indexes: Sequence[int] = ()


class DescribeProducersRequest(NamedTuple):
    topics: Sequence[TopicRequest] = ()


DESCRIBE_PRODUCERS_REQUEST = Message(
    61,
    True,
    DescribeProducersRequest,
    (0, 0),
    0,
    {
        TopicRequest: (
            Field("name", "string"),
            Field("partition_indexes", "int32", array=True),
        ),
        DescribeProducersRequest: (Field("topics", TopicRequest, array=True),),
    },
)


class ProducerState(NamedTuple):
    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


class PartitionResponse(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: Sequence[ProducerState] = ()


class TopicResponse(NamedTuple):
    name: str = ""
    partitions: Sequence[PartitionResponse] = ()


class DescribeProducersResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: Sequence[TopicResponse] = ()


DESCRIBE_PRODUCERS_RESPONSE = Message(
    61,
    False,
    DescribeProducersResponse,
    (0, 0),
    0,
    {
        ProducerState: (
            Field("producer_id", "int64"),
            Field("producer_epoch", "int32"),
            Field("last_sequence", "int32"),
            Field("last_timestamp", "int64"),
            Field("coordinator_epoch", "int32"),
            Field("current_txn_start_offset", "int64"),
        ),
        PartitionResponse: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("active_producers", ProducerState, array=True),
        ),
        TopicResponse: (
            Field("name", "string"),
            Field("partitions", PartitionResponse, array=True),
        ),
        DescribeProducersResponse: (
            Field("throttle_time_ms", "int32"),
            Field("topics", TopicResponse, array=True),
        ),
    },
)
