"""leave_group, API key 13. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class MemberIdentity(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(NamedTuple):
    group_id: str = ""
    member_id: str = ""
    members: Sequence[MemberIdentity] = ()


LEAVE_GROUP_REQUEST = Message(
    13,
    True,
    LeaveGroupRequest,
    (0, 5),
    4,
    {
        MemberIdentity: (
            Field("member_id", "string", versions=(3, 5)),
            Field("group_instance_id", "string", versions=(3, 5), nullable=ALWAYS),
            Field("reason", "string", versions=(5, 5), nullable=ALWAYS),
        ),
        LeaveGroupRequest: (
            Field("group_id", "string"),
            Field("member_id", "string", versions=(0, 2)),
            Field("members", MemberIdentity, array=True, versions=(3, 5)),
        ),
    },
)


class MemberResponse(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int = 0


class LeaveGroupResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    members: Sequence[MemberResponse] = ()


LEAVE_GROUP_RESPONSE = Message(
    13,
    False,
    LeaveGroupResponse,
    (0, 5),
    4,
    {
        MemberResponse: (
            Field("member_id", "string", versions=(3, 5)),
            Field("group_instance_id", "string", versions=(3, 5), nullable=ALWAYS),
            Field("error_code", "int16", versions=(3, 5)),
        ),
        LeaveGroupResponse: (
            Field("throttle_time_ms", "int32", versions=(1, 5)),
            Field("error_code", "int16"),
            Field("members", MemberResponse, array=True, versions=(3, 5)),
        ),
    },
)
