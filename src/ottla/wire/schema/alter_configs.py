"""alter_configs, API key 33. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class AlterableConfig(NamedTuple):
    name: str = ""
    value: str | None = ""


class AlterConfigsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[AlterableConfig] = ()


class AlterConfigsRequest(NamedTuple):
    resources: Sequence[AlterConfigsResource] = ()
    validate_only: bool = False


ALTER_CONFIGS_REQUEST = Message(
    33,
    True,
    AlterConfigsRequest,
    (0, 2),
    2,
    {
        AlterableConfig: (
            Field("name", "string"),
            Field("value", "string", nullable=ALWAYS),
        ),
        AlterConfigsResource: (
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("configs", AlterableConfig, array=True),
        ),
        AlterConfigsRequest: (
            Field("resources", AlterConfigsResource, array=True),
            Field("validate_only", "bool"),
        ),
    },
)


class AlterConfigsResourceResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""


class AlterConfigsResponse(NamedTuple):
    throttle_time_ms: int = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()


ALTER_CONFIGS_RESPONSE = Message(
    33,
    False,
    AlterConfigsResponse,
    (0, 2),
    2,
    {
        AlterConfigsResourceResponse: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
        ),
        AlterConfigsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("responses", AlterConfigsResourceResponse, array=True),
        ),
    },
)
