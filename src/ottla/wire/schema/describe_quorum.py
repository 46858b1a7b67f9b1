"""describe_quorum, API key 55. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class RequestPartitionData(NamedTuple):
    partition_index: int = 0


class RequestTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[RequestPartitionData] = ()


class DescribeQuorumRequest(NamedTuple):
    topics: Sequence[RequestTopicData] = ()


DESCRIBE_QUORUM_REQUEST = Message(
    55,
    True,
    DescribeQuorumRequest,
    (0, 2),
    0,
    {
        RequestPartitionData: (Field("partition_index", "int32"),),
        RequestTopicData: (
            Field("topic_name", "string"),
            Field("partitions", RequestPartitionData, array=True),
        ),
        DescribeQuorumRequest: (Field("topics", RequestTopicData, array=True),),
    },
)


class ReplicaState(NamedTuple):
    replica_id: int = 0
    replica_directory_id: bytes = ZERO_UUID
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


class ResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: Sequence[ReplicaState] = ()
    observers: Sequence[ReplicaState] = ()


class ResponseTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[ResponsePartitionData] = ()


class Listener(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class Node(NamedTuple):
    node_id: int = 0
    listeners: Sequence[Listener] = ()


class DescribeQuorumResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    topics: Sequence[ResponseTopicData] = ()
    nodes: Sequence[Node] = ()


DESCRIBE_QUORUM_RESPONSE = Message(
    55,
    False,
    DescribeQuorumResponse,
    (0, 2),
    0,
    {
        ReplicaState: (
            Field("replica_id", "int32"),
            Field("replica_directory_id", "uuid", versions=(2, 2)),
            Field("log_end_offset", "int64"),
            Field("last_fetch_timestamp", "int64", versions=(1, 2)),
            Field("last_caught_up_timestamp", "int64", versions=(1, 2)),
        ),
        ResponsePartitionData: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", versions=(2, 2), nullable=ALWAYS),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
            Field("high_watermark", "int64"),
            Field("current_voters", ReplicaState, array=True),
            Field("observers", ReplicaState, array=True),
        ),
        ResponseTopicData: (
            Field("topic_name", "string"),
            Field("partitions", ResponsePartitionData, array=True),
        ),
        Listener: (
            Field("name", "string", versions=(2, 2)),
            Field("host", "string", versions=(2, 2)),
            Field("port", "uint16", versions=(2, 2)),
        ),
        Node: (
            Field("node_id", "int32", versions=(2, 2)),
            Field("listeners", Listener, array=True, versions=(2, 2)),
        ),
        DescribeQuorumResponse: (
            Field("error_code", "int16"),
            Field("error_message", "string", versions=(2, 2), nullable=ALWAYS),
            Field("topics", ResponseTopicData, array=True),
            Field("nodes", Node, array=True, versions=(2, 2)),
        ),
    },
)
