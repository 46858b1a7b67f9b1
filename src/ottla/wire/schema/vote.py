"""vote, API key 52. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class RequestPartitionData(NamedTuple):
    partition_index: int = 0
    replica_epoch: int = 0
    replica_id: int = 0
    replica_directory_id: bytes = ZERO_UUID
    voter_directory_id: bytes = ZERO_UUID
    last_offset_epoch: int = 0
    last_offset: int = 0
    pre_vote: bool = False


class RequestTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[RequestPartitionData] = ()


class VoteRequest(NamedTuple):
    cluster_id: str | None = None
    voter_id: int = -1
    topics: Sequence[RequestTopicData] = ()


VOTE_REQUEST = Message(
    52,
    True,
    VoteRequest,
    (0, 2),
    0,
    {
        RequestPartitionData: (
            Field("partition_index", "int32"),
            Field("replica_epoch", "int32"),
            Field("replica_id", "int32"),
            Field("replica_directory_id", "uuid", versions=(1, 2)),
            Field("voter_directory_id", "uuid", versions=(1, 2)),
            Field("last_offset_epoch", "int32"),
            Field("last_offset", "int64"),
            Field("pre_vote", "bool", versions=(2, 2)),
        ),
        RequestTopicData: (
            Field("topic_name", "string"),
            Field("partitions", RequestPartitionData, array=True),
        ),
        VoteRequest: (
            Field("cluster_id", "string", nullable=ALWAYS),
            Field("voter_id", "int32", versions=(1, 2)),
            Field("topics", RequestTopicData, array=True),
        ),
    },
)


class ResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    vote_granted: bool = False


class ResponseTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[ResponsePartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0


class VoteResponse(NamedTuple):
    error_code: int = 0
    topics: Sequence[ResponseTopicData] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


VOTE_RESPONSE = Message(
    52,
    False,
    VoteResponse,
    (0, 2),
    0,
    {
        ResponsePartitionData: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
            Field("vote_granted", "bool"),
        ),
        ResponseTopicData: (
            Field("topic_name", "string"),
            Field("partitions", ResponsePartitionData, array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32", versions=(1, 2)),
            Field("host", "string", versions=(1, 2)),
            Field("port", "uint16", versions=(1, 2)),
        ),
        VoteResponse: (
            Field("error_code", "int16"),
            Field("topics", ResponseTopicData, array=True),
            Field("node_endpoints", NodeEndpoint, array=True, versions=(1, 2), tag=0),
        ),
    },
)
