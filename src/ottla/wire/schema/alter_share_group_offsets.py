"""alter_share_group_offsets, API key 91. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class AlterShareGroupOffsetsRequestPartition(NamedTuple):
    partition_index: int = 0
    start_offset: int = 0


class AlterShareGroupOffsetsRequestTopic(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = ()


class AlterShareGroupOffsetsRequest(NamedTuple):
    group_id: str = ""
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = ()


ALTER_SHARE_GROUP_OFFSETS_REQUEST = Message(
    91,
    True,
    AlterShareGroupOffsetsRequest,
    (0, 0),
    0,
    {
        AlterShareGroupOffsetsRequestPartition: (
            Field("partition_index", "int32"),
            Field("start_offset", "int64"),
        ),
        AlterShareGroupOffsetsRequestTopic: (
            Field("topic_name", "string"),
            Field("partitions", AlterShareGroupOffsetsRequestPartition, array=True),
        ),
        AlterShareGroupOffsetsRequest: (
            Field("group_id", "string"),
            Field("topics", AlterShareGroupOffsetsRequestTopic, array=True),
        ),
    },
)


class AlterShareGroupOffsetsResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None


class AlterShareGroupOffsetsResponseTopic(NamedTuple):
    topic_name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = ()


class AlterShareGroupOffsetsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = ()


ALTER_SHARE_GROUP_OFFSETS_RESPONSE = Message(
    91,
    False,
    AlterShareGroupOffsetsResponse,
    (0, 0),
    0,
    {
        AlterShareGroupOffsetsResponsePartition: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        AlterShareGroupOffsetsResponseTopic: (
            Field("topic_name", "string"),
            Field("topic_id", "uuid"),
            Field("partitions", AlterShareGroupOffsetsResponsePartition, array=True),
        ),
        AlterShareGroupOffsetsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("responses", AlterShareGroupOffsetsResponseTopic, array=True),
        ),
    },
)
