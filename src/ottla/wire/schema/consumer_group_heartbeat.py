"""consumer_group_heartbeat, API key 68. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class RequestTopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class ConsumerGroupHeartbeatRequest(NamedTuple):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: Sequence[RequestTopicPartitions] | None = ()


CONSUMER_GROUP_HEARTBEAT_REQUEST = Message(
    68,
    True,
    ConsumerGroupHeartbeatRequest,
    (0, 1),
    0,
    {
        RequestTopicPartitions: (
            Field("topic_id", "uuid"),
            Field("partitions", "int32", array=True),
        ),
        ConsumerGroupHeartbeatRequest: (
            Field("group_id", "string"),
            Field("member_id", "string"),
            Field("member_epoch", "int32"),
            Field("instance_id", "string", nullable=ALWAYS),
            Field("rack_id", "string", nullable=ALWAYS),
            Field("rebalance_timeout_ms", "int32"),
            Field("subscribed_topic_names", "string", array=True, nullable=ALWAYS),
            Field("subscribed_topic_regex", "string", versions=(1, 1), nullable=ALWAYS),
            Field("server_assignor", "string", nullable=ALWAYS),
            Field("topic_partitions", RequestTopicPartitions, array=True, nullable=ALWAYS),
        ),
    },
)


class ResponseTopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class Assignment(NamedTuple):
    topic_partitions: Sequence[ResponseTopicPartitions] = ()


class ConsumerGroupHeartbeatResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


CONSUMER_GROUP_HEARTBEAT_RESPONSE = Message(
    68,
    False,
    ConsumerGroupHeartbeatResponse,
    (0, 1),
    0,
    {
        ResponseTopicPartitions: (
            Field("topic_id", "uuid"),
            Field("partitions", "int32", array=True),
        ),
        Assignment: (Field("topic_partitions", ResponseTopicPartitions, array=True),),
        ConsumerGroupHeartbeatResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("member_id", "string", nullable=ALWAYS),
            Field("member_epoch", "int32"),
            Field("heartbeat_interval_ms", "int32"),
            Field("assignment", Assignment, nullable=ALWAYS),
        ),
    },
)
