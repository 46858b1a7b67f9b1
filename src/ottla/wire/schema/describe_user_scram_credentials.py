"""describe_user_scram_credentials, API key 50. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class UserName(NamedTuple):
    name: str = ""


class DescribeUserScramCredentialsRequest(NamedTuple):
    users: Sequence[UserName] | None = ()


DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST = Message(
    50,
    True,
    DescribeUserScramCredentialsRequest,
    (0, 0),
    0,
    {
        UserName: (Field("name", "string"),),
        DescribeUserScramCredentialsRequest: (
            Field("users", UserName, array=True, nullable=ALWAYS),
        ),
    },
)


class CredentialInfo(NamedTuple):
    mechanism: int = 0
    iterations: int = 0


class DescribeUserScramCredentialsResult(NamedTuple):
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""
    credential_infos: Sequence[CredentialInfo] = ()


class DescribeUserScramCredentialsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: Sequence[DescribeUserScramCredentialsResult] = ()


DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE = Message(
    50,
    False,
    DescribeUserScramCredentialsResponse,
    (0, 0),
    0,
    {
        CredentialInfo: (
            Field("mechanism", "int8"),
            Field("iterations", "int32"),
        ),
        DescribeUserScramCredentialsResult: (
            Field("user", "string"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("credential_infos", CredentialInfo, array=True),
        ),
        DescribeUserScramCredentialsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("results", DescribeUserScramCredentialsResult, array=True),
        ),
    },
)
