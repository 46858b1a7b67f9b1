"""describe_configs, API key 32. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class DescribeConfigsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: Sequence[str] | None = ()


class DescribeConfigsRequest(NamedTuple):
    resources: Sequence[DescribeConfigsResource] = ()
    include_synonyms: bool = False
    include_documentation: bool = False


DESCRIBE_CONFIGS_REQUEST = Message(
    32,
    True,
    DescribeConfigsRequest,
    (1, 4),
    4,
    {
        DescribeConfigsResource: (
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("configuration_keys", "string", array=True, nullable=ALWAYS),
        ),
        DescribeConfigsRequest: (
            Field("resources", DescribeConfigsResource, array=True),
            Field("include_synonyms", "bool"),
            Field("include_documentation", "bool", versions=(3, 4)),
        ),
    },
)


class DescribeConfigsSynonym(NamedTuple):
    name: str = ""
    value: str | None = ""
    source: int = 0


class DescribeConfigsResourceResult(NamedTuple):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: Sequence[DescribeConfigsSynonym] = ()
    config_type: int = 0
    documentation: str | None = ""


class DescribeConfigsResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[DescribeConfigsResourceResult] = ()


class DescribeConfigsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: Sequence[DescribeConfigsResult] = ()


DESCRIBE_CONFIGS_RESPONSE = Message(
    32,
    False,
    DescribeConfigsResponse,
    (1, 4),
    4,
    {
        DescribeConfigsSynonym: (
            Field("name", "string"),
            Field("value", "string", nullable=ALWAYS),
            Field("source", "int8"),
        ),
        DescribeConfigsResourceResult: (
            Field("name", "string"),
            Field("value", "string", nullable=ALWAYS),
            Field("read_only", "bool"),
            Field("config_source", "int8"),
            Field("is_sensitive", "bool"),
            Field("synonyms", DescribeConfigsSynonym, array=True),
            Field("config_type", "int8", versions=(3, 4)),
            Field("documentation", "string", versions=(3, 4), nullable=ALWAYS),
        ),
        DescribeConfigsResult: (
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("configs", DescribeConfigsResourceResult, array=True),
        ),
        DescribeConfigsResponse: (
            Field("throttle_time_ms", "int32"),
            Field("results", DescribeConfigsResult, array=True),
        ),
    },
)
