"""broker_heartbeat, API key 63. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class BrokerHeartbeatRequest(NamedTuple):
    broker_id: int = 0
    broker_epoch: int = -1
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Sequence[bytes] = ()
    cordoned_log_dirs: Sequence[bytes] | None = None


BROKER_HEARTBEAT_REQUEST = Message(
    63,
    True,
    BrokerHeartbeatRequest,
    (0, 2),
    0,
    {
        BrokerHeartbeatRequest: (
            Field("broker_id", "int32"),
            Field("broker_epoch", "int64"),
            Field("current_metadata_offset", "int64"),
            Field("want_fence", "bool"),
            Field("want_shut_down", "bool"),
            Field("offline_log_dirs", "uuid", array=True, versions=(1, 2), tag=0),
            Field("cordoned_log_dirs", "uuid", array=True, versions=(2, 2), nullable=ALWAYS, tag=1),
        ),
    },
)


class BrokerHeartbeatResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


BROKER_HEARTBEAT_RESPONSE = Message(
    63,
    False,
    BrokerHeartbeatResponse,
    (0, 2),
    0,
    {
        BrokerHeartbeatResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("is_caught_up", "bool"),
            Field("is_fenced", "bool"),
            Field("should_shut_down", "bool"),
        ),
    },
)
