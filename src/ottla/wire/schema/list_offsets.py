"""list_offsets, API key 2. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class ListOffsetsPartition(NamedTuple):
    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0


class ListOffsetsTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[ListOffsetsPartition] = ()


class ListOffsetsRequest(NamedTuple):
    replica_id: int = 0
    isolation_level: int = 0
    topics: Sequence[ListOffsetsTopic] = ()
    timeout_ms: int = 0


LIST_OFFSETS_REQUEST = Message(
    2,
    True,
    ListOffsetsRequest,
    (1, 11),
    6,
    {
        ListOffsetsPartition: (
            Field("partition_index", "int32"),
            Field("current_leader_epoch", "int32", versions=(4, 11)),
            Field("timestamp", "int64"),
        ),
        ListOffsetsTopic: (
            Field("name", "string"),
            Field("partitions", ListOffsetsPartition, array=True),
        ),
        ListOffsetsRequest: (
            Field("replica_id", "int32"),
            Field("isolation_level", "int8", versions=(2, 11)),
            Field("topics", ListOffsetsTopic, array=True),
            Field("timeout_ms", "int32", versions=(10, 11)),
        ),
    },
)


class ListOffsetsPartitionResponse(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsTopicResponse(NamedTuple):
    name: str = ""
    partitions: Sequence[ListOffsetsPartitionResponse] = ()


class ListOffsetsResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: Sequence[ListOffsetsTopicResponse] = ()


LIST_OFFSETS_RESPONSE = Message(
    2,
    False,
    ListOffsetsResponse,
    (1, 11),
    6,
    {
        ListOffsetsPartitionResponse: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("timestamp", "int64"),
            Field("offset", "int64"),
            Field("leader_epoch", "int32", versions=(4, 11)),
        ),
        ListOffsetsTopicResponse: (
            Field("name", "string"),
            Field("partitions", ListOffsetsPartitionResponse, array=True),
        ),
        ListOffsetsResponse: (
            Field("throttle_time_ms", "int32", versions=(2, 11)),
            Field("topics", ListOffsetsTopicResponse, array=True),
        ),
    },
)
