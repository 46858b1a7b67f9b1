"""list_groups, API key 16. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class ListGroupsRequest(NamedTuple):
    states_filter: Sequence[str] = ()
    types_filter: Sequence[str] = ()


LIST_GROUPS_REQUEST = Message(
    16,
    True,
    ListGroupsRequest,
    (0, 5),
    3,
    {
        ListGroupsRequest: (
            Field("states_filter", "string", array=True, versions=(4, 5)),
            Field("types_filter", "string", array=True, versions=(5, 5)),
        ),
    },
)


class ListedGroup(NamedTuple):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    groups: Sequence[ListedGroup] = ()


LIST_GROUPS_RESPONSE = Message(
    16,
    False,
    ListGroupsResponse,
    (0, 5),
    3,
    {
        ListedGroup: (
            Field("group_id", "string"),
            Field("protocol_type", "string"),
            Field("group_state", "string", versions=(4, 5)),
            Field("group_type", "string", versions=(5, 5)),
        ),
        ListGroupsResponse: (
            Field("throttle_time_ms", "int32", versions=(1, 5)),
            Field("error_code", "int16"),
            Field("groups", ListedGroup, array=True),
        ),
    },
)
