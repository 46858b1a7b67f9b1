"""delete_share_group_state, API key 86. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class PartitionData(NamedTuple):
    partition: int = 0


class DeleteStateData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class DeleteShareGroupStateRequest(NamedTuple):
    group_id: str = ""
    topics: Sequence[DeleteStateData] = ()


DELETE_SHARE_GROUP_STATE_REQUEST = Message(
    86,
    True,
    DeleteShareGroupStateRequest,
    (0, 0),
    0,
    {
        PartitionData: (Field("partition", "int32"),),
        DeleteStateData: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionData, array=True),
        ),
        DeleteShareGroupStateRequest: (
            Field("group_id", "string"),
            Field("topics", DeleteStateData, array=True),
        ),
    },
)


class PartitionResult(NamedTuple):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


class DeleteStateResult(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionResult] = ()


class DeleteShareGroupStateResponse(NamedTuple):
    results: Sequence[DeleteStateResult] = ()


DELETE_SHARE_GROUP_STATE_RESPONSE = Message(
    86,
    False,
    DeleteShareGroupStateResponse,
    (0, 0),
    0,
    {
        PartitionResult: (
            Field("partition", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        DeleteStateResult: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionResult, array=True),
        ),
        DeleteShareGroupStateResponse: (Field("results", DeleteStateResult, array=True),),
    },
)
