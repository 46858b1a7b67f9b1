"""sasl_authenticate, API key 36. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class SaslAuthenticateRequest(NamedTuple):
    auth_bytes: bytes = b""


SASL_AUTHENTICATE_REQUEST = Message(
    36,
    True,
    SaslAuthenticateRequest,
    (0, 2),
    2,
    {
        SaslAuthenticateRequest: (Field("auth_bytes", "bytes"),),
    },
)


class SaslAuthenticateResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


SASL_AUTHENTICATE_RESPONSE = Message(
    36,
    False,
    SaslAuthenticateResponse,
    (0, 2),
    2,
    {
        SaslAuthenticateResponse: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("auth_bytes", "bytes"),
            Field("session_lifetime_ms", "int64", versions=(1, 2)),
        ),
    },
)
