"""find_coordinator, API key 10. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class FindCoordinatorRequest(NamedTuple):
    key: str = ""
    key_type: int = 0
    coordinator_keys: Sequence[str] = ()


FIND_COORDINATOR_REQUEST = Message(
    10,
    True,
    FindCoordinatorRequest,
    (0, 6),
    3,
    {
        FindCoordinatorRequest: (
            Field("key", "string", versions=(0, 3)),
            Field("key_type", "int8", versions=(1, 6)),
            Field("coordinator_keys", "string", array=True, versions=(4, 6)),
        ),
    },
)


class Coordinator(NamedTuple):
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""


class FindCoordinatorResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: Sequence[Coordinator] = ()


FIND_COORDINATOR_RESPONSE = Message(
    10,
    False,
    FindCoordinatorResponse,
    (0, 6),
    3,
    {
        Coordinator: (
            Field("key", "string", versions=(4, 6)),
            Field("node_id", "int32", versions=(4, 6)),
            Field("host", "string", versions=(4, 6)),
            Field("port", "int32", versions=(4, 6)),
            Field("error_code", "int16", versions=(4, 6)),
            Field("error_message", "string", versions=(4, 6), nullable=ALWAYS),
        ),
        FindCoordinatorResponse: (
            Field("throttle_time_ms", "int32", versions=(1, 6)),
            Field("error_code", "int16", versions=(0, 3)),
            Field("error_message", "string", versions=(1, 3), nullable=ALWAYS),
            Field("node_id", "int32", versions=(0, 3)),
            Field("host", "string", versions=(0, 3)),
            Field("port", "int32", versions=(0, 3)),
            Field("coordinators", Coordinator, array=True, versions=(4, 6)),
        ),
    },
)
