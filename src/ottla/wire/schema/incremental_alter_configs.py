"""incremental_alter_configs, API key 44. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class AlterableConfig(NamedTuple):
    name: str = ""
    config_operation: int = 0
    value: str | None = ""


class AlterConfigsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[AlterableConfig] = ()


class IncrementalAlterConfigsRequest(NamedTuple):
    resources: Sequence[AlterConfigsResource] = ()
    validate_only: bool = False


INCREMENTAL_ALTER_CONFIGS_REQUEST = Message(
    44,
    True,
    IncrementalAlterConfigsRequest,
    (0, 1),
    1,
    {
        AlterableConfig: (
            Field("name", "string"),
            Field("config_operation", "int8"),
            Field("value", "string", nullable=ALWAYS),
        ),
        AlterConfigsResource: (
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("configs", AlterableConfig, array=True),
        ),
        IncrementalAlterConfigsRequest: (
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


class IncrementalAlterConfigsResponse(NamedTuple):
    throttle_time_ms: int = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()


INCREMENTAL_ALTER_CONFIGS_RESPONSE = Message(
    44,
    False,
    IncrementalAlterConfigsResponse,
    (0, 1),
    1,
    {
        AlterConfigsResourceResponse: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
        ),
        IncrementalAlterConfigsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("responses", AlterConfigsResourceResponse, array=True),
        ),
    },
)
