"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

Resources are topics, brokers and groups. A broker is named by its id, or by "" for the default of
all brokers. AlterConfigs replaces the whole set of overrides; IncrementalAlterConfigs sets (0),
deletes (1), appends to (2) or subtracts from (3) single keys. Both change all keys of a resource or
none, and answer every resource. Sensitive values are never sent. ListConfigResources returns all
topics and brokers, and groups with overrides; there are no loggers and no client metrics, the only
resources that v0 can ask for. Many resources are described in several turns of the event loop, all
as they were at the first turn.

Permissions: describe configs or alter configs on the topic or group, and on the cluster for brokers
and for the list. To set the dead-letter topic of a group a client also needs write on it, and
create if it is missing, because the broker writes there on its behalf.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.broker.access.listeners import listeners_of
from ottla.broker.errors import ApiError
from ottla.broker.serving.context import Large, refusal
from ottla.broker.topics import decided, existing
from ottla.broker.value_schemas import check_value_schema
from ottla.metadata.changes.configs import SetConfigs
from ottla.metadata.config.broker import warn_without_effect
from ottla.metadata.config.checks import (
    check_broker_configs,
    check_group_configs,
    check_topic_configs,
)
from ottla.metadata.config.security_keys import ListenerKey
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
from ottla.metadata.image import CLUSTER_DEFAULT, ResourceType
from ottla.metadata.security.acls import Operation, Resource
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
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from ottla.broker.cluster import Cluster
    from ottla.broker.serving.context import RequestContext
    from ottla.metadata.changes.apply import Change
    from ottla.metadata.config.types import ConfigDef
    from ottla.metadata.config.values import ConfigEntry, EffectiveConfig
    from ottla.metadata.image import MetadataImage
    from ottla.wire.schema.alter_configs import AlterConfigsResource
    from ottla.wire.schema.incremental_alter_configs import (
        AlterConfigsResource as IncrementalAlterConfigsResource,
    )

    Configs = Mapping[str, str | None]

DEFINITIONS = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
}
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
BROKER_LOGGER = 8
CLIENT_METRICS = 16
DESCRIBED_AT_ONCE: Final = 50  # resources in one turn of the loop: some milliseconds


def describe_configs(
    context: RequestContext, request: DescribeConfigsRequest, cluster: Cluster
) -> DescribeConfigsResponse | Awaitable[Large[DescribeConfigsResponse]]:
    image = cluster.image
    if len(request.resources) > DESCRIBED_AT_ONCE:
        return _describe_in_turns(context, cluster, image, request)
    return DescribeConfigsResponse(
        results=[
            _describe(context, cluster, image, resource, request) for resource in request.resources
        ]
    )


async def _describe_in_turns(
    context: RequestContext,
    cluster: Cluster,
    image: MetadataImage,
    request: DescribeConfigsRequest,
) -> Large[DescribeConfigsResponse]:
    results = []
    for number, resource in enumerate(request.resources, 1):
        results.append(_describe(context, cluster, image, resource, request))
        if number % DESCRIBED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return Large(DescribeConfigsResponse(results=results))


def _describe(
    context: RequestContext,
    cluster: Cluster,
    image: MetadataImage,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        _require(context, Operation.DESCRIBE_CONFIGS, _resource_type(kind), name)
        entries = _effective(cluster, image, _resource_type(kind), name)
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


def _effective(
    cluster: Cluster, image: MetadataImage, kind: ResourceType, name: str
) -> EffectiveConfig:
    match kind:
        case ResourceType.TOPIC:
            existing(image, name)
            return resolve_topic_config(image, name, cluster.config)
        case ResourceType.GROUP:
            return resolve_group_config(image, name, cluster.config)
        case ResourceType.BROKER:
            _check_broker(cluster, name)
            return resolve_broker_config(image, cluster.config)


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


async def alter_configs(
    context: RequestContext, request: AlterConfigsRequest, cluster: Cluster
) -> AlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> AlterResult:
        new = {config.name: config.value for config in resource.configs}

        def changes(image: MetadataImage, kind: ResourceType) -> Configs:
            return {**dict.fromkeys(image.configs_of(kind, resource.resource_name)), **new}

        code, message = await _alter(context, cluster, resource, changes, request.validate_only)
        return AlterResult(code, message, resource.resource_type, resource.resource_name)

    return AlterConfigsResponse(responses=await asyncio.gather(*map(alter, request.resources)))


async def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest, cluster: Cluster
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: IncrementalAlterConfigsResource) -> IncrementalAlterResult:
        def changes(image: MetadataImage, kind: ResourceType) -> Configs:
            effective = _effective(cluster, image, kind, resource.resource_name)
            defs = DEFINITIONS[kind]
            altered = {c.name: _altered(c, defs, effective) for c in resource.configs}
            if len(altered) != len(resource.configs):
                raise ApiError(ErrorCode.INVALID_REQUEST, "A key is altered twice.")
            return altered

        code, message = await _alter(context, cluster, resource, changes, request.validate_only)
        return IncrementalAlterResult(code, message, resource.resource_type, resource.resource_name)

    return IncrementalAlterConfigsResponse(
        responses=await asyncio.gather(*map(alter, request.resources))
    )


