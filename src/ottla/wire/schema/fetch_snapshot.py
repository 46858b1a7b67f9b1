"""fetch_snapshot, API key 59. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message, Records


class RequestSnapshotId(NamedTuple):
    end_offset: int = 0
    epoch: int = 0


class RequestPartitionSnapshot(NamedTuple):
    partition: int = 0
    current_leader_epoch: int = 0
    snapshot_id: RequestSnapshotId = RequestSnapshotId()
    position: int = 0
    replica_directory_id: bytes = ZERO_UUID


class RequestTopicSnapshot(NamedTuple):
    name: str = ""
    partitions: Sequence[RequestPartitionSnapshot] = ()


class FetchSnapshotRequest(NamedTuple):
    cluster_id: str | None = None
    replica_id: int = -1
    max_bytes: int = 2147483647
    topics: Sequence[RequestTopicSnapshot] = ()


FETCH_SNAPSHOT_REQUEST = Message(
    59,
    True,
    FetchSnapshotRequest,
    (0, 1),
    0,
    {
        RequestSnapshotId: (
            Field("end_offset", "int64"),
            Field("epoch", "int32"),
        ),
        RequestPartitionSnapshot: (
            Field("partition", "int32"),
            Field("current_leader_epoch", "int32"),
            Field("snapshot_id", RequestSnapshotId),
            Field("position", "int64"),
            Field("replica_directory_id", "uuid", versions=(1, 1), tag=0),
        ),
        RequestTopicSnapshot: (
            Field("name", "string"),
            Field("partitions", RequestPartitionSnapshot, array=True),
        ),
        FetchSnapshotRequest: (
            Field("cluster_id", "string", nullable=ALWAYS, tag=0),
            Field("replica_id", "int32"),
            Field("max_bytes", "int32"),
            Field("topics", RequestTopicSnapshot, array=True),
        ),
    },
)


class ResponseSnapshotId(NamedTuple):
    end_offset: int = 0
    epoch: int = 0


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = 0
    leader_epoch: int = 0


class ResponsePartitionSnapshot(NamedTuple):
    index_: int = 0
    error_code: int = 0
    snapshot_id: ResponseSnapshotId = ResponseSnapshotId()
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    size: int = 0
    position: int = 0
    unaligned_records: Records = b""


class ResponseTopicSnapshot(NamedTuple):
    name: str = ""
    partitions: Sequence[ResponsePartitionSnapshot] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0


class FetchSnapshotResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    topics: Sequence[ResponseTopicSnapshot] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


FETCH_SNAPSHOT_RESPONSE = Message(
    59,
    False,
    FetchSnapshotResponse,
    (0, 1),
    0,
    {
        ResponseSnapshotId: (
            Field("end_offset", "int64"),
            Field("epoch", "int32"),
        ),
        LeaderIdAndEpoch: (
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
        ),
        ResponsePartitionSnapshot: (
            Field("index_", "int32"),
            Field("error_code", "int16"),
            Field("snapshot_id", ResponseSnapshotId),
            Field("current_leader", LeaderIdAndEpoch, tag=0),
            Field("size", "int64"),
            Field("position", "int64"),
            Field("unaligned_records", "records"),
        ),
        ResponseTopicSnapshot: (
            Field("name", "string"),
            Field("partitions", ResponsePartitionSnapshot, array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32", versions=(1, 1)),
            Field("host", "string", versions=(1, 1)),
            Field("port", "uint16", versions=(1, 1)),
        ),
        FetchSnapshotResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("topics", ResponseTopicSnapshot, array=True),
            Field("node_endpoints", NodeEndpoint, array=True, versions=(1, 1), tag=0),
        ),
    },
)
