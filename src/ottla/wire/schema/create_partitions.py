"""create_partitions, API key 37. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class CreatePartitionsAssignment(NamedTuple):
    broker_ids: Sequence[int] = ()


class CreatePartitionsTopic(NamedTuple):
    name: str = ""
    count_: int = 0
    assignments: Sequence[CreatePartitionsAssignment] | None = ()


class CreatePartitionsRequest(NamedTuple):
    topics: Sequence[CreatePartitionsTopic] = ()
    timeout_ms: int = 0
    validate_only: bool = False


CREATE_PARTITIONS_REQUEST = Message(
    37,
    True,
    CreatePartitionsRequest,
    (0, 3),
    2,
    {
        CreatePartitionsAssignment: (Field("broker_ids", "int32", array=True),),
        CreatePartitionsTopic: (
            Field("name", "string"),
            Field("count_", "int32"),
            Field("assignments", CreatePartitionsAssignment, array=True, nullable=ALWAYS),
        ),
        CreatePartitionsRequest: (
            Field("topics", CreatePartitionsTopic, array=True),
            Field("timeout_ms", "int32"),
            Field("validate_only", "bool"),
        ),
    },
)


class CreatePartitionsTopicResult(NamedTuple):
    name: str = ""
    error_code: int = 0
    error_message: str | None = None


class CreatePartitionsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: Sequence[CreatePartitionsTopicResult] = ()


CREATE_PARTITIONS_RESPONSE = Message(
    37,
    False,
    CreatePartitionsResponse,
    (0, 3),
    2,
    {
        CreatePartitionsTopicResult: (
            Field("name", "string"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        CreatePartitionsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("results", CreatePartitionsTopicResult, array=True),
        ),
    },
)
