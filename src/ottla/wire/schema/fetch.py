"""fetch, API key 1. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message, Records


class ReplicaState(NamedTuple):
    replica_id: int = -1
    replica_epoch: int = -1


class FetchPartition(NamedTuple):
    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = 9223372036854775807


class FetchTopic(NamedTuple):
    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[FetchPartition] = ()


class ForgottenTopic(NamedTuple):
    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class FetchRequest(NamedTuple):
    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: ReplicaState = ReplicaState(replica_id=-1, replica_epoch=-1)
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Sequence[ForgottenTopic] = ()
    rack_id: str = ""


FETCH_REQUEST = Message(
    1,
    True,
    FetchRequest,
    (4, 18),
    12,
    {
        ReplicaState: (
            Field("replica_id", "int32", versions=(15, 18)),
            Field("replica_epoch", "int64", versions=(15, 18)),
        ),
        FetchPartition: (
            Field("partition", "int32"),
            Field("current_leader_epoch", "int32", versions=(9, 18)),
            Field("fetch_offset", "int64"),
            Field("last_fetched_epoch", "int32", versions=(12, 18)),
            Field("log_start_offset", "int64", versions=(5, 18)),
            Field("partition_max_bytes", "int32"),
            Field("replica_directory_id", "uuid", versions=(17, 18), tag=0),
            Field("high_watermark", "int64", versions=(18, 18), tag=1),
        ),
        FetchTopic: (
            Field("topic", "string", versions=(4, 12)),
            Field("topic_id", "uuid", versions=(13, 18)),
            Field("partitions", FetchPartition, array=True),
        ),
        ForgottenTopic: (
            Field("topic", "string", versions=(7, 12)),
            Field("topic_id", "uuid", versions=(13, 18)),
            Field("partitions", "int32", array=True, versions=(7, 18)),
        ),
        FetchRequest: (
            Field("cluster_id", "string", versions=(12, 18), nullable=ALWAYS, tag=0),
            Field("replica_id", "int32", versions=(4, 14)),
            Field("replica_state", ReplicaState, versions=(15, 18), tag=1),
            Field("max_wait_ms", "int32"),
            Field("min_bytes", "int32"),
            Field("max_bytes", "int32"),
            Field("isolation_level", "int8"),
            Field("session_id", "int32", versions=(7, 18)),
            Field("session_epoch", "int32", versions=(7, 18)),
            Field("topics", FetchTopic, array=True),
            Field("forgotten_topics_data", ForgottenTopic, array=True, versions=(7, 18)),
            Field("rack_id", "string", versions=(11, 18)),
        ),
    },
)


class EpochEndOffset(NamedTuple):
    epoch: int = -1
    end_offset: int = -1


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1


class SnapshotId(NamedTuple):
    end_offset: int = -1
    epoch: int = -1


class AbortedTransaction(NamedTuple):
    producer_id: int = 0
    first_offset: int = 0


class PartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = EpochEndOffset(epoch=-1, end_offset=-1)
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
    snapshot_id: SnapshotId = SnapshotId(end_offset=-1, epoch=-1)
    aborted_transactions: Sequence[AbortedTransaction] | None = ()
    preferred_read_replica: int = -1
    records: Records | None = b""


class FetchableTopicResponse(NamedTuple):
    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class FetchResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: Sequence[FetchableTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


FETCH_RESPONSE = Message(
    1,
    False,
    FetchResponse,
    (4, 18),
    12,
    {
        EpochEndOffset: (
            Field("epoch", "int32", versions=(12, 18)),
            Field("end_offset", "int64", versions=(12, 18)),
        ),
        LeaderIdAndEpoch: (
            Field("leader_id", "int32", versions=(12, 18)),
            Field("leader_epoch", "int32", versions=(12, 18)),
        ),
        SnapshotId: (
            Field("end_offset", "int64", versions=(12, 18)),
            Field("epoch", "int32", versions=(12, 18)),
        ),
        AbortedTransaction: (
            Field("producer_id", "int64"),
            Field("first_offset", "int64"),
        ),
        PartitionData: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("high_watermark", "int64"),
            Field("last_stable_offset", "int64"),
            Field("log_start_offset", "int64", versions=(5, 18)),
            Field("diverging_epoch", EpochEndOffset, versions=(12, 18), tag=0),
            Field("current_leader", LeaderIdAndEpoch, versions=(12, 18), tag=1),
            Field("snapshot_id", SnapshotId, versions=(12, 18), tag=2),
            Field("aborted_transactions", AbortedTransaction, array=True, nullable=ALWAYS),
            Field("preferred_read_replica", "int32", versions=(11, 18)),
            Field("records", "records", nullable=ALWAYS),
        ),
        FetchableTopicResponse: (
            Field("topic", "string", versions=(4, 12)),
            Field("topic_id", "uuid", versions=(13, 18)),
            Field("partitions", PartitionData, array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32", versions=(16, 18)),
            Field("host", "string", versions=(16, 18)),
            Field("port", "int32", versions=(16, 18)),
            Field("rack", "string", versions=(16, 18), nullable=ALWAYS),
        ),
        FetchResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16", versions=(7, 18)),
            Field("session_id", "int32", versions=(7, 18)),
            Field("responses", FetchableTopicResponse, array=True),
            Field("node_endpoints", NodeEndpoint, array=True, versions=(16, 18), tag=0),
        ),
    },
)
