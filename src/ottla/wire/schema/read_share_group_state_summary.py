"""read_share_group_state_summary, API key 87. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class PartitionData(NamedTuple):
    partition: int = 0
    leader_epoch: int = 0


class ReadStateSummaryData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class ReadShareGroupStateSummaryRequest(NamedTuple):
    group_id: str = ""
    topics: Sequence[ReadStateSummaryData] = ()


READ_SHARE_GROUP_STATE_SUMMARY_REQUEST = Message(
    87,
    True,
    ReadShareGroupStateSummaryRequest,
    (0, 1),
    0,
    {
        PartitionData: (
            Field("partition", "int32"),
            Field("leader_epoch", "int32"),
        ),
        ReadStateSummaryData: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionData, array=True),
        ),
        ReadShareGroupStateSummaryRequest: (
            Field("group_id", "string"),
            Field("topics", ReadStateSummaryData, array=True),
        ),
    },
)


class PartitionResult(NamedTuple):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1


class ReadStateSummaryResult(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionResult] = ()


class ReadShareGroupStateSummaryResponse(NamedTuple):
    results: Sequence[ReadStateSummaryResult] = ()


READ_SHARE_GROUP_STATE_SUMMARY_RESPONSE = Message(
    87,
    False,
    ReadShareGroupStateSummaryResponse,
    (0, 1),
    0,
    {
        PartitionResult: (
            Field("partition", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("state_epoch", "int32"),
            Field("leader_epoch", "int32"),
            Field("start_offset", "int64"),
            Field("delivery_complete_count", "int32", versions=(1, 1)),
        ),
        ReadStateSummaryResult: (
            Field("topic_id", "uuid"),
            Field("partitions", PartitionResult, array=True),
        ),
        ReadShareGroupStateSummaryResponse: (Field("results", ReadStateSummaryResult, array=True),),
    },
)
