"""broker_registration, API key 62. Made by scripts/generate_schema.py; do not edit."""

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


class BrokerRegistrationRequest(NamedTuple):
    broker_id: int = 0
    cluster_id: str = ""
    incarnation_id: bytes = ZERO_UUID
    listeners: Sequence[Listener] = ()
    features: Sequence[Feature] = ()
    rack: str | None = ""
    is_migrating_zk_broker: bool = False
    log_dirs: Sequence[bytes] = ()
    previous_broker_epoch: int = -1


BROKER_REGISTRATION_REQUEST = Message(
    62,
    True,
    BrokerRegistrationRequest,
    (0, 4),
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
        BrokerRegistrationRequest: (
            Field("broker_id", "int32"),
            Field("cluster_id", "string"),
            Field("incarnation_id", "uuid"),
            Field("listeners", Listener, array=True),
            Field("features", Feature, array=True),
            Field("rack", "string", nullable=ALWAYS),
            Field("is_migrating_zk_broker", "bool", versions=(1, 4)),
            Field("log_dirs", "uuid", array=True, versions=(2, 4)),
            Field("previous_broker_epoch", "int64", versions=(3, 4)),
        ),
    },
)


class BrokerRegistrationResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    broker_epoch: int = -1


BROKER_REGISTRATION_RESPONSE = Message(
    62,
    False,
    BrokerRegistrationResponse,
    (0, 4),
    0,
    {
        BrokerRegistrationResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("broker_epoch", "int64"),
        ),
    },
)
