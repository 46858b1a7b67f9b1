"""envelope, API key 58. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class EnvelopeRequest(NamedTuple):
    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


ENVELOPE_REQUEST = Message(
    58,
    True,
    EnvelopeRequest,
    (0, 0),
    0,
    {
        EnvelopeRequest: (
            Field("request_data", "bytes"),
            Field("request_principal", "bytes", nullable=ALWAYS),
            Field("client_host_address", "bytes"),
        ),
    },
)


class EnvelopeResponse(NamedTuple):
    response_data: bytes | None = None
    error_code: int = 0


ENVELOPE_RESPONSE = Message(
    58,
    False,
    EnvelopeResponse,
    (0, 0),
    0,
    {
        EnvelopeResponse: (
            Field("response_data", "bytes", nullable=ALWAYS),
            Field("error_code", "int16"),
        ),
    },
)
