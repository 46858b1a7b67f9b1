"""api_versions, API key 18. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import Field, Message


class ApiVersionsRequest(NamedTuple):
    client_software_name: str = ""
    client_software_version: str = ""


API_VERSIONS_REQUEST = Message(
    18,
    True,
    ApiVersionsRequest,
    (0, 4),
    3,
    {
        ApiVersionsRequest: (
            Field("client_software_name", "string", versions=(3, 4)),
            Field("client_software_version", "string", versions=(3, 4)),
        ),
    },
)


class ApiVersion(NamedTuple):
    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


class SupportedFeatureKey(NamedTuple):
    name: str = ""
    min_version: int = 0
    max_version: int = 0


class FinalizedFeatureKey(NamedTuple):
    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0


class ApiVersionsResponse(NamedTuple):
    error_code: int = 0
    api_keys: Sequence[ApiVersion] = ()
    throttle_time_ms: int = 0
    supported_features: Sequence[SupportedFeatureKey] = ()
    finalized_features_epoch: int = -1
    finalized_features: Sequence[FinalizedFeatureKey] = ()
    zk_migration_ready: bool = False


API_VERSIONS_RESPONSE = Message(
    18,
    False,
    ApiVersionsResponse,
    (0, 4),
    3,
    {
        ApiVersion: (
            Field("api_key", "int16"),
            Field("min_version", "int16"),
            Field("max_version", "int16"),
        ),
        SupportedFeatureKey: (
            Field("name", "string", versions=(3, 4)),
            Field("min_version", "int16", versions=(3, 4)),
            Field("max_version", "int16", versions=(3, 4)),
        ),
        FinalizedFeatureKey: (
            Field("name", "string", versions=(3, 4)),
            Field("max_version_level", "int16", versions=(3, 4)),
            Field("min_version_level", "int16", versions=(3, 4)),
        ),
        ApiVersionsResponse: (
            Field("error_code", "int16"),
            Field("api_keys", ApiVersion, array=True),
            Field("throttle_time_ms", "int32", versions=(1, 4)),
            Field("supported_features", SupportedFeatureKey, array=True, versions=(3, 4), tag=0),
            Field("finalized_features_epoch", "int64", versions=(3, 4), tag=1),
            Field("finalized_features", FinalizedFeatureKey, array=True, versions=(3, 4), tag=2),
            Field("zk_migration_ready", "bool", versions=(3, 4), tag=3),
        ),
    },
)
