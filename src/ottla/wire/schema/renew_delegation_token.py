"""renew_delegation_token, API key 39. Made by scripts/generate_schema.py; do not edit."""

from typing import NamedTuple

from ottla.wire.spec import Field, Message


class RenewDelegationTokenRequest(NamedTuple):
    hmac: bytes = b""
    renew_period_ms: int = 0


RENEW_DELEGATION_TOKEN_REQUEST = Message(
    39,
    True,
    RenewDelegationTokenRequest,
    (1, 2),
    2,
    {
        RenewDelegationTokenRequest: (
            Field("hmac", "bytes"),
            Field("renew_period_ms", "int64"),
        ),
    },
)


class RenewDelegationTokenResponse(NamedTuple):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0


RENEW_DELEGATION_TOKEN_RESPONSE = Message(
    39,
    False,
    RenewDelegationTokenResponse,
    (1, 2),
    2,
    {
        RenewDelegationTokenResponse: (
            Field("error_code", "int16"),
            Field("expiry_timestamp_ms", "int64"),
            Field("throttle_time_ms", "int32"),
        ),
    },
)
