"""delete_groups, API key 42. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class DeleteGroupsRequest(NamedTuple):
    groups_names: Sequence[str] = ()


DELETE_GROUPS_REQUEST = Message(
    42,
    True,
    DeleteGroupsRequest,
    (0, 2),
    2,
    {
        DeleteGroupsRequest: (Field("groups_names", "string", array=True),),
    },
)


class DeletableGroupResult(NamedTuple):
    group_id: str = ""
    error_code: int = 0


class DeleteGroupsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: Sequence[DeletableGroupResult] = ()


DELETE_GROUPS_RESPONSE = Message(
    42,
    False,
    DeleteGroupsResponse,
    (0, 2),
    2,
    {
        DeletableGroupResult: (
            Field("group_id", "string"),
            Field("error_code", "int16"),
        ),
        DeleteGroupsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("results", DeletableGroupResult, array=True),
        ),
    },
)
