"""join_group, API key 11. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class JoinGroupRequestProtocol(NamedTuple):
    name: str = ""
    metadata: bytes = b""


class JoinGroupRequest(NamedTuple):
    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: Sequence[JoinGroupRequestProtocol] = ()
    reason: str | None = None


JOIN_GROUP_REQUEST = Message(
    11,
    True,
    JoinGroupRequest,
    (0, 9),
    6,
    {
        JoinGroupRequestProtocol: (
            Field("name", "string"),
            Field("metadata", "bytes"),
        ),
        JoinGroupRequest: (
            Field("group_id", "string"),
            Field("session_timeout_ms", "int32"),
            Field("rebalance_timeout_ms", "int32", versions=(1, 9)),
            Field("member_id", "string"),
            Field("group_instance_id", "string", versions=(5, 9), nullable=ALWAYS),
            Field("protocol_type", "string"),
            Field("protocols", JoinGroupRequestProtocol, array=True),
            Field("reason", "string", versions=(8, 9), nullable=ALWAYS),
        ),
    },
)


class JoinGroupResponseMember(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    metadata: bytes = b""


class JoinGroupResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: Sequence[JoinGroupResponseMember] = ()


JOIN_GROUP_RESPONSE = Message(
    11,
    False,
    JoinGroupResponse,
    (0, 9),
    6,
    {
        JoinGroupResponseMember: (
            Field("member_id", "string"),
            Field("group_instance_id", "string", versions=(5, 9), nullable=ALWAYS),
            Field("metadata", "bytes"),
        ),
        JoinGroupResponse: (
            Field("throttle_time_ms", "int32", versions=(2, 9)),
            Field("error_code", "int16"),
            Field("generation_id", "int32"),
            Field("protocol_type", "string", versions=(7, 9), nullable=ALWAYS),
            Field("protocol_name", "string", nullable=(7, 9)),
            Field("leader", "string"),
            Field("skip_assignment", "bool", versions=(9, 9)),
            Field("member_id", "string"),
            Field("members", JoinGroupResponseMember, array=True),
        ),
    },
)
