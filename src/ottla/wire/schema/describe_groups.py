"""describe_groups, API key 15. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class DescribeGroupsRequest(NamedTuple):
    groups: Sequence[str] = ()
    include_authorized_operations: bool = False


DESCRIBE_GROUPS_REQUEST = Message(
    15,
    True,
    DescribeGroupsRequest,
    (0, 6),
    5,
    {
        DescribeGroupsRequest: (
            Field("groups", "string", array=True),
            Field("include_authorized_operations", "bool", versions=(3, 6)),
        ),
    },
)


class DescribedGroupMember(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedGroupMember] = ()
    authorized_operations: int = -2147483648


class DescribeGroupsResponse(NamedTuple):
    throttle_time_ms: int = 0
    groups: Sequence[DescribedGroup] = ()


DESCRIBE_GROUPS_RESPONSE = Message(
    15,
    False,
    DescribeGroupsResponse,
    (0, 6),
    5,
    {
        DescribedGroupMember: (
            Field("member_id", "string"),
            Field("group_instance_id", "string", versions=(4, 6), nullable=ALWAYS),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("member_metadata", "bytes"),
            Field("member_assignment", "bytes"),
        ),
        DescribedGroup: (
            Field("error_code", "int16"),
            Field("error_message", "string", versions=(6, 6), nullable=ALWAYS),
            Field("group_id", "string"),
            Field("group_state", "string"),
            Field("protocol_type", "string"),
            Field("protocol_data", "string"),
            Field("members", DescribedGroupMember, array=True),
            Field("authorized_operations", "int32", versions=(3, 6)),
        ),
        DescribeGroupsResponse: (
            Field("throttle_time_ms", "int32", versions=(1, 6)),
            Field("groups", DescribedGroup, array=True),
        ),
    },
)
