"""describe_acls, API key 29. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class DescribeAclsRequest(NamedTuple):
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0


DESCRIBE_ACLS_REQUEST = Message(
    29,
    True,
    DescribeAclsRequest,
    (1, 3),
    2,
    {
        DescribeAclsRequest: (
            Field("resource_type_filter", "int8"),
            Field("resource_name_filter", "string", nullable=ALWAYS),
            Field("pattern_type_filter", "int8"),
            Field("principal_filter", "string", nullable=ALWAYS),
            Field("host_filter", "string", nullable=ALWAYS),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        ),
    },
)


class AclDescription(NamedTuple):
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DescribeAclsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: Sequence[AclDescription] = ()


class DescribeAclsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: Sequence[DescribeAclsResource] = ()


DESCRIBE_ACLS_RESPONSE = Message(
    29,
    False,
    DescribeAclsResponse,
    (1, 3),
    2,
    {
        AclDescription: (
            Field("principal", "string"),
            Field("host", "string"),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        ),
        DescribeAclsResource: (
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("pattern_type", "int8"),
            Field("acls", AclDescription, array=True),
        ),
        DescribeAclsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("resources", DescribeAclsResource, array=True),
        ),
    },
)
