"""describe_log_dirs, API key 35. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class DescribableLogDirTopic(NamedTuple):
    topic: str = ""
    partitions: Sequence[int] = ()


class DescribeLogDirsRequest(NamedTuple):
    topics: Sequence[DescribableLogDirTopic] | None = ()


DESCRIBE_LOG_DIRS_REQUEST = Message(
    35,
    True,
    DescribeLogDirsRequest,
    (1, 5),
    2,
    {
        DescribableLogDirTopic: (
            Field("topic", "string"),
            Field("partitions", "int32", array=True),
        ),
        DescribeLogDirsRequest: (
            Field("topics", DescribableLogDirTopic, array=True, nullable=ALWAYS),
        ),
    },
)


class DescribeLogDirsPartition(NamedTuple):
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[DescribeLogDirsPartition] = ()


class DescribeLogDirsResult(NamedTuple):
    error_code: int = 0
    log_dir: str = ""
    topics: Sequence[DescribeLogDirsTopic] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class DescribeLogDirsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    results: Sequence[DescribeLogDirsResult] = ()


DESCRIBE_LOG_DIRS_RESPONSE = Message(
    35,
    False,
    DescribeLogDirsResponse,
    (1, 5),
    2,
    {
        DescribeLogDirsPartition: (
            Field("partition_index", "int32"),
            Field("partition_size", "int64"),
            Field("offset_lag", "int64"),
            Field("is_future_key", "bool"),
        ),
        DescribeLogDirsTopic: (
            Field("name", "string"),
            Field("partitions", DescribeLogDirsPartition, array=True),
        ),
        DescribeLogDirsResult: (
            Field("error_code", "int16"),
            Field("log_dir", "string"),
            Field("topics", DescribeLogDirsTopic, array=True),
            Field("total_bytes", "int64", versions=(4, 5)),
            Field("usable_bytes", "int64", versions=(4, 5)),
            Field("is_cordoned", "bool", versions=(5, 5)),
        ),
        DescribeLogDirsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16", versions=(3, 5)),
            Field("results", DescribeLogDirsResult, array=True),
        ),
    },
)
