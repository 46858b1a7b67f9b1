"""list_partition_reassignments, API key 46. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class ListPartitionReassignmentsTopics(NamedTuple):
    name: str = ""
    partition_indexes: Sequence[int] = ()


class ListPartitionReassignmentsRequest(NamedTuple):
    timeout_ms: int = 60000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = ()


LIST_PARTITION_REASSIGNMENTS_REQUEST = Message(
    46,
    True,
    ListPartitionReassignmentsRequest,
    (0, 0),
    0,
    {
        ListPartitionReassignmentsTopics: (
            Field("name", "string"),
            Field("partition_indexes", "int32", array=True),
        ),
        ListPartitionReassignmentsRequest: (
            Field("timeout_ms", "int32"),
            Field("topics", ListPartitionReassignmentsTopics, array=True, nullable=ALWAYS),
        ),
    },
)


class OngoingPartitionReassignment(NamedTuple):
    partition_index: int = 0
    replicas: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()


class OngoingTopicReassignment(NamedTuple):
    name: str = ""
    partitions: Sequence[OngoingPartitionReassignment] = ()


class ListPartitionReassignmentsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: Sequence[OngoingTopicReassignment] = ()


LIST_PARTITION_REASSIGNMENTS_RESPONSE = Message(
    46,
    False,
    ListPartitionReassignmentsResponse,
    (0, 0),
    0,
    {
        OngoingPartitionReassignment: (
            Field("partition_index", "int32"),
            Field("replicas", "int32", array=True),
            Field("adding_replicas", "int32", array=True),
            Field("removing_replicas", "int32", array=True),
        ),
        OngoingTopicReassignment: (
            Field("name", "string"),
            Field("partitions", OngoingPartitionReassignment, array=True),
        ),
        ListPartitionReassignmentsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("topics", OngoingTopicReassignment, array=True),
        ),
    },
)
