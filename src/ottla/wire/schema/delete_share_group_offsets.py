"""delete_share_group_offsets, API key 92. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class DeleteShareGroupOffsetsRequestTopic(NamedTuple):
    topic_name: str = ""


class DeleteShareGroupOffsetsRequest(NamedTuple):
    group_id: str = ""
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = ()


DELETE_SHARE_GROUP_OFFSETS_REQUEST = Message(
    92,
    True,
    DeleteShareGroupOffsetsRequest,
    (0, 0),
    0,
    {
        DeleteShareGroupOffsetsRequestTopic: (Field("topic_name", "string"),),
        DeleteShareGroupOffsetsRequest: (
            Field("group_id", "string"),
            Field("topics", DeleteShareGroupOffsetsRequestTopic, array=True),
        ),
    },
)


class DeleteShareGroupOffsetsResponseTopic(NamedTuple):
    topic_name: str = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None


class DeleteShareGroupOffsetsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()


DELETE_SHARE_GROUP_OFFSETS_RESPONSE = Message(
    92,
    False,
    DeleteShareGroupOffsetsResponse,
    (0, 0),
    0,
    {
        DeleteShareGroupOffsetsResponseTopic: (
            Field("topic_name", "string"),
            Field("topic_id", "uuid"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        DeleteShareGroupOffsetsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("responses", DeleteShareGroupOffsetsResponseTopic, array=True),
        ),
    },
)
