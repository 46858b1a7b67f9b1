"""heartbeat, API key 12. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class HeartbeatRequest(NamedTuple):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None


HEARTBEAT_REQUEST = Message(
    12,
    True,
    HeartbeatRequest,
    (0, 4),
    4,
    {
        HeartbeatRequest: (
            Field("group_id", "string"),
            Field("generation_id", "int32"),
            Field("member_id", "string"),
            Field("group_instance_id", "string", versions=(3, 4), nullable=ALWAYS),
        ),
    },
)


class HeartbeatResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0


HEARTBEAT_RESPONSE = Message(
    12,
    False,
    HeartbeatResponse,
    (0, 4),
    4,
    {
        HeartbeatResponse: (
            Field("throttle_time_ms", "int32", versions=(1, 4)),
            Field("error_code", "int16"),
        ),
    },
)
