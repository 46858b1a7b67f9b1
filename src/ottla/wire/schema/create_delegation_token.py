"""create_delegation_token, API key 38. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class CreatableRenewers(NamedTuple):
    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenRequest(NamedTuple):
    owner_principal_type: str | None = ""
    owner_principal_name: str | None = ""
    renewers: Sequence[CreatableRenewers] = ()
    max_lifetime_ms: int = 0


CREATE_DELEGATION_TOKEN_REQUEST = Message(
    38,
    True,
    CreateDelegationTokenRequest,
    (1, 3),
    2,
    {
        CreatableRenewers: (
            Field("principal_type", "string"),
            Field("principal_name", "string"),
        ),
        CreateDelegationTokenRequest: (
            Field("owner_principal_type", "string", versions=(3, 3), nullable=ALWAYS),
            Field("owner_principal_name", "string", versions=(3, 3), nullable=ALWAYS),
            Field("renewers", CreatableRenewers, array=True),
            Field("max_lifetime_ms", "int64"),
        ),
    },
)


class CreateDelegationTokenResponse(NamedTuple):
    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int = 0


CREATE_DELEGATION_TOKEN_RESPONSE = Message(
    38,
    False,
    CreateDelegationTokenResponse,
    (1, 3),
    2,
    {
        CreateDelegationTokenResponse: (
            Field("error_code", "int16"),
            Field("principal_type", "string"),
            Field("principal_name", "string"),
            Field("token_requester_principal_type", "string", versions=(3, 3)),
            Field("token_requester_principal_name", "string", versions=(3, 3)),
            Field("issue_timestamp_ms", "int64"),
            Field("expiry_timestamp_ms", "int64"),
            Field("max_timestamp_ms", "int64"),
            Field("token_id", "string"),
            Field("hmac", "bytes"),
            Field("throttle_time_ms", "int32"),
        ),
    },
)
