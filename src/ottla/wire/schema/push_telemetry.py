"""push_telemetry, API key 72. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import ZERO_UUID, Field, Message


class PushTelemetryRequest(NamedTuple):
    client_instance_id: bytes = ZERO_UUID
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes = b""


PUSH_TELEMETRY_REQUEST = Message(
    72,
    True,
    PushTelemetryRequest,
    (0, 0),
    0,
    {
        PushTelemetryRequest: (
            Field("client_instance_id", "uuid"),
            Field("subscription_id", "int32"),
            Field("terminating", "bool"),
            Field("compression_type", "int8"),
            Field("metrics", "bytes"),
        ),
    },
)


class PushTelemetryResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0


PUSH_TELEMETRY_RESPONSE = Message(
    72,
    False,
    PushTelemetryResponse,
    (0, 0),
    0,
    {
        PushTelemetryResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
        ),
    },
)
