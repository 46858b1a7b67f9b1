"""offset_fetch, API key 9. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class OffsetFetchRequestTopic(NamedTuple):
    name: str = ""
    partition_indexes: Sequence[int] = ()


class OffsetFetchRequestTopics(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_indexes: Sequence[int] = ()


class OffsetFetchRequestGroup(NamedTuple):
    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: Sequence[OffsetFetchRequestTopics] | None = ()


class OffsetFetchRequest(NamedTuple):
    group_id: str = ""
    topics: Sequence[OffsetFetchRequestTopic] | None = ()
    groups: Sequence[OffsetFetchRequestGroup] = ()
    require_stable: bool = False


OFFSET_FETCH_REQUEST = Message(
    9,
    True,
    OffsetFetchRequest,
    (1, 10),
    6,
    {
        OffsetFetchRequestTopic: (
            Field("name", "string", versions=(1, 7)),
            Field("partition_indexes", "int32", array=True, versions=(1, 7)),
        ),
        OffsetFetchRequestTopics: (
            Field("name", "string", versions=(8, 9)),
            Field("topic_id", "uuid", versions=(10, 10)),
            Field("partition_indexes", "int32", array=True, versions=(8, 10)),
        ),
        OffsetFetchRequestGroup: (
            Field("group_id", "string", versions=(8, 10)),
            Field("member_id", "string", versions=(9, 10), nullable=ALWAYS),
            Field("member_epoch", "int32", versions=(9, 10)),
            Field(
                "topics", OffsetFetchRequestTopics, array=True, versions=(8, 10), nullable=ALWAYS
            ),
        ),
        OffsetFetchRequest: (
            Field("group_id", "string", versions=(1, 7)),
            Field("topics", OffsetFetchRequestTopic, array=True, versions=(1, 7), nullable=(2, 7)),
            Field("groups", OffsetFetchRequestGroup, array=True, versions=(8, 10)),
            Field("require_stable", "bool", versions=(7, 10)),
        ),
    },
)


class OffsetFetchResponsePartition(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class OffsetFetchResponseTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[OffsetFetchResponsePartition] = ()


class OffsetFetchResponsePartitions(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class OffsetFetchResponseTopics(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[OffsetFetchResponsePartitions] = ()


class OffsetFetchResponseGroup(NamedTuple):
    group_id: str = ""
    topics: Sequence[OffsetFetchResponseTopics] = ()
    error_code: int = 0


class OffsetFetchResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: Sequence[OffsetFetchResponseTopic] = ()
    error_code: int = 0
    groups: Sequence[OffsetFetchResponseGroup] = ()


OFFSET_FETCH_RESPONSE = Message(
    9,
    False,
    OffsetFetchResponse,
    (1, 10),
    6,
    {
        OffsetFetchResponsePartition: (
            Field("partition_index", "int32", versions=(1, 7)),
            Field("committed_offset", "int64", versions=(1, 7)),
            Field("committed_leader_epoch", "int32", versions=(5, 7)),
            Field("metadata", "string", versions=(1, 7), nullable=ALWAYS),
            Field("error_code", "int16", versions=(1, 7)),
        ),
        OffsetFetchResponseTopic: (
            Field("name", "string", versions=(1, 7)),
            Field("partitions", OffsetFetchResponsePartition, array=True, versions=(1, 7)),
        ),
        OffsetFetchResponsePartitions: (
            Field("partition_index", "int32", versions=(8, 10)),
            Field("committed_offset", "int64", versions=(8, 10)),
            Field("committed_leader_epoch", "int32", versions=(8, 10)),
            Field("metadata", "string", versions=(8, 10), nullable=ALWAYS),
            Field("error_code", "int16", versions=(8, 10)),
        ),
        OffsetFetchResponseTopics: (
            Field("name", "string", versions=(8, 9)),
            Field("topic_id", "uuid", versions=(10, 10)),
            Field("partitions", OffsetFetchResponsePartitions, array=True, versions=(8, 10)),
        ),
        OffsetFetchResponseGroup: (
            Field("group_id", "string", versions=(8, 10)),
            Field("topics", OffsetFetchResponseTopics, array=True, versions=(8, 10)),
            Field("error_code", "int16", versions=(8, 10)),
        ),
        OffsetFetchResponse: (
            Field("throttle_time_ms", "int32", versions=(3, 10)),
            Field("topics", OffsetFetchResponseTopic, array=True, versions=(1, 7)),
            Field("error_code", "int16", versions=(2, 7)),
            Field("groups", OffsetFetchResponseGroup, array=True, versions=(8, 10)),
        ),
    },
)
