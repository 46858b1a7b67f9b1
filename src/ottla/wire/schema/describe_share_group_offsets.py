"""describe_share_group_offsets, API key 90. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class DescribeShareGroupOffsetsRequestTopic(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[int] = ()


class DescribeShareGroupOffsetsRequestGroup(NamedTuple):
    group_id: str = ""
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = ()


class DescribeShareGroupOffsetsRequest(NamedTuple):
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = ()
    from_leader: bool = False
    window_runs: int = 0


DESCRIBE_SHARE_GROUP_OFFSETS_REQUEST = Message(
    90,
    True,
    DescribeShareGroupOffsetsRequest,
    (0, 1),
    0,
    {
        DescribeShareGroupOffsetsRequestTopic: (
            Field("topic_name", "string"),
            Field("partitions", "int32", array=True),
        ),
        DescribeShareGroupOffsetsRequestGroup: (
            Field("group_id", "string"),
            Field("topics", DescribeShareGroupOffsetsRequestTopic, array=True, nullable=ALWAYS),
        ),
        DescribeShareGroupOffsetsRequest: (
            Field("groups", DescribeShareGroupOffsetsRequestGroup, array=True),
            Field("from_leader", "bool", tag=10000),
            Field("window_runs", "int32", tag=10001),
        ),
    },
)


class ShareWindowRun(NamedTuple):
    first: int = 0
    last: int = 0
    state: int = 0
    delivery_count: int = 0
    member: int = 0
    lock_ms: int = 0


class DescribeShareGroupOffsetsResponsePartition(NamedTuple):
    partition_index: int = 0
    start_offset: int = 0
    leader_epoch: int = 0
    lag: int = -1
    error_code: int = 0
    error_message: str | None = None
    in_flight: int = -1
    delivery_complete_count: int = -1
    window: Sequence[ShareWindowRun] = ()
    members: Sequence[str] = ()
    end_offset: int = -1
    window_cut: bool = False
    stalled_ms: int = -1


class DescribeShareGroupOffsetsResponseTopic(NamedTuple):
    topic_name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = ()


class DescribeShareGroupOffsetsResponseGroup(NamedTuple):
    group_id: str = ""
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = ()
    error_code: int = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponse(NamedTuple):
    throttle_time_ms: int = 0
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = ()


DESCRIBE_SHARE_GROUP_OFFSETS_RESPONSE = Message(
    90,
    False,
    DescribeShareGroupOffsetsResponse,
    (0, 1),
    0,
    {
        ShareWindowRun: (
            Field("first", "int64"),
            Field("last", "int64"),
            Field("state", "int8"),
            Field("delivery_count", "int16"),
            Field("member", "int16"),
            Field("lock_ms", "int32"),
        ),
        DescribeShareGroupOffsetsResponsePartition: (
            Field("partition_index", "int32"),
            Field("start_offset", "int64"),
            Field("leader_epoch", "int32"),
            Field("lag", "int64", versions=(1, 1)),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("in_flight", "int64", tag=10000),
            Field("delivery_complete_count", "int64", tag=10001),
            Field("window", ShareWindowRun, array=True, tag=10002),
            Field("members", "string", array=True, tag=10003),
            Field("end_offset", "int64", tag=10004),
            Field("window_cut", "bool", tag=10005),
            Field("stalled_ms", "int64", tag=10006),
        ),
        DescribeShareGroupOffsetsResponseTopic: (
            Field("topic_name", "string"),
            Field("topic_id", "uuid"),
            Field("partitions", DescribeShareGroupOffsetsResponsePartition, array=True),
        ),
        DescribeShareGroupOffsetsResponseGroup: (
            Field("group_id", "string"),
            Field("topics", DescribeShareGroupOffsetsResponseTopic, array=True),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        DescribeShareGroupOffsetsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("groups", DescribeShareGroupOffsetsResponseGroup, array=True),
        ),
    },
)
