"""delete_topics, API key 20. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class DeleteTopicState(NamedTuple):
    name: str | None = None
    topic_id: bytes = ZERO_UUID


class DeleteTopicsRequest(NamedTuple):
    topic_names: Sequence[str] = ()
    topics: Sequence[DeleteTopicState] = ()
    timeout_ms: int = 0


DELETE_TOPICS_REQUEST = Message(
    20,
    True,
    DeleteTopicsRequest,
    (1, 6),
    4,
    {
        DeleteTopicState: (
            Field("name", "string", versions=(6, 6), nullable=ALWAYS),
            Field("topic_id", "uuid", versions=(6, 6)),
        ),
        DeleteTopicsRequest: (
            Field("topic_names", "string", array=True, versions=(1, 5)),
            Field("topics", DeleteTopicState, array=True, versions=(6, 6)),
            Field("timeout_ms", "int32"),
        ),
    },
)


class DeletableTopicResult(NamedTuple):
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None


class DeleteTopicsResponse(NamedTuple):
    throttle_time_ms: int = 0
    responses: Sequence[DeletableTopicResult] = ()


DELETE_TOPICS_RESPONSE = Message(
    20,
    False,
    DeleteTopicsResponse,
    (1, 6),
    4,
    {
        DeletableTopicResult: (
            Field("name", "string", nullable=(6, 6)),
            Field("topic_id", "uuid", versions=(6, 6)),
            Field("error_code", "int16"),
            Field("error_message", "string", versions=(5, 6), nullable=ALWAYS),
        ),
        DeleteTopicsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("responses", DeletableTopicResult, array=True),
        ),
    },
)
