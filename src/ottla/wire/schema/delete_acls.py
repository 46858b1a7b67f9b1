"""delete_acls, API key 31. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class DeleteAclsFilter(NamedTuple):
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0


class DeleteAclsRequest(NamedTuple):
    filters: Sequence[DeleteAclsFilter] = ()


DELETE_ACLS_REQUEST = Message(
    31,
    True,
    DeleteAclsRequest,
    (1, 3),
    2,
    {
        DeleteAclsFilter: (
            Field("resource_type_filter", "int8"),
            Field("resource_name_filter", "string", nullable=ALWAYS),
            Field("pattern_type_filter", "int8"),
            Field("principal_filter", "string", nullable=ALWAYS),
            Field("host_filter", "string", nullable=ALWAYS),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        ),
        DeleteAclsRequest: (Field("filters", DeleteAclsFilter, array=True),),
    },
)


class DeleteAclsMatchingAcl(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DeleteAclsFilterResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    matching_acls: Sequence[DeleteAclsMatchingAcl] = ()


class DeleteAclsResponse(NamedTuple):
    throttle_time_ms: int = 0
    filter_results: Sequence[DeleteAclsFilterResult] = ()


DELETE_ACLS_RESPONSE = Message(
    31,
    False,
    DeleteAclsResponse,
    (1, 3),
    2,
    {
        DeleteAclsMatchingAcl: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("pattern_type", "int8"),
            Field("principal", "string"),
            Field("host", "string"),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        ),
        DeleteAclsFilterResult: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("matching_acls", DeleteAclsMatchingAcl, array=True),
        ),
        DeleteAclsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("filter_results", DeleteAclsFilterResult, array=True),
        ),
    },
)
