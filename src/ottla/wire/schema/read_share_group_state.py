"""read_share_group_state, API key 84. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class PartitionData(NamedTuple):
    partition: int = 0
    leader_epoch: int = 0


class ReadStateData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class ReadShareGroupStateRequest(NamedTuple):
    group_id: str = ""
    topics: Sequence[ReadStateData] = ()


READ_SHARE_GROUP_STATE_REQUEST = Message(
    84,
    True,
    ReadShareGroupStateRequest,
    (0, 0),
    0,
    {
        PartitionData: (
            Field("partition", "int32"),
            Field("leader_epoch", "int32"),
        ),
        ReadStateData: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionData, array=True),
        ),
        ReadShareGroupStateRequest: (
            Field("group_id", "string"),
            Field("topics", ReadStateData, array=True),
        ),
    },
)


class StateBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0


class PartitionResult(NamedTuple):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    state_batches: Sequence[StateBatch] = ()


class ReadStateResult(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionResult] = ()


class ReadShareGroupStateResponse(NamedTuple):
    results: Sequence[ReadStateResult] = ()


READ_SHARE_GROUP_STATE_RESPONSE = Message(
    84,
    False,
    ReadShareGroupStateResponse,
    (0, 0),
    0,
    {
        StateBatch: (
            Field("first_offset", "int64"),
            Field("last_offset", "int64"),
            Field("delivery_state", "int8"),
            Field("delivery_count", "int16"),
        ),
        PartitionResult: (
            Field("partition", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("state_epoch", "int32"),
            Field("start_offset", "int64"),
            Field("state_batches", StateBatch, array=True),
        ),
        ReadStateResult: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionResult, array=True),
        ),
        ReadShareGroupStateResponse: (Field("results", ReadStateResult, array=True),),
    },
)
