"""update_features, API key 57. Made by scripts/generate_schema.py; do not edit."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.spec import ALWAYS, Field, Message


class FeatureUpdateKey(NamedTuple):
    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False
    upgrade_type: int = 1


class UpdateFeaturesRequest(NamedTuple):
    timeout_ms: int = 60000
    feature_updates: Sequence[FeatureUpdateKey] = ()
    validate_only: bool = False


UPDATE_FEATURES_REQUEST = Message(
    57,
    True,
    UpdateFeaturesRequest,
    (0, 2),
    0,
    {
        FeatureUpdateKey: (
            Field("feature", "string"),
            Field("max_version_level", "int16"),
            Field("allow_downgrade", "bool", versions=(0, 0)),
            Field("upgrade_type", "int8", versions=(1, 2)),
        ),
        UpdateFeaturesRequest: (
            Field("timeout_ms", "int32"),
            Field("feature_updates", FeatureUpdateKey, array=True),
            Field("validate_only", "bool", versions=(1, 2)),
        ),
    },
)


class UpdatableFeatureResult(NamedTuple):
    feature: str = ""
    error_code: int = 0
    error_message: str | None = ""


class UpdateFeaturesResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: Sequence[UpdatableFeatureResult] = ()


UPDATE_FEATURES_RESPONSE = Message(
    57,
    False,
    UpdateFeaturesResponse,
    (0, 2),
    0,
    {
        UpdatableFeatureResult: (
            Field("feature", "string", versions=(0, 1)),
            Field("error_code", "int16", versions=(0, 1)),
            Field("error_message", "string", versions=(0, 1), nullable=ALWAYS),
        ),
        UpdateFeaturesResponse: (
            Field("throttle_time_ms", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=ALWAYS),
            Field("results", UpdatableFeatureResult, array=True, versions=(0, 1)),
        ),
    },
)
