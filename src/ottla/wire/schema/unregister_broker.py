"""unregister_broker, API key 64. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class UnregisterBrokerRequest(NamedTuple):
    broker_id: int = 0


UNREGISTER_BROKER_REQUEST = Message(
    64,
    True,
    UnregisterBrokerRequest,
    (0, 0),
    0,
    {
        UnregisterBrokerRequest: (Field("broker_id", "int32"),),
    },
)


class UnregisterBrokerResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""


UNREGISTER_BROKER_RESPONSE = Message(
    64,
    False,
    UnregisterBrokerResponse,
    (0, 0),
    0,
    {
        UnregisterBrokerResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
    },
)
