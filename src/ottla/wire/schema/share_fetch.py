"""share_fetch, API key 78. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message, Records


class AcknowledgementBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    acknowledge_types: Sequence[int] = ()


class FetchPartition(NamedTuple):
    partition_index: int = 0
    acknowledgement_batches: Sequence[AcknowledgementBatch] = ()


class FetchTopic(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[FetchPartition] = ()


class ForgottenTopic(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class ShareFetchRequest(NamedTuple):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = 0
    is_renew_ack: bool = False
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Sequence[ForgottenTopic] = ()
    is_acquire_only: bool = False


SHARE_FETCH_REQUEST = Message(
    78,
    True,
    ShareFetchRequest,
    (1, 2),
    1,
    {
        AcknowledgementBatch: (
            Field("first_offset", "int64"),
            Field("last_offset", "int64"),
            Field("acknowledge_types", "int8", array=True),
        ),
        FetchPartition: (
            Field("partition_index", "int32"),
            Field("acknowledgement_batches", AcknowledgementBatch, array=True),
        ),
        FetchTopic: (
            Field("topic_id", "uuid"),
            Field("partitions", FetchPartition, array=True),
        ),
        ForgottenTopic: (
            Field("topic_id", "uuid"),
            Field("partitions", "int32", array=True),
        ),
        ShareFetchRequest: (
            Field("group_id", "string", nullable=ALWAYS),
            Field("member_id", "string", nullable=ALWAYS),
            Field("share_session_epoch", "int32"),
            Field("max_wait_ms", "int32"),
            Field("min_bytes", "int32"),
            Field("max_bytes", "int32"),
            Field("max_records", "int32"),
            Field("batch_size", "int32"),
            Field("share_acquire_mode", "int8", versions=(2, 2)),
            Field("is_renew_ack", "bool", versions=(2, 2)),
            Field("topics", FetchTopic, array=True),
            Field("forgotten_topics_data", ForgottenTopic, array=True),
            Field("is_acquire_only", "bool", tag=10000),
        ),
    },
)


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = 0
    leader_epoch: int = 0


class AcquiredRecords(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    delivery_count: int = 0


class PartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: Records = b""
    acquired_records: Sequence[AcquiredRecords] = ()


class ShareFetchableTopicResponse(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class ShareFetchResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: Sequence[ShareFetchableTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


SHARE_FETCH_RESPONSE = Message(
    78,
    False,
    ShareFetchResponse,
    (1, 2),
    1,
    {
        LeaderIdAndEpoch: (
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
        ),
        AcquiredRecords: (
            Field("first_offset", "int64"),
            Field("last_offset", "int64"),
            Field("delivery_count", "int16"),
        ),
        PartitionData: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("acknowledge_error_code", "int16"),
            Field("acknowledge_error_message", "string", nullable=ALWAYS),
            Field("current_leader", LeaderIdAndEpoch),
            Field("records", "records"),
            Field("acquired_records", AcquiredRecords, array=True),
        ),
        ShareFetchableTopicResponse: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionData, array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", nullable=ALWAYS),
        ),
        ShareFetchResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("acquisition_lock_timeout_ms", "int32"),
            Field("responses", ShareFetchableTopicResponse, array=True),
            Field("node_endpoints", NodeEndpoint, array=True),
        ),
    },
)
