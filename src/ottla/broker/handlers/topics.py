"""CreateTopics (19), DeleteTopics (20) and CreatePartitions (37).

Every requested topic gets its own result; a name that is twice in a request is refused for all its
occurrences, as Kafka does. All topics of a request are one proposal, so that they wait only once if
another process holds the metadata store. `validate_only` checks everything and changes nothing.
DeleteTopics takes names up to v5 and names or ids from v6.

Permissions: to create, create on the cluster or on the topic; its configs are returned only with
describe configs. To delete, delete and describe; without describe a topic is 29 whether it exists
or not, without its name if it is requested by id. To add partitions, alter.

A client with a quota of changes gets changes in the order of the request until the quota is used
up; the rest is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker import topics as rules
from ottla.broker.errors import ApiError
from ottla.broker.serving.context import refusal
from ottla.broker.value_schemas import check_value_schema
from ottla.metadata.config.values import ConfigSource, resolve_topic_overrides
from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.cluster import Cluster
    from ottla.broker.serving.context import RequestContext
    from ottla.clock import Clock
    from ottla.metadata.image import MetadataImage, Topic

TOPIC = Resource.TOPIC
# From these versions on clients know that a quota of changes is used up (KIP-599).
FIRST_STRICT_CREATE_TOPICS = 6
FIRST_STRICT_DELETE_TOPICS = 5
FIRST_STRICT_CREATE_PARTITIONS = 3


async def create_topics(
    context: RequestContext, request: CreateTopicsRequest, cluster: Cluster, clock: Clock
) -> CreateTopicsResponse:
    now = clock.monotonic()
    repeated = _repeated(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=await asyncio.gather(
            *(
                _create(context, cluster, topic, repeated, now, validate_only=request.validate_only)
                for topic in request.topics
            )
        )
    )


async def _create(
    context: RequestContext,
    cluster: Cluster,
    asked: CreatableTopic,
    repeated: set[str],
    now: float,
    *,
    validate_only: bool,
) -> CreatableTopicResult:
    configs = {config.name: config.value for config in asked.configs if config.value is not None}
    try:
        if asked.name in repeated:
            raise _twice(asked.name)
        if not context.may_create(asked.name):
            raise refusal(Operation.CREATE, TOPIC, asked.name)
        partitions = len(asked.assignments) or asked.num_partitions
        if partitions < 0:
            partitions = cluster.config.get_int("num.partitions")
        check_value_schema(configs)
        strict = context.version >= FIRST_STRICT_CREATE_TOPICS
        with context.charged(0 if validate_only else partitions, now, strict=strict):
            topic = await rules.create_topic(
                cluster,
                asked.name,
                partitions=asked.num_partitions,
                replication_factor=asked.replication_factor,
                assignments={a.partition_index: a.broker_ids for a in asked.assignments},
                configs=configs,
                validate_only=validate_only,
            )
    except ApiError as error:
        return CreatableTopicResult(asked.name, error_code=error.code, error_message=str(error))
    topic_id = ZERO_UUID if validate_only else topic.topic_id.bytes
    if not context.peer.access.may(Operation.DESCRIBE_CONFIGS, TOPIC, asked.name):
        return CreatableTopicResult(
            asked.name,
            topic_id=topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=None,
        )
    effective = resolve_topic_overrides(cluster.image, configs, cluster.config)
    return CreatableTopicResult(
        asked.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name,
                entry.value,
                config_source=ConfigSource(entry.source),
                is_sensitive=entry.definition.sensitive,
            )
            for name, entry in effective.items()
        ],
    )


async def delete_topics(
    context: RequestContext, request: DeleteTopicsRequest, cluster: Cluster, clock: Clock
) -> DeleteTopicsResponse:
    now = clock.monotonic()
    asked = list(request.topics) or [DeleteTopicState(name) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=await asyncio.gather(*(_delete(context, cluster, state, now) for state in asked))
    )


async def _delete(
    context: RequestContext, cluster: Cluster, state: DeleteTopicState, now: float
) -> DeletableTopicResult:
    def find(image: MetadataImage) -> Topic:
        if state.name is not None:
            return rules.existing(image, state.name)
        found = image.topic_by_id(UUID(bytes=state.topic_id))
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return found

    name = state.name
    try:
        if name is None:
            found = find(cluster.image)
            context.require(Operation.DESCRIBE, TOPIC, found.name)
            name = found.name
        else:
            context.require(Operation.DESCRIBE, TOPIC, name)
        if not context.may(Operation.DELETE, TOPIC, name):
            find(cluster.image)  # it may describe the topic: say that it is missing, or refuse
            raise refusal(Operation.DELETE, TOPIC, name)
        # It may have been created a moment ago; then the decision below finds it.
        topic_now = cluster.image.topic(name)
        partitions = 0 if topic_now is None else len(topic_now.partitions)
        strict = context.version >= FIRST_STRICT_DELETE_TOPICS
        with context.charged(partitions, now, strict=strict):
            topic = await rules.delete_topic(cluster, find)
    except ApiError as error:
        return DeletableTopicResult(name, state.topic_id, error.code, str(error))
    return DeletableTopicResult(topic.name, topic.topic_id.bytes)


async def create_partitions(
    context: RequestContext, request: CreatePartitionsRequest, cluster: Cluster, clock: Clock
) -> CreatePartitionsResponse:
    now = clock.monotonic()
    repeated = _repeated(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        results=await asyncio.gather(
            *(
                _grow(context, cluster, topic, repeated, now, validate_only=request.validate_only)
                for topic in request.topics
            )
        )
    )


async def _grow(
    context: RequestContext,
    cluster: Cluster,
    asked: CreatePartitionsTopic,
    repeated: set[str],
    now: float,
    *,
    validate_only: bool,
) -> CreatePartitionsTopicResult:
    try:
        if asked.name in repeated:
            raise _twice(asked.name)
        context.require(Operation.ALTER, TOPIC, asked.name)
        assignments = (
            None if asked.assignments is None else [a.broker_ids for a in asked.assignments]
        )
        topic = cluster.image.topic(asked.name)
        more = 0 if topic is None or validate_only else asked.count_ - len(topic.partitions)
        strict = context.version >= FIRST_STRICT_CREATE_PARTITIONS
        with context.charged(max(0, more), now, strict=strict):
            await rules.add_partitions(
                cluster, asked.name, asked.count_, assignments, validate_only=validate_only
            )
    except ApiError as error:
        return CreatePartitionsTopicResult(asked.name, error.code, str(error))
    return CreatePartitionsTopicResult(asked.name)


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _twice(name: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is in the request twice.")
