"""get_telemetry_subscriptions, API key 71. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ZERO_UUID, Field, Message


class GetTelemetrySubscriptionsRequest(NamedTuple):
    client_instance_id: bytes = ZERO_UUID


GET_TELEMETRY_SUBSCRIPTIONS_REQUEST = Message(
    71,
    True,
    GetTelemetrySubscriptionsRequest,
    (0, 0),
    0,
    {
        GetTelemetrySubscriptionsRequest: (Field("client_instance_id", "uuid"),),
    },
)


class GetTelemetrySubscriptionsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: bytes = ZERO_UUID
    subscription_id: int = 0
    accepted_compression_types: Sequence[int] = ()
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: Sequence[str] = ()


GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE = Message(
    71,
    False,
    GetTelemetrySubscriptionsResponse,
    (0, 0),
    0,
    {
        GetTelemetrySubscriptionsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("client_instance_id", "uuid"),
            Field("subscription_id", "int32"),
            Field("accepted_compression_types", "int8", array=True),
            Field("push_interval_ms", "int32"),
            Field("telemetry_max_bytes", "int32"),
            Field("delta_temporality", "bool"),
            Field("requested_metrics", "string", array=True),
        ),
    },
)
