"""begin_quorum_epoch, API key 53. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class RequestPartitionData(NamedTuple):
    partition_index: int = 0
    voter_directory_id: bytes = ZERO_UUID
    leader_id: int = 0
    leader_epoch: int = 0


class RequestTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[RequestPartitionData] = ()


class LeaderEndpoint(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class BeginQuorumEpochRequest(NamedTuple):
    cluster_id: str | None = None
    voter_id: int = -1
    topics: Sequence[RequestTopicData] = ()
    leader_endpoints: Sequence[LeaderEndpoint] = ()


BEGIN_QUORUM_EPOCH_REQUEST = Message(
    53,
    True,
    BeginQuorumEpochRequest,
    (0, 1),
    1,
    {
        RequestPartitionData: (
            Field("partition_index", "int32"),
            Field("voter_directory_id", "uuid", versions=(1, 1)),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
        ),
        RequestTopicData: (
            Field("topic_name", "string"),
            Field("partitions", RequestPartitionData, array=True),
        ),
        LeaderEndpoint: (
            Field("name", "string", versions=(1, 1)),
            Field("host", "string", versions=(1, 1)),
            Field("port", "uint16", versions=(1, 1)),
        ),
        BeginQuorumEpochRequest: (
            Field("cluster_id", "string", nullable=ALWAYS),
            Field("voter_id", "int32", versions=(1, 1)),
            Field("topics", RequestTopicData, array=True),
            Field("leader_endpoints", LeaderEndpoint, array=True, versions=(1, 1)),
        ),
    },
)


class ResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0


class ResponseTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[ResponsePartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0


class BeginQuorumEpochResponse(NamedTuple):
    error_code: int = 0
    topics: Sequence[ResponseTopicData] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


BEGIN_QUORUM_EPOCH_RESPONSE = Message(
    53,
    False,
    BeginQuorumEpochResponse,
    (0, 1),
    1,
    {
        ResponsePartitionData: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
        ),
        ResponseTopicData: (
            Field("topic_name", "string"),
            Field("partitions", ResponsePartitionData, array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32", versions=(1, 1)),
            Field("host", "string", versions=(1, 1)),
            Field("port", "uint16", versions=(1, 1)),
        ),
        BeginQuorumEpochResponse: (
            Field("error_code", "int16"),
            Field("topics", ResponseTopicData, array=True),
            Field("node_endpoints", NodeEndpoint, array=True, versions=(1, 1), tag=0),
        ),
    },
)
