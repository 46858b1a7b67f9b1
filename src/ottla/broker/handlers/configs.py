"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

Resources are topics, brokers and groups. A broker is named by its id, or by "" for the default of
all brokers. AlterConfigs replaces the whole set of overrides; IncrementalAlterConfigs sets (0),
deletes (1), appends to (2) or subtracts from (3) single keys. Either changes a resource wholly or
not at all, and every resource is answered. Sensitive values are never sent. Listed are all topics
and brokers, and those groups that have overrides; of loggers and client metrics there are none.
Before v1 only client metrics could be asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.broker.topics import existing
from ottla.metadata.changes.configs import SetConfigs
from ottla.metadata.config.checks import (
    check_broker_configs,
    check_group_configs,
    check_topic_configs,
)
from ottla.metadata.config.values import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    append_to_list,
    definition_of,
    resolve_broker_config,
    resolve_group_config,
    resolve_topic_config,
    subtract_from_list,
)
from ottla.metadata.errors import ConfigError
from ottla.metadata.image import CLUSTER_DEFAULT, ResourceType
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.wire.schema.alter_configs import AlterConfigsResourceResponse as AlterResult
from ottla.wire.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.schema.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalAlterResult,
)
from ottla.wire.schema.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.broker.cluster import Cluster
    from ottla.broker.serving.context import RequestContext
    from ottla.metadata.config.types import ConfigDef
    from ottla.metadata.config.values import ConfigEntry, EffectiveConfig

DEFINITIONS = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
}
BROKER_LOGGER = 8
CLIENT_METRICS = 16


def describe_configs(
    context: RequestContext, request: DescribeConfigsRequest, cluster: Cluster
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(cluster, resource, request) for resource in request.resources]
    )


def _describe(
    cluster: Cluster, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        entries = _effective(cluster, _resource_type(kind), name)
    except ApiError as error:
        return DescribeConfigsResult(error.code, str(error), kind, name)
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        ErrorCode.NONE,
        None,
        kind,
        name,
        [
            _described(key, entry, request)
            for key, entry in entries.items()
            if not wanted or key in wanted
        ],
    )


def _effective(cluster: Cluster, kind: ResourceType, name: str) -> EffectiveConfig:
    match kind:
        case ResourceType.TOPIC:
            existing(cluster, name)
            return resolve_topic_config(cluster.image, name, cluster.config)
        case ResourceType.GROUP:
            return resolve_group_config(cluster.image, name, cluster.config)
        case ResourceType.BROKER:
            _check_broker(cluster, name)
            return resolve_broker_config(cluster.image, cluster.config)


def _described(
    key: str, entry: ConfigEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    definition = entry.definition
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        key,
        None if definition.sensitive else entry.value,
        not definition.dynamic,
        entry.source,
        definition.sensitive,
        [
            DescribeConfigsSynonym(s.name, None if definition.sensitive else s.value, s.source)
            for s in synonyms
        ],
        definition.type,
        definition.doc if request.include_documentation else None,
    )


def alter_configs(
    context: RequestContext, request: AlterConfigsRequest, cluster: Cluster
) -> AlterConfigsResponse:
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            resource_type = _resource_type(kind)
            old = cluster.image.configs_of(resource_type, name)
            new = {config.name: config.value for config in resource.configs}
            change: dict[str, str | None] = {**dict.fromkeys(old), **new}
            _alter(cluster, resource_type, name, change, validate_only=request.validate_only)
        except ApiError as error:
            results.append(AlterResult(error.code, str(error), kind, name))
        else:
            results.append(AlterResult(ErrorCode.NONE, None, kind, name))
    return AlterConfigsResponse(responses=results)


def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest, cluster: Cluster
) -> IncrementalAlterConfigsResponse:
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            resource_type = _resource_type(kind)
            effective = _effective(cluster, resource_type, name)
            defs = DEFINITIONS[resource_type]
            change = {c.name: _altered(c, defs, effective) for c in resource.configs}
            if len(change) != len(resource.configs):
                raise ApiError(ErrorCode.INVALID_REQUEST, "A key is altered twice.")
            _alter(cluster, resource_type, name, change, validate_only=request.validate_only)
        except (ApiError, ConfigError) as error:
            code = error.code if isinstance(error, ApiError) else ErrorCode.INVALID_CONFIG
            results.append(IncrementalAlterResult(code, str(error), kind, name))
        else:
            results.append(IncrementalAlterResult(ErrorCode.NONE, None, kind, name))
    return IncrementalAlterConfigsResponse(responses=results)


def list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest, cluster: Cluster
) -> ListConfigResourcesResponse:
    image = cluster.image
    listed: dict[int, Iterable[str]] = {
        ResourceType.TOPIC: image.topics_by_name,
        ResourceType.BROKER: map(str, image.brokers),
        BROKER_LOGGER: (),
        CLIENT_METRICS: (),
        ResourceType.GROUP: image.group_configs,
    }
    types = [CLIENT_METRICS] if context.version == 0 else request.resource_types or listed
    if not listed.keys() >= set(types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(name, kind) for kind in types for name in listed[kind]]
    )


def _altered(
    config: AlterableConfig, defs: Mapping[str, ConfigDef], effective: EffectiveConfig
) -> str | None:
    """The value a key gets; None removes its override."""
    definition = definition_of(defs, config.name)
    if config.config_operation == 1:
        return None
    if config.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"No value given for {config.name}.")
    current = effective[config.name].value or ""
    match config.config_operation:
        case 0:
            return config.value
        case 2:
            return append_to_list(definition, current, config.value)
        case 3:
            return subtract_from_list(definition, current, config.value)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation {config.config_operation}.")


def _alter(
    cluster: Cluster,
    kind: ResourceType,
    name: str,
    change: Mapping[str, str | None],
    *,
    validate_only: bool,
) -> None:
    merged = {**cluster.image.configs_of(kind, name), **change}
    after = {key: value for key, value in merged.items() if value is not None}
    try:
        match kind:
            case ResourceType.TOPIC:
                existing(cluster, name)
                check_topic_configs(cluster.image, name, after, cluster.config)
            case ResourceType.GROUP:
                check_group_configs(cluster.image, after, cluster.config)
            case ResourceType.BROKER:
                _check_broker(cluster, name)
                check_broker_configs(after)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not validate_only:
        cluster.propose(SetConfigs(kind, name, dict(change)))


def _resource_type(kind: int) -> ResourceType:
    try:
        return ResourceType(kind)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"No configs for resource type {kind}.") from None


def _check_broker(cluster: Cluster, name: str) -> None:
    if name not in (CLUSTER_DEFAULT, str(cluster.node_id)):
        text = f"This is broker {cluster.node_id}; ask broker {name} for its configuration."
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
