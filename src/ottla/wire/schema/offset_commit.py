"""offset_commit, API key 8. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class OffsetCommitRequestPartition(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[OffsetCommitRequestPartition] = ()


class OffsetCommitRequest(NamedTuple):
    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    retention_time_ms: int = -1
    group_instance_id: str | None = None
    topics: Sequence[OffsetCommitRequestTopic] = ()


OFFSET_COMMIT_REQUEST = Message(
    8,
    True,
    OffsetCommitRequest,
    (2, 10),
    8,
    {
        OffsetCommitRequestPartition: (
            Field("partition_index", "int32"),
            Field("committed_offset", "int64"),
            Field("committed_leader_epoch", "int32", versions=(6, 10)),
            Field("committed_metadata", "string", nullable=ALWAYS),
        ),
        OffsetCommitRequestTopic: (
            Field("name", "string", versions=(2, 9)),
            Field("topic_id", "uuid", versions=(10, 10)),
            Field("partitions", OffsetCommitRequestPartition, array=True),
        ),
        OffsetCommitRequest: (
            Field("group_id", "string"),
            Field("generation_id_or_member_epoch", "int32"),
            Field("member_id", "string"),
            Field("retention_time_ms", "int64", versions=(2, 4)),
            Field("group_instance_id", "string", versions=(7, 10), nullable=ALWAYS),
            Field("topics", OffsetCommitRequestTopic, array=True),
        ),
    },
)


class OffsetCommitResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class OffsetCommitResponseTopic(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[OffsetCommitResponsePartition] = ()


class OffsetCommitResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: Sequence[OffsetCommitResponseTopic] = ()


OFFSET_COMMIT_RESPONSE = Message(
    8,
    False,
    OffsetCommitResponse,
    (2, 10),
    8,
    {
        OffsetCommitResponsePartition: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
        ),
        OffsetCommitResponseTopic: (
            Field("name", "string", versions=(2, 9)),
            Field("topic_id", "uuid", versions=(10, 10)),
            Field("partitions", OffsetCommitResponsePartition, array=True),
        ),
        OffsetCommitResponse: (
            Field("throttle_time_ms", "int32", versions=(3, 10)),
            Field("topics", OffsetCommitResponseTopic, array=True),
        ),
    },
)
