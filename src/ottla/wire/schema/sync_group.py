"""sync_group, API key 14. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class SyncGroupRequestAssignment(NamedTuple):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupRequest(NamedTuple):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[SyncGroupRequestAssignment] = ()


SYNC_GROUP_REQUEST = Message(
    14,
    True,
    SyncGroupRequest,
    (0, 5),
    4,
    {
        SyncGroupRequestAssignment: (
            Field("member_id", "string"),
            Field("assignment", "bytes"),
        ),
        SyncGroupRequest: (
            Field("group_id", "string"),
            Field("generation_id", "int32"),
            Field("member_id", "string"),
            Field("group_instance_id", "string", versions=(3, 5), nullable=ALWAYS),
            Field("protocol_type", "string", versions=(5, 5), nullable=ALWAYS),
            Field("protocol_name", "string", versions=(5, 5), nullable=ALWAYS),
            Field("assignments", SyncGroupRequestAssignment, array=True),
        ),
    },
)


class SyncGroupResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


SYNC_GROUP_RESPONSE = Message(
    14,
    False,
    SyncGroupResponse,
    (0, 5),
    4,
    {
        SyncGroupResponse: (
            Field("throttle_time_ms", "int32", versions=(1, 5)),
            Field("error_code", "int16"),
            Field("protocol_type", "string", versions=(5, 5), nullable=ALWAYS),
            Field("protocol_name", "string", versions=(5, 5), nullable=ALWAYS),
            Field("assignment", "bytes"),
        ),
    },
)
