"""assign_replicas_to_dirs, API key 73. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ZERO_UUID, Field, Message


class RequestPartitionData(NamedTuple):
    partition_index: int = 0


class RequestTopicData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[RequestPartitionData] = ()


class RequestDirectoryData(NamedTuple):
    id_: bytes = ZERO_UUID
    topics: Sequence[RequestTopicData] = ()


class AssignReplicasToDirsRequest(NamedTuple):
    broker_id: int = 0
    broker_epoch: int = -1
    directories: Sequence[RequestDirectoryData] = ()


ASSIGN_REPLICAS_TO_DIRS_REQUEST = Message(
    73,
    True,
    AssignReplicasToDirsRequest,
    (0, 0),
    0,
    {
        RequestPartitionData: (Field("partition_index", "int32"),),
        RequestTopicData: (
            Field("topic_id", "uuid"),
            Field("partitions", RequestPartitionData, array=True),
        ),
        RequestDirectoryData: (
            Field("id_", "uuid"),
            Field("topics", RequestTopicData, array=True),
        ),
        AssignReplicasToDirsRequest: (
            Field("broker_id", "int32"),
            Field("broker_epoch", "int64"),
            Field("directories", RequestDirectoryData, array=True),
        ),
    },
)


class ResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class ResponseTopicData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[ResponsePartitionData] = ()


class ResponseDirectoryData(NamedTuple):
    id_: bytes = ZERO_UUID
    topics: Sequence[ResponseTopicData] = ()


class AssignReplicasToDirsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    directories: Sequence[ResponseDirectoryData] = ()


ASSIGN_REPLICAS_TO_DIRS_RESPONSE = Message(
    73,
    False,
    AssignReplicasToDirsResponse,
    (0, 0),
    0,
    {
        ResponsePartitionData: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
        ),
        ResponseTopicData: (
            Field("topic_id", "uuid"),
            Field("partitions", ResponsePartitionData, array=True),
        ),
        ResponseDirectoryData: (
            Field("id_", "uuid"),
            Field("topics", ResponseTopicData, array=True),
        ),
        AssignReplicasToDirsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("directories", ResponseDirectoryData, array=True),
        ),
    },
)
