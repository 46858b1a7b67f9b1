"""alter_user_scram_credentials, API key 51. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class ScramCredentialDeletion(NamedTuple):
    name: str = ""
    mechanism: int = 0


class ScramCredentialUpsertion(NamedTuple):
    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsRequest(NamedTuple):
    deletions: Sequence[ScramCredentialDeletion] = ()
    upsertions: Sequence[ScramCredentialUpsertion] = ()


ALTER_USER_SCRAM_CREDENTIALS_REQUEST = Message(
    51,
    True,
    AlterUserScramCredentialsRequest,
    (0, 0),
    0,
    {
        ScramCredentialDeletion: (
            Field("name", "string"),
            Field("mechanism", "int8"),
        ),
        ScramCredentialUpsertion: (
            Field("name", "string"),
            Field("mechanism", "int8"),
            Field("iterations", "int32"),
            Field("salt", "bytes"),
            Field("salted_password", "bytes"),
        ),
        AlterUserScramCredentialsRequest: (
            Field("deletions", ScramCredentialDeletion, array=True),
            Field("upsertions", ScramCredentialUpsertion, array=True),
        ),
    },
)


class AlterUserScramCredentialsResult(NamedTuple):
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""


class AlterUserScramCredentialsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: Sequence[AlterUserScramCredentialsResult] = ()


ALTER_USER_SCRAM_CREDENTIALS_RESPONSE = Message(
    51,
    False,
    AlterUserScramCredentialsResponse,
    (0, 0),
    0,
    {
        AlterUserScramCredentialsResult: (
            Field("user", "string"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        AlterUserScramCredentialsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("results", AlterUserScramCredentialsResult, array=True),
        ),
    },
)
