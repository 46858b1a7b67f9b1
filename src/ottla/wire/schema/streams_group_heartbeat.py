"""streams_group_heartbeat, API key 88. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class KeyValue(NamedTuple):
    key: str = ""
    value: str = ""


class TopicInfo(NamedTuple):
    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: Sequence[KeyValue] = ()


class CopartitionGroup(NamedTuple):
    source_topics: Sequence[int] = ()
    source_topic_regex: Sequence[int] = ()
    repartition_source_topics: Sequence[int] = ()


class Subtopology(NamedTuple):
    subtopology_id: str = ""
    source_topics: Sequence[str] = ()
    source_topic_regex: Sequence[str] = ()
    state_changelog_topics: Sequence[TopicInfo] = ()
    repartition_sink_topics: Sequence[str] = ()
    repartition_source_topics: Sequence[TopicInfo] = ()
    copartition_groups: Sequence[CopartitionGroup] = ()


class Topology(NamedTuple):
    epoch: int = 0
    subtopologies: Sequence[Subtopology] = ()


class RequestTaskIds(NamedTuple):
    subtopology_id: str = ""
    partitions: Sequence[int] = ()


class RequestEndpoint(NamedTuple):
    host: str = ""
    port: int = 0


class TaskOffset(NamedTuple):
    subtopology_id: str = ""
    partition: int = 0
    offset: int = 0


class StreamsGroupHeartbeatRequest(NamedTuple):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: Sequence[RequestTaskIds] | None = ()
    standby_tasks: Sequence[RequestTaskIds] | None = ()
    warmup_tasks: Sequence[RequestTaskIds] | None = ()
    process_id: str | None = None
    user_endpoint: RequestEndpoint | None = None
    client_tags: Sequence[KeyValue] | None = ()
    task_offsets: Sequence[TaskOffset] | None = ()
    task_end_offsets: Sequence[TaskOffset] | None = ()
    shutdown_application: bool = False


STREAMS_GROUP_HEARTBEAT_REQUEST = Message(
    88,
    True,
    StreamsGroupHeartbeatRequest,
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
        CopartitionGroup: (
            Field("source_topics", "int16", array=True),
            Field("source_topic_regex", "int16", array=True),
            Field("repartition_source_topics", "int16", array=True),
        ),
        Subtopology: (
            Field("subtopology_id", "string"),
            Field("source_topics", "string", array=True),
            Field("source_topic_regex", "string", array=True),
            Field("state_changelog_topics", TopicInfo, array=True),
            Field("repartition_sink_topics", "string", array=True),
            Field("repartition_source_topics", TopicInfo, array=True),
            Field("copartition_groups", CopartitionGroup, array=True),
        ),
        Topology: (
            Field("epoch", "int32"),
            Field("subtopologies", Subtopology, array=True),
        ),
        RequestTaskIds: (
            Field("subtopology_id", "string"),
            Field("partitions", "int32", array=True),
        ),
        RequestEndpoint: (
            Field("host", "string"),
            Field("port", "uint16"),
        ),
        TaskOffset: (
            Field("subtopology_id", "string"),
            Field("partition", "int32"),
            Field("offset", "int64"),
        ),
        StreamsGroupHeartbeatRequest: (
            Field("group_id", "string"),
            Field("member_id", "string"),
            Field("member_epoch", "int32"),
            Field("endpoint_information_epoch", "int32"),
            Field("instance_id", "string", nullable=ALWAYS),
            Field("rack_id", "string", nullable=ALWAYS),
            Field("rebalance_timeout_ms", "int32"),
            Field("topology", Topology, nullable=ALWAYS),
            Field("active_tasks", RequestTaskIds, array=True, nullable=ALWAYS),
            Field("standby_tasks", RequestTaskIds, array=True, nullable=ALWAYS),
            Field("warmup_tasks", RequestTaskIds, array=True, nullable=ALWAYS),
            Field("process_id", "string", nullable=ALWAYS),
            Field("user_endpoint", RequestEndpoint, nullable=ALWAYS),
            Field("client_tags", KeyValue, array=True, nullable=ALWAYS),
            Field("task_offsets", TaskOffset, array=True, nullable=ALWAYS),
            Field("task_end_offsets", TaskOffset, array=True, nullable=ALWAYS),
            Field("shutdown_application", "bool"),
        ),
    },
)


class Status(NamedTuple):
    status_code: int = 0
    status_detail: str = ""


class ResponseTaskIds(NamedTuple):
    subtopology_id: str = ""
    partitions: Sequence[int] = ()


class ResponseEndpoint(NamedTuple):
    host: str = ""
    port: int = 0


class TopicPartition(NamedTuple):
    topic: str = ""
    partitions: Sequence[int] = ()


class EndpointToPartitions(NamedTuple):
    user_endpoint: ResponseEndpoint = ResponseEndpoint()
    active_partitions: Sequence[TopicPartition] = ()
    standby_partitions: Sequence[TopicPartition] = ()


class StreamsGroupHeartbeatResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    task_offset_interval_ms: int = 0
    status: Sequence[Status] | None = ()
    active_tasks: Sequence[ResponseTaskIds] | None = ()
    standby_tasks: Sequence[ResponseTaskIds] | None = ()
    warmup_tasks: Sequence[ResponseTaskIds] | None = ()
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: Sequence[EndpointToPartitions] | None = ()


STREAMS_GROUP_HEARTBEAT_RESPONSE = Message(
    88,
    False,
    StreamsGroupHeartbeatResponse,
    (0, 0),
    0,
    {
        Status: (
            Field("status_code", "int8"),
            Field("status_detail", "string"),
        ),
        ResponseTaskIds: (
            Field("subtopology_id", "string"),
            Field("partitions", "int32", array=True),
        ),
        ResponseEndpoint: (
            Field("host", "string"),
            Field("port", "uint16"),
        ),
        TopicPartition: (
            Field("topic", "string"),
            Field("partitions", "int32", array=True),
        ),
        EndpointToPartitions: (
            Field("user_endpoint", ResponseEndpoint),
            Field("active_partitions", TopicPartition, array=True),
            Field("standby_partitions", TopicPartition, array=True),
        ),
        StreamsGroupHeartbeatResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("member_id", "string"),
            Field("member_epoch", "int32"),
            Field("heartbeat_interval_ms", "int32"),
            Field("acceptable_recovery_lag", "int32"),
            Field("task_offset_interval_ms", "int32"),
            Field("status", Status, array=True, nullable=ALWAYS),
            Field("active_tasks", ResponseTaskIds, array=True, nullable=ALWAYS),
            Field("standby_tasks", ResponseTaskIds, array=True, nullable=ALWAYS),
            Field("warmup_tasks", ResponseTaskIds, array=True, nullable=ALWAYS),
            Field("endpoint_information_epoch", "int32"),
            Field("partitions_by_user_endpoint", EndpointToPartitions, array=True, nullable=ALWAYS),
        ),
    },
)
