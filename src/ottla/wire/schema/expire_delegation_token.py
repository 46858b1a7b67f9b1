"""expire_delegation_token, API key 40. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import Field, Message


class ExpireDelegationTokenRequest(NamedTuple):
    hmac: bytes = b""
    expiry_time_period_ms: int = 0


EXPIRE_DELEGATION_TOKEN_REQUEST = Message(
    40,
    True,
    ExpireDelegationTokenRequest,
    (1, 2),
    2,
    {
        ExpireDelegationTokenRequest: (
            Field("hmac", "bytes"),
            Field("expiry_time_period_ms", "int64"),
        ),
    },
)


class ExpireDelegationTokenResponse(NamedTuple):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0


EXPIRE_DELEGATION_TOKEN_RESPONSE = Message(
    40,
    False,
    ExpireDelegationTokenResponse,
    (1, 2),
    2,
    {
        ExpireDelegationTokenResponse: (
            Field("error_code", "int16"),
            Field("expiry_timestamp_ms", "int64"),
            Field("throttle_time_ms", "int32"),
        ),
    },
)
