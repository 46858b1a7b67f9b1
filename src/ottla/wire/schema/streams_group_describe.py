"""streams_group_describe, API key 89. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class StreamsGroupDescribeRequest(NamedTuple):
    group_ids: Sequence[str] = ()
    include_authorized_operations: bool = False


STREAMS_GROUP_DESCRIBE_REQUEST = Message(
    89,
    True,
    StreamsGroupDescribeRequest,
    (0, 0),
    0,
    {
        StreamsGroupDescribeRequest: (
            Field("group_ids", "string", array=True),
            Field("include_authorized_operations", "bool"),
        ),
    },
)


class KeyValue(NamedTuple):
    key: str = ""
    value: str = ""


class TopicInfo(NamedTuple):
    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: Sequence[KeyValue] = ()


class Subtopology(NamedTuple):
    subtopology_id: str = ""
    source_topics: Sequence[str] = ()
    repartition_sink_topics: Sequence[str] = ()
    state_changelog_topics: Sequence[TopicInfo] = ()
    repartition_source_topics: Sequence[TopicInfo] = ()


class Topology(NamedTuple):
    epoch: int = 0
    subtopologies: Sequence[Subtopology] | None = ()


class Endpoint(NamedTuple):
    host: str = ""
    port: int = 0


class TaskOffset(NamedTuple):
    subtopology_id: str = ""
    partition: int = 0
    offset: int = 0


class TaskIds(NamedTuple):
    subtopology_id: str = ""
    partitions: Sequence[int] = ()


class Assignment(NamedTuple):
    active_tasks: Sequence[TaskIds] = ()
    standby_tasks: Sequence[TaskIds] = ()
    warmup_tasks: Sequence[TaskIds] = ()


class Member(NamedTuple):
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue] = ()
    task_offsets: Sequence[TaskOffset] = ()
    task_end_offsets: Sequence[TaskOffset] = ()
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    is_classic: bool = False


class DescribedGroup(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: Topology | None = None
    members: Sequence[Member] = ()
    authorized_operations: int = -2147483648


class StreamsGroupDescribeResponse(NamedTuple):
    throttle_time_ms: int = 0
    groups: Sequence[DescribedGroup] = ()


STREAMS_GROUP_DESCRIBE_RESPONSE = Message(
    89,
    False,
    StreamsGroupDescribeResponse,
    (0, 0),
    0,
    {
        KeyValue: (
            Field("key", "string"),
            Field("value", "string"),
        ),
        TopicInfo: (
            Field("name", "string"),
            Field("partitions", "int32"),
            Field("replication_factor", "int16"),
            Field("topic_configs", KeyValue, array=True),
        ),
        Subtopology: (
            Field("subtopology_id", "string"),
            Field("source_topics", "string", array=True),
            Field("repartition_sink_topics", "string", array=True),
            Field("state_changelog_topics", TopicInfo, array=True),
            Field("repartition_source_topics", TopicInfo, array=True),
        ),
        Topology: (
            Field("epoch", "int32"),
            Field("subtopologies", Subtopology, array=True, nullable=ALWAYS),
        ),
        Endpoint: (
            Field("host", "string"),
            Field("port", "uint16"),
        ),
        TaskOffset: (
            Field("subtopology_id", "string"),
            Field("partition", "int32"),
            Field("offset", "int64"),
        ),
        TaskIds: (
            Field("subtopology_id", "string"),
            Field("partitions", "int32", array=True),
        ),
        Assignment: (
            Field("active_tasks", TaskIds, array=True),
            Field("standby_tasks", TaskIds, array=True),
            Field("warmup_tasks", TaskIds, array=True),
        ),
        Member: (
            Field("member_id", "string"),
            Field("member_epoch", "int32"),
            Field("instance_id", "string", nullable=ALWAYS),
            Field("rack_id", "string", nullable=ALWAYS),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("topology_epoch", "int32"),
            Field("process_id", "string"),
            Field("user_endpoint", Endpoint, nullable=ALWAYS),
            Field("client_tags", KeyValue, array=True),
            Field("task_offsets", TaskOffset, array=True),
            Field("task_end_offsets", TaskOffset, array=True),
            Field("assignment", Assignment),
            Field("target_assignment", Assignment),
            Field("is_classic", "bool"),
        ),
        DescribedGroup: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("group_id", "string"),
            Field("group_state", "string"),
            Field("group_epoch", "int32"),
            Field("assignment_epoch", "int32"),
            Field("topology", Topology, nullable=ALWAYS),
            Field("members", Member, array=True),
            Field("authorized_operations", "int32"),
        ),
        StreamsGroupDescribeResponse: (
            Field("throttle_time_ms", "int32"),
            Field("groups", DescribedGroup, array=True),
        ),
    },
)