def list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest, cluster: Cluster
) -> ListConfigResourcesResponse:
    if not context.may_cluster(Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
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
    """The new value of a key; None removes its override, which may be missing, as in Kafka."""
    if config.config_operation == 1:
        return None
    definition = definition_of(defs, config.name)
    if config.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"No value given for {config.name}.")
    entry = effective.get(config.name)
    current = "" if entry is None else entry.value or ""
    match config.config_operation:
        case 0:
            return config.value
        case 2:
            return append_to_list(definition, current, config.value)
        case 3:
            return subtract_from_list(definition, current, config.value)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation {config.config_operation}.")


async def _alter(
    context: RequestContext,
    cluster: Cluster,
    resource: AlterConfigsResource | IncrementalAlterConfigsResource,
    changes: Callable[[MetadataImage, ResourceType], Configs],
    validate_only: bool,
) -> tuple[ErrorCode, str | None]:
    """Apply the changes to the current overrides, or raise."""
    name = resource.resource_name
    try:
        kind = _resource_type(resource.resource_type)
        _require(context, Operation.ALTER_CONFIGS, kind, name)
        if kind is ResourceType.GROUP:
            _check_dead_letter_topic(context, cluster, resource)

        def decide(image: MetadataImage) -> list[Change]:
            before = image.configs_of(kind, name)
            asked = changes(image, kind)
            change = {k: v for k, v in asked.items() if v is not None or k in before}
            after = {k: v for k, v in {**before, **change}.items() if v is not None}
            _check(cluster, image, kind, name, after)
            return [SetConfigs(kind, name, change)] if change else []

        await decided(cluster, decide, validate_only=validate_only)
    except ApiError as error:
        return error.code, str(error)
    if kind is ResourceType.BROKER:
        warn_without_effect(config.name for config in resource.configs if config.value is not None)
    return ErrorCode.NONE, None


def _require(context: RequestContext, operation: Operation, kind: ResourceType, name: str) -> None:
    match kind:
        case ResourceType.TOPIC:
            context.require(operation, Resource.TOPIC, name)
        case ResourceType.GROUP:
            context.require(operation, Resource.GROUP, name)
        case ResourceType.BROKER:
            context.require_cluster(operation)


def _check_dead_letter_topic(
    context: RequestContext,
    cluster: Cluster,
    resource: AlterConfigsResource | IncrementalAlterConfigsResource,
) -> None:
    """The broker writes there on behalf of the client that sets it."""
    for config in resource.configs:
        if config.name == DEAD_LETTER_TOPIC and config.value:
            context.require(Operation.WRITE, Resource.TOPIC, config.value)
            if cluster.image.topic(config.value) is None and not context.may_create(config.value):
                raise refusal(Operation.CREATE, Resource.TOPIC, config.value)


def _check(
    cluster: Cluster, image: MetadataImage, kind: ResourceType, name: str, after: dict[str, str]
) -> None:
    match kind:
        case ResourceType.TOPIC:
            existing(image, name)
            check_topic_configs(image, name, after, cluster.config)
            check_value_schema(after)
        case ResourceType.GROUP:
            check_group_configs(image, after, cluster.config)
        case ResourceType.BROKER:
            _check_broker(cluster, name)
            check_broker_configs(after)
            _check_listeners(cluster, after)


def _check_listeners(cluster: Cluster, after: dict[str, str]) -> None:
    """A key for a listener that there is not would have no effect, and nobody would notice."""
    names = {each.name.lower() for each in listeners_of(cluster.config)}
    for key in after:
        of_listener = ListenerKey.parse(key)
        if of_listener is not None and of_listener.listener not in names:
            text = f"{key}: there is no listener {of_listener.listener}, only {sorted(names)}."
            raise ApiError(ErrorCode.INVALID_CONFIG, text)


def _resource_type(kind: int) -> ResourceType:
    try:
        return ResourceType(kind)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"No configs for resource type {kind}.") from None


def _check_broker(cluster: Cluster, name: str) -> None:
    if name not in (CLUSTER_DEFAULT, str(cluster.node_id)):
        text = f"This is broker {cluster.node_id}; ask broker {name} for its configuration."
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
