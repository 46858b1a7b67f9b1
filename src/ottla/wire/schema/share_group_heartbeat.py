"""share_group_heartbeat, API key 76. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class ShareGroupHeartbeatRequest(NamedTuple):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: Sequence[str] | None = None


SHARE_GROUP_HEARTBEAT_REQUEST = Message(
    76,
    True,
    ShareGroupHeartbeatRequest,
    (1, 1),
    1,
    {
        ShareGroupHeartbeatRequest: (
            Field("group_id", "string"),
            Field("member_id", "string"),
            Field("member_epoch", "int32"),
            Field("rack_id", "string", nullable=ALWAYS),
            Field("subscribed_topic_names", "string", array=True, nullable=ALWAYS),
        ),
    },
)


class TopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class Assignment(NamedTuple):
    topic_partitions: Sequence[TopicPartitions] = ()


class ShareGroupHeartbeatResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


SHARE_GROUP_HEARTBEAT_RESPONSE = Message(
    76,
    False,
    ShareGroupHeartbeatResponse,
    (1, 1),
    1,
    {
        TopicPartitions: (
            Field("topic_id", "uuid"),
            Field("partitions", "int32", array=True),
        ),
        Assignment: (Field("topic_partitions", TopicPartitions, array=True),),
        ShareGroupHeartbeatResponse: (
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
