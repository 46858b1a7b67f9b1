"""alter_replica_log_dirs, API key 34. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class AlterReplicaLogDirTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[int] = ()


class AlterReplicaLogDir(NamedTuple):
    path: str = ""
    topics: Sequence[AlterReplicaLogDirTopic] = ()


class AlterReplicaLogDirsRequest(NamedTuple):
    dirs: Sequence[AlterReplicaLogDir] = ()


ALTER_REPLICA_LOG_DIRS_REQUEST = Message(
    34,
    True,
    AlterReplicaLogDirsRequest,
    (1, 2),
    2,
    {
        AlterReplicaLogDirTopic: (
            Field("name", "string"),
            Field("partitions", "int32", array=True),
        ),
        AlterReplicaLogDir: (
            Field("path", "string"),
            Field("topics", AlterReplicaLogDirTopic, array=True),
        ),
        AlterReplicaLogDirsRequest: (Field("dirs", AlterReplicaLogDir, array=True),),
    },
)


class AlterReplicaLogDirPartitionResult(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class AlterReplicaLogDirTopicResult(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = ()


class AlterReplicaLogDirsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: Sequence[AlterReplicaLogDirTopicResult] = ()


ALTER_REPLICA_LOG_DIRS_RESPONSE = Message(
    34,
    False,
    AlterReplicaLogDirsResponse,
    (1, 2),
    2,
    {
        AlterReplicaLogDirPartitionResult: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
        ),
        AlterReplicaLogDirTopicResult: (
            Field("topic_name", "string"),
            Field("partitions", AlterReplicaLogDirPartitionResult, array=True),
        ),
        AlterReplicaLogDirsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("results", AlterReplicaLogDirTopicResult, array=True),
        ),
    },
)
