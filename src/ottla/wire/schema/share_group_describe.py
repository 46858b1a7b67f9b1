"""share_group_describe, API key 77. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class ShareGroupDescribeRequest(NamedTuple):
    group_ids: Sequence[str] = ()
    include_authorized_operations: bool = False


SHARE_GROUP_DESCRIBE_REQUEST = Message(
    77,
    True,
    ShareGroupDescribeRequest,
    (1, 1),
    1,
    {
        ShareGroupDescribeRequest: (
            Field("group_ids", "string", array=True),
            Field("include_authorized_operations", "bool"),
        ),
    },
)


class TopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""
    partitions: Sequence[int] = ()


class Assignment(NamedTuple):
    topic_partitions: Sequence[TopicPartitions] = ()


class Member(NamedTuple):
    member_id: str = ""
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()
    assignment: Assignment = Assignment()


class DescribedGroup(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[Member] = ()
    authorized_operations: int = -2147483648


class ShareGroupDescribeResponse(NamedTuple):
    throttle_time_ms: int = 0
    groups: Sequence[DescribedGroup] = ()


SHARE_GROUP_DESCRIBE_RESPONSE = Message(
    77,
    False,
    ShareGroupDescribeResponse,
    (1, 1),
    1,
    {
        TopicPartitions: (
            Field("topic_id", "uuid"),
            Field("topic_name", "string"),
            Field("partitions", "int32", array=True),
        ),
        Assignment: (Field("topic_partitions", TopicPartitions, array=True),),
        Member: (
            Field("member_id", "string"),
            Field("rack_id", "string", nullable=ALWAYS),
            Field("member_epoch", "int32"),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("subscribed_topic_names", "string", array=True),
            Field("assignment", Assignment),
        ),
        DescribedGroup: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("group_id", "string"),
            Field("group_state", "string"),
            Field("group_epoch", "int32"),
            Field("assignment_epoch", "int32"),
            Field("assignor_name", "string"),
            Field("members", Member, array=True),
            Field("authorized_operations", "int32"),
        ),
        ShareGroupDescribeResponse: (
            Field("throttle_time_ms", "int32"),
            Field("groups", DescribedGroup, array=True),
        ),
    },
)
