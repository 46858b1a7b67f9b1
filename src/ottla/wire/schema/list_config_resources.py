"""list_config_resources, API key 74. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class ListConfigResourcesRequest(NamedTuple):
    resource_types: Sequence[int] = ()


LIST_CONFIG_RESOURCES_REQUEST = Message(
    74,
    True,
    ListConfigResourcesRequest,
    (0, 1),
    0,
    {
        ListConfigResourcesRequest: (Field("resource_types", "int8", array=True, versions=(1, 1)),),
    },
)


class ConfigResource(NamedTuple):
    resource_name: str = ""
    resource_type: int = 16


class ListConfigResourcesResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: Sequence[ConfigResource] = ()


LIST_CONFIG_RESOURCES_RESPONSE = Message(
    74,
    False,
    ListConfigResourcesResponse,
    (0, 1),
    0,
    {
        ConfigResource: (
            Field("resource_name", "string"),
            Field("resource_type", "int8", versions=(1, 1)),
        ),
        ListConfigResourcesResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("config_resources", ConfigResource, array=True),
        ),
    },
)
