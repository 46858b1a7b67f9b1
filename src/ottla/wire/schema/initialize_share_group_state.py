"""initialize_share_group_state, API key 83. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class PartitionData(NamedTuple):
    partition: int = 0
    state_epoch: int = 0
    start_offset: int = 0


class InitializeStateData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class InitializeShareGroupStateRequest(NamedTuple):
    group_id: str = ""
    topics: Sequence[InitializeStateData] = ()


INITIALIZE_SHARE_GROUP_STATE_REQUEST = Message(
    83,
    True,
    InitializeShareGroupStateRequest,
    (0, 0),
    0,
    {
        PartitionData: (
            Field("partition", "int32"),
            Field("state_epoch", "int32"),
            Field("start_offset", "int64"),
        ),
        InitializeStateData: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionData, array=True),
        ),
        InitializeShareGroupStateRequest: (
            Field("group_id", "string"),
            Field("topics", InitializeStateData, array=True),
        ),
    },
)


class PartitionResult(NamedTuple):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


class InitializeStateResult(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionResult] = ()


class InitializeShareGroupStateResponse(NamedTuple):
    results: Sequence[InitializeStateResult] = ()


INITIALIZE_SHARE_GROUP_STATE_RESPONSE = Message(
    83,
    False,
    InitializeShareGroupStateResponse,
    (0, 0),
    0,
    {
        PartitionResult: (
            Field("partition", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        InitializeStateResult: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionResult, array=True),
        ),
        InitializeShareGroupStateResponse: (Field("results", InitializeStateResult, array=True),),
    },
)
