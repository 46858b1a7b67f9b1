"""describe_topic_partitions, API key 75. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class TopicRequest(NamedTuple):
    name: str = ""


class RequestCursor(NamedTuple):
    topic_name: str = ""
    partition_index: int = 0


class DescribeTopicPartitionsRequest(NamedTuple):
    topics: Sequence[TopicRequest] = ()
    response_partition_limit: int = 2000
    cursor: RequestCursor | None = None


DESCRIBE_TOPIC_PARTITIONS_REQUEST = Message(
    75,
    True,
    DescribeTopicPartitionsRequest,
    (0, 0),
    0,
    {
        TopicRequest: (Field("name", "string"),),
        RequestCursor: (
            Field("topic_name", "string"),
            Field("partition_index", "int32"),
        ),
        DescribeTopicPartitionsRequest: (
            Field("topics", TopicRequest, array=True),
            Field("response_partition_limit", "int32"),
            Field("cursor", RequestCursor, nullable=ALWAYS),
        ),
    },
)


class DescribeTopicPartitionsResponsePartition(NamedTuple):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None
    offline_replicas: Sequence[int] = ()


class DescribeTopicPartitionsResponseTopic(NamedTuple):
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = ()
    topic_authorized_operations: int = -2147483648


class ResponseCursor(NamedTuple):
    topic_name: str = ""
    partition_index: int = 0


class DescribeTopicPartitionsResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = ()
    next_cursor: ResponseCursor | None = None


DESCRIBE_TOPIC_PARTITIONS_RESPONSE = Message(
    75,
    False,
    DescribeTopicPartitionsResponse,
    (0, 0),
    0,
    {
        DescribeTopicPartitionsResponsePartition: (
            Field("error_code", "int16"),
            Field("partition_index", "int32"),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
            Field("replica_nodes", "int32", array=True),
            Field("isr_nodes", "int32", array=True),
            Field("eligible_leader_replicas", "int32", array=True, nullable=ALWAYS),
            Field("last_known_elr", "int32", array=True, nullable=ALWAYS),
            Field("offline_replicas", "int32", array=True),
        ),
        DescribeTopicPartitionsResponseTopic: (
            Field("error_code", "int16"),
            Field("name", "string", nullable=ALWAYS),
            Field("topic_id", "uuid"),
            Field("is_internal", "bool"),
            Field("partitions", DescribeTopicPartitionsResponsePartition, array=True),
            Field("topic_authorized_operations", "int32"),
        ),
        ResponseCursor: (
            Field("topic_name", "string"),
            Field("partition_index", "int32"),
        ),
        DescribeTopicPartitionsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("topics", DescribeTopicPartitionsResponseTopic, array=True),
            Field("next_cursor", ResponseCursor, nullable=ALWAYS),
        ),
    },
)
