"""create_acls, API key 30. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class AclCreation(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class CreateAclsRequest(NamedTuple):
    creations: Sequence[AclCreation] = ()


CREATE_ACLS_REQUEST = Message(
    30,
    True,
    CreateAclsRequest,
    (1, 3),
    2,
    {
        AclCreation: (
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("resource_pattern_type", "int8"),
            Field("principal", "string"),
            Field("host", "string"),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        ),
        CreateAclsRequest: (Field("creations", AclCreation, array=True),),
    },
)


class AclCreationResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""


class CreateAclsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: Sequence[AclCreationResult] = ()


CREATE_ACLS_RESPONSE = Message(
    30,
    False,
    CreateAclsResponse,
    (1, 3),
    2,
    {
        AclCreationResult: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
        ),
        CreateAclsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("results", AclCreationResult, array=True),
        ),
    },
)
