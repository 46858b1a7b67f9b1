"""describe_delegation_token, API key 41. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class DescribeDelegationTokenOwner(NamedTuple):
    principal_type: str = ""
    principal_name: str = ""


class DescribeDelegationTokenRequest(NamedTuple):
    owners: Sequence[DescribeDelegationTokenOwner] | None = ()


DESCRIBE_DELEGATION_TOKEN_REQUEST = Message(
    41,
    True,
    DescribeDelegationTokenRequest,
    (1, 3),
    2,
    {
        DescribeDelegationTokenOwner: (
            Field("principal_type", "string"),
            Field("principal_name", "string"),
        ),
        DescribeDelegationTokenRequest: (
            Field("owners", DescribeDelegationTokenOwner, array=True, nullable=ALWAYS),
        ),
    },
)


class DescribedDelegationTokenRenewer(NamedTuple):
    principal_type: str = ""
    principal_name: str = ""


class DescribedDelegationToken(NamedTuple):
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp: int = 0
    expiry_timestamp: int = 0
    max_timestamp: int = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: Sequence[DescribedDelegationTokenRenewer] = ()


class DescribeDelegationTokenResponse(NamedTuple):
    error_code: int = 0
    tokens: Sequence[DescribedDelegationToken] = ()
    throttle_time_ms: int = 0


DESCRIBE_DELEGATION_TOKEN_RESPONSE = Message(
    41,
    False,
    DescribeDelegationTokenResponse,
    (1, 3),
    2,
    {
        DescribedDelegationTokenRenewer: (
            Field("principal_type", "string"),
            Field("principal_name", "string"),
        ),
        DescribedDelegationToken: (
            Field("principal_type", "string"),
            Field("principal_name", "string"),
            Field("token_requester_principal_type", "string", versions=(3, 3)),
            Field("token_requester_principal_name", "string", versions=(3, 3)),
            Field("issue_timestamp", "int64"),
            Field("expiry_timestamp", "int64"),
            Field("max_timestamp", "int64"),
            Field("token_id", "string"),
            Field("hmac", "bytes"),
            Field("renewers", DescribedDelegationTokenRenewer, array=True),
        ),
        DescribeDelegationTokenResponse: (
            Field("error_code", "int16"),
            Field("tokens", DescribedDelegationToken, array=True),
            Field("throttle_time_ms", "int32"),
        ),
    },
)
