"""offset_delete, API key 47. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class OffsetDeleteRequestPartition(NamedTuple):
    partition_index: int = 0


class OffsetDeleteRequestTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[OffsetDeleteRequestPartition] = ()


class OffsetDeleteRequest(NamedTuple):
    group_id: str = ""
    topics: Sequence[OffsetDeleteRequestTopic] = ()


OFFSET_DELETE_REQUEST = Message(
    47,
    True,
    OffsetDeleteRequest,
    (0, 0),
    None,
    {
        OffsetDeleteRequestPartition: (Field("partition_index", "int32"),),
        OffsetDeleteRequestTopic: (
            Field("name", "string"),
            Field("partitions", OffsetDeleteRequestPartition, array=True),
        ),
        OffsetDeleteRequest: (
            Field("group_id", "string"),
            Field("topics", OffsetDeleteRequestTopic, array=True),
        ),
    },
)


class OffsetDeleteResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class OffsetDeleteResponseTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[OffsetDeleteResponsePartition] = ()


class OffsetDeleteResponse(NamedTuple):
    error_code: int = 0
    throttle_time_ms: int = 0
    topics: Sequence[OffsetDeleteResponseTopic] = ()


OFFSET_DELETE_RESPONSE = Message(
    47,
    False,
    OffsetDeleteResponse,
    (0, 0),
    None,
    {
        OffsetDeleteResponsePartition: (
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
        ),
        OffsetDeleteResponseTopic: (
            Field("name", "string"),
            Field("partitions", OffsetDeleteResponsePartition, array=True),
        ),
        OffsetDeleteResponse: (
            Field("error_code", "int16"),
            Field("throttle_time_ms", "int32"),
            Field("topics", OffsetDeleteResponseTopic, array=True),
        ),
    },
)
