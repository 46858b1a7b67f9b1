"""share_acknowledge, API key 79. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class AcknowledgementBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    acknowledge_types: Sequence[int] = ()


class AcknowledgePartition(NamedTuple):
    partition_index: int = 0
    acknowledgement_batches: Sequence[AcknowledgementBatch] = ()


class AcknowledgeTopic(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[AcknowledgePartition] = ()


class ShareAcknowledgeRequest(NamedTuple):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    is_renew_ack: bool = False
    topics: Sequence[AcknowledgeTopic] = ()
    is_uncounted: bool = False


SHARE_ACKNOWLEDGE_REQUEST = Message(
    79,
    True,
    ShareAcknowledgeRequest,
    (1, 2),
    1,
    {
        AcknowledgementBatch: (
            Field("first_offset", "int64"),
            Field("last_offset", "int64"),
            Field("acknowledge_types", "int8", array=True),
        ),
        AcknowledgePartition: (
            Field("partition_index", "int32"),
            Field("acknowledgement_batches", AcknowledgementBatch, array=True),
        ),
        AcknowledgeTopic: (
            Field("topic_id", "uuid"),
            Field("partitions", AcknowledgePartition, array=True),
        ),
        ShareAcknowledgeRequest: (
            Field("group_id", "string", nullable=ALWAYS),
            Field("member_id", "string", nullable=ALWAYS),
            Field("share_session_epoch", "int32"),
            Field("is_renew_ack", "bool", versions=(2, 2)),
            Field("topics", AcknowledgeTopic, array=True),
            Field("is_uncounted", "bool", tag=10000),
        ),
    },
)


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = 0
    leader_epoch: int = 0


class PartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class ShareAcknowledgeTopicResponse(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class ShareAcknowledgeResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: Sequence[ShareAcknowledgeTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


SHARE_ACKNOWLEDGE_RESPONSE = Message(
    79,
    False,
    ShareAcknowledgeResponse,
    (1, 2),
    1,
    {
        LeaderIdAndEpoch: (
            Field("leader_id", "int32"),
            Field("leader_epoch", "int32"),
        ),
        PartitionData: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("current_leader", LeaderIdAndEpoch),
        ),
        ShareAcknowledgeTopicResponse: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionData, array=True),
        ),
        NodeEndpoint: (
            Field("node_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", nullable=ALWAYS),
        ),
        ShareAcknowledgeResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("acquisition_lock_timeout_ms", "int32", versions=(2, 2)),
            Field("responses", ShareAcknowledgeTopicResponse, array=True),
            Field("node_endpoints", NodeEndpoint, array=True),
        ),
    },
)
