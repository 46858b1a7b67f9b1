"""ApiVersions (18): the APIs and versions of this broker.

- Versions above ours are answered in v0 with error 35 (the dispatcher calls `unsupported_version`).
- v3+ carries the client's name and version, which must have the form of names, because metrics show
  them.
- Features: `group.version` means that the KIP-848 protocol works; `transaction.version` 2 means
  that Produce and TxnOffsetCommit add their partitions to the transaction, and the Java producer
  then relies on it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.broker.serving.apis import SERVED
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.serving.context import RequestContext

SOFTWARE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
SUPPORTED_FEATURES = {
    "metadata.version": (7, 25),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "share.version": (0, 1),
}

API_KEYS = [
    ApiVersion(
        key,
        served.min_version if served.listed_min is None else served.listed_min,
        served.max_version,
    )
    for key, served in sorted(SERVED.items())
]


def api_versions(
    context: RequestContext, request: ApiVersionsRequest, cluster: Cluster
) -> ApiVersionsResponse:
    if context.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(SOFTWARE_NAME.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.peer.software = "/".join(names)
    return _answer(cluster, ErrorCode.NONE)


def unsupported_version(cluster: Cluster) -> ApiVersionsResponse:
    return _answer(cluster, ErrorCode.UNSUPPORTED_VERSION)


def _answer(cluster: Cluster, error_code: ErrorCode) -> ApiVersionsResponse:
    image = cluster.image
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=API_KEYS,
        supported_features=[
            SupportedFeatureKey(name, *levels) for name, levels in SUPPORTED_FEATURES.items()
        ],
        finalized_features_epoch=image.version,
        finalized_features=[
            FinalizedFeatureKey(name, level, level) for name, level in image.features.items()
        ],
    )
