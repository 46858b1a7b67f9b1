"""write_share_group_state, API key 85. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class StateBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0


class PartitionData(NamedTuple):
    partition: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    state_batches: Sequence[StateBatch] = ()


class WriteStateData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class WriteShareGroupStateRequest(NamedTuple):
    group_id: str = ""
    topics: Sequence[WriteStateData] = ()


WRITE_SHARE_GROUP_STATE_REQUEST = Message(
    85,
    True,
    WriteShareGroupStateRequest,
    (0, 1),
    0,
    {
        StateBatch: (
            Field("first_offset", "int64"),
            Field("last_offset", "int64"),
            Field("delivery_state", "int8"),
            Field("delivery_count", "int16"),
        ),
        PartitionData: (
            Field("partition", "int32"),
            Field("state_epoch", "int32"),
            Field("leader_epoch", "int32"),
            Field("start_offset", "int64"),
            Field("delivery_complete_count", "int32", versions=(1, 1)),
            Field("state_batches", StateBatch, array=True),
        ),
        WriteStateData: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionData, array=True),
        ),
        WriteShareGroupStateRequest: (
            Field("group_id", "string"),
            Field("topics", WriteStateData, array=True),
        ),
    },
)


class PartitionResult(NamedTuple):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


class WriteStateResult(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionResult] = ()


class WriteShareGroupStateResponse(NamedTuple):
    results: Sequence[WriteStateResult] = ()


WRITE_SHARE_GROUP_STATE_RESPONSE = Message(
    85,
    False,
    WriteShareGroupStateResponse,
    (0, 1),
    0,
    {
        PartitionResult: (
            Field("partition", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        WriteStateResult: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionResult, array=True),
        ),
        WriteShareGroupStateResponse: (Field("results", WriteStateResult, array=True),),
    },
)
