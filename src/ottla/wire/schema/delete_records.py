"""delete_records, API key 21. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class DeleteRecordsPartition(NamedTuple):
    partition_index: int = 0
    offset: int = 0


class DeleteRecordsTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[DeleteRecordsPartition] = ()


class DeleteRecordsRequest(NamedTuple):
    topics: Sequence[DeleteRecordsTopic] = ()
    timeout_ms: int = 0


DELETE_RECORDS_REQUEST = Message(
    21,
    True,
    DeleteRecordsRequest,
    (0, 2),
    2,
    {
        DeleteRecordsPartition: (
            Field("partition_index", "int32"),
            Field("offset", "int64"),
        ),
        DeleteRecordsTopic: (
            Field("name", "string"),
            Field("partitions", DeleteRecordsPartition, array=True),
        ),
        DeleteRecordsRequest: (
            Field("topics", DeleteRecordsTopic, array=True),
            Field("timeout_ms", "int32"),
        ),
    },
)


class DeleteRecordsPartitionResult(NamedTuple):
    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0


class DeleteRecordsTopicResult(NamedTuple):
    name: str = ""
    partitions: Sequence[DeleteRecordsPartitionResult] = ()


class DeleteRecordsResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: Sequence[DeleteRecordsTopicResult] = ()


DELETE_RECORDS_RESPONSE = Message(
    21,
    False,
    DeleteRecordsResponse,
    (0, 2),
    2,
    {
        DeleteRecordsPartitionResult: (
            Field("partition_index", "int32"),
            Field("low_watermark", "int64"),
            Field("error_code", "int16"),
        ),
        DeleteRecordsTopicResult: (
            Field("name", "string"),
            Field("partitions", DeleteRecordsPartitionResult, array=True),
        ),
        DeleteRecordsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("topics", DeleteRecordsTopicResult, array=True),
        ),
    },
)
