"""controller_registration, API key 70. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, ZERO_UUID, Field, Message


class Listener(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


class Feature(NamedTuple):
    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


class ControllerRegistrationRequest(NamedTuple):
    controller_id: int = 0
    incarnation_id: bytes = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: Sequence[Listener] = ()
    features: Sequence[Feature] = ()


CONTROLLER_REGISTRATION_REQUEST = Message(
    70,
    True,
    ControllerRegistrationRequest,
    (0, 0),
    0,
    {
        Listener: (
            Field("name", "string"),
            Field("host", "string"),
            Field("port", "uint16"),
            Field("security_protocol", "int16"),
        ),
        Feature: (
            Field("name", "string"),
            Field("min_supported_version", "int16"),
            Field("max_supported_version", "int16"),
        ),
        ControllerRegistrationRequest: (
            Field("controller_id", "int32"),
            Field("incarnation_id", "uuid"),
            Field("zk_migration_ready", "bool"),
            Field("listeners", Listener, array=True),
            Field("features", Feature, array=True),
        ),
    },
)


class ControllerRegistrationResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""


CONTROLLER_REGISTRATION_RESPONSE = Message(
    70,
    False,
    ControllerRegistrationResponse,
    (0, 0),
    0,
    {
        ControllerRegistrationResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
    },
)
