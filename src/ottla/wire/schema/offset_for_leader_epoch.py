"""offset_for_leader_epoch, API key 23. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class OffsetForLeaderPartition(NamedTuple):
    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0


class OffsetForLeaderTopic(NamedTuple):
    topic: str = ""
    partitions: Sequence[OffsetForLeaderPartition] = ()


class OffsetForLeaderEpochRequest(NamedTuple):
    replica_id: int = -2
    topics: Sequence[OffsetForLeaderTopic] = ()


OFFSET_FOR_LEADER_EPOCH_REQUEST = Message(
    23,
    True,
    OffsetForLeaderEpochRequest,
    (2, 4),
    4,
    {
        OffsetForLeaderPartition: (
            Field("partition", "int32"),
            Field("current_leader_epoch", "int32"),
            Field("leader_epoch", "int32"),
        ),
        OffsetForLeaderTopic: (
            Field("topic", "string"),
            Field("partitions", OffsetForLeaderPartition, array=True),
        ),
        OffsetForLeaderEpochRequest: (
            Field("replica_id", "int32", versions=(3, 4)),
            Field("topics", OffsetForLeaderTopic, array=True),
        ),
    },
)


class EpochEndOffset(NamedTuple):
    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderTopicResult(NamedTuple):
    topic: str = ""
    partitions: Sequence[EpochEndOffset] = ()


class OffsetForLeaderEpochResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: Sequence[OffsetForLeaderTopicResult] = ()


OFFSET_FOR_LEADER_EPOCH_RESPONSE = Message(
    23,
    False,
    OffsetForLeaderEpochResponse,
    (2, 4),
    4,
    {
        EpochEndOffset: (
            Field("error_code", "int16"),
            Field("partition", "int32"),
            Field("leader_epoch", "int32"),
            Field("end_offset", "int64"),
        ),
        OffsetForLeaderTopicResult: (
            Field("topic", "string"),
            Field("partitions", EpochEndOffset, array=True),
        ),
        OffsetForLeaderEpochResponse: (
            Field("throttle_time_ms", "int32"),
            Field("topics", OffsetForLeaderTopicResult, array=True),
        ),
    },
)
