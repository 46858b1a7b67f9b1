"""alter_partition_reassignments, API key 45. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class ReassignablePartition(NamedTuple):
    partition_index: int = 0
    replicas: Sequence[int] | None = None


class ReassignableTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[ReassignablePartition] = ()


class AlterPartitionReassignmentsRequest(NamedTuple):
    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: Sequence[ReassignableTopic] = ()


ALTER_PARTITION_REASSIGNMENTS_REQUEST = Message(
    45,
    True,
    AlterPartitionReassignmentsRequest,
    (0, 1),
    0,
    {
        ReassignablePartition: (
            Field("partition_index", "int32"),
            Field("replicas", "int32", array=True, nullable=ALWAYS),
        ),
        ReassignableTopic: (
            Field("name", "string"),
            Field("partitions", ReassignablePartition, array=True),
        ),
        AlterPartitionReassignmentsRequest: (
            Field("timeout_ms", "int32"),
            Field("allow_replication_factor_change", "bool", versions=(1, 1)),
            Field("topics", ReassignableTopic, array=True),
        ),
    },
)


class ReassignablePartitionResponse(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""


class ReassignableTopicResponse(NamedTuple):
    name: str = ""
    partitions: Sequence[ReassignablePartitionResponse] = ()


class AlterPartitionReassignmentsResponse(NamedTuple):
    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ""
    responses: Sequence[ReassignableTopicResponse] = ()


ALTER_PARTITION_REASSIGNMENTS_RESPONSE = Message(
    45,
    False,
    AlterPartitionReassignmentsResponse,
    (0, 1),
    0,
    {
        ReassignablePartitionResponse: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        ReassignableTopicResponse: (
            Field("name", "string"),
            Field("partitions", ReassignablePartitionResponse, array=True),
        ),
        AlterPartitionReassignmentsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("allow_replication_factor_change", "bool", versions=(1, 1)),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("responses", ReassignableTopicResponse, array=True),
        ),
    },
)
