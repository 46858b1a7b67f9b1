"""Metadata (3) and DescribeTopicPartitions (75): topics, their partitions and leaders, the brokers.

- Metadata v0: an empty list asks for all topics; from v1 null does, and an empty list for none.
- From v12 a request may name a topic by id alone; an unknown id is error 100. The versions before
  it have a field for the id that clients must not use: error 42.
- A missing topic is created if both the request and auto.create.topics.enable allow it; it is ready
  at once, so the response has no error.
- A partition whose log is offline (a failed disk, damage that needs an operator) has no leader and
  an offline replica, as in Kafka: clients wait and ask again. A log that could not be opened is
  shown as offline for a second after each attempt; then clients come back and cause the next
  attempt. Metadata itself opens no log.
- Replicas are the nodes that may lead a partition; in sync are those of them that are alive, and
  the leader. So an under-replicated partition has fewer candidates than wanted.
- Brokers are shown with the address of the listener the request came in on.
- Thousands of partitions are collected in several turns of the event loop. The response shows the
  topics and brokers as they were at the first turn.
- DescribeTopicPartitions pages through topics in the order of their names; a page ends at the
  requested limit and the cursor names the first partition that did not fit.
- Both show the topics that the client may describe. Any other topic is 29 if it is requested by
  name, whether it exists or not, and 29 without its name if it is requested by id. Creating a topic
  needs create on the cluster or on the topic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from ottla.broker.access.everything import EVERYTHING
from ottla.broker.errors import ApiError
from ottla.broker.serving.context import NOT_ASKED, Large
from ottla.broker.topics import ensure_topic
from ottla.metadata.image import Topic
from ottla.metadata.names import is_legal
from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from ottla.wire.schema.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.context import RequestContext
    from ottla.metadata.image import MetadataImage, Partition

DESCRIBE, TOPIC = Operation.DESCRIBE, Resource.TOPIC
HIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
FIRST_VERSION_BY_ID: Final = 12
NO_LEADER: Final = -1
SHOWN_AT_ONCE: Final = 4_000  # partitions in one turn of the loop: some milliseconds

Answer: TypeAlias = "MetadataResponse | Awaitable[MetadataResponse | Large[MetadataResponse]]"
# The nodes that are up; None for a node alone, where nobody has to look.
Alive: TypeAlias = "frozenset[int] | None"
# A topic of the image, or the response for a missing one.
Asked: TypeAlias = "Topic | MetadataResponseTopic"


def metadata(
    context: RequestContext,
    request: MetadataRequest,
    cluster: Cluster,
    settings: Settings,
    partitions: Partitions,
) -> Answer:
    wants_all = request.topics is None or (context.version == 0 and not request.topics)
    if wants_all:
        shown: Collection[Topic] = cluster.image.topics_by_name.values()
        if context.peer.access is not EVERYTHING:
            shown = [topic for topic in shown if context.sees(TOPIC, topic.name)]
        return _shown(context, request, cluster, shown, partitions)
    allow = request.allow_auto_topic_creation and settings.auto_create_topics
    missing = _to_create(context, request, cluster) if allow else []
    if missing:
        return _after_creating(context, request, cluster, partitions, missing)
    topics = [_asked(context, asked, cluster.image) for asked in request.topics or ()]
    return _shown(context, request, cluster, topics, partitions)


def _to_create(context: RequestContext, request: MetadataRequest, cluster: Cluster) -> list[str]:
    """The requested names that are valid, missing and not hidden, each once."""
    names = dict.fromkeys(
        asked.name or "" for asked in request.topics or () if asked.topic_id == ZERO_UUID
    )
    return [
        name
        for name in names
        if cluster.image.topic(name) is None and is_legal(name) and context.sees(TOPIC, name)
    ]


async def _after_creating(
    context: RequestContext,
    request: MetadataRequest,
    cluster: Cluster,
    partitions: Partitions,
    missing: list[str],
) -> MetadataResponse | Large[MetadataResponse]:
    """A topic that was deleted right after its creation is unknown again."""
    codes = await asyncio.gather(*(_create(context, cluster, name) for name in missing))
    failed = dict(zip(missing, codes, strict=True))
    topics = [_asked(context, asked, cluster.image, failed) for asked in request.topics or ()]
    answer = _shown(context, request, cluster, topics, partitions)
    return answer if isinstance(answer, MetadataResponse) else await answer


async def _create(context: RequestContext, cluster: Cluster, name: str) -> ErrorCode:
    if not context.may_create(name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        await ensure_topic(cluster, name)
    except ApiError as error:
        # Clients retry after LEADER_NOT_AVAILABLE; some give up after a timeout error of a topic.
        timed_out = error.code == ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.LEADER_NOT_AVAILABLE if timed_out else error.code
    return ErrorCode.NONE


def _shown(
    context: RequestContext,
    request: MetadataRequest,
    cluster: Cluster,
    topics: Collection[Asked],
    partitions: Partitions,
) -> Answer:
    answer = MetadataResponse(
        brokers=[
            MetadataResponseBroker(broker.node_id, endpoint.host, endpoint.port, broker.rack)
            for broker, endpoint in cluster.endpoints(context.peer.listener)
        ],
        cluster_id=cluster.image.cluster_id,
        controller_id=cluster.node_id,
        cluster_authorized_operations=context.cluster_operations()
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
    operations = context if request.include_topic_authorized_operations else None
    alive = _alive(cluster.image)
    if sum(len(topic.partitions) for topic in topics) > SHOWN_AT_ONCE:
        return _in_turns(answer, topics, partitions, operations, alive)
    return answer._replace(
        topics=[
            _found(operations, topic, _rows(topic, range(len(topic.partitions)), partitions, alive))
            if isinstance(topic, Topic)
            else topic
            for topic in topics
        ]
    )


async def _in_turns(
    answer: MetadataResponse,
    topics: Iterable[Asked],
    partitions: Partitions,
    operations: RequestContext | None,
    alive: Alive,
) -> Large[MetadataResponse]:
    """Many partitions: other requests are served between the parts."""
    found: list[MetadataResponseTopic] = []
    left = SHOWN_AT_ONCE
    for topic in topics:
        if not isinstance(topic, Topic):
            found.append(topic)
            continue
        rows: list[MetadataResponsePartition] = []
        while len(rows) < len(topic.partitions):
            shown = range(len(rows), min(len(topic.partitions), len(rows) + left))
            rows += _rows(topic, shown, partitions, alive)
            left -= len(shown)
            if not left:
                left = SHOWN_AT_ONCE
                await asyncio.sleep(0)
        found.append(_found(operations, topic, rows))
    return Large(answer._replace(topics=found))


def _asked(
    context: RequestContext,
    asked: MetadataRequestTopic,
    image: MetadataImage,
    failed: Mapping[str, ErrorCode] | None = None,
) -> Asked:
    """`failed` has the codes of the topics that should have been created."""
    if asked.topic_id != ZERO_UUID:
        if context.version < FIRST_VERSION_BY_ID:
            return MetadataResponseTopic(
                ErrorCode.INVALID_REQUEST, asked.name or "", asked.topic_id
            )
        topic = image.topic_by_id(UUID(bytes=asked.topic_id))
        if topic is None:
            return MetadataResponseTopic(
                ErrorCode.UNKNOWN_TOPIC_ID, asked.name or None, asked.topic_id
            )
        if not context.may(DESCRIBE, TOPIC, topic.name):
            return MetadataResponseTopic(HIDDEN, None, asked.topic_id)
        return topic
    name = asked.name or ""
    if not context.may(DESCRIBE, TOPIC, name):
        return MetadataResponseTopic(HIDDEN, name)
    topic = image.topic(name)
    if topic is None:
        if not is_legal(name):
            return MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
        code = (failed or {}).get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponseTopic(code, name)
    return topic


def _found(
    operations: RequestContext | None, topic: Topic, rows: Sequence[MetadataResponsePartition]
) -> MetadataResponseTopic:
    """`operations` is the context of a client that requests its authorized operations."""
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        is_internal=topic.internal,
        partitions=rows,
        topic_authorized_operations=NOT_ASKED
        if operations is None
        else operations.operations(TOPIC, topic.name),
    )


def _rows(
    topic: Topic, shown: range, partitions: Partitions, alive: Alive
) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(
            ErrorCode.NONE,
            index,
            p.leader,
            p.leader_epoch,
            p.replicas,
            p.replicas if alive is None else _in_sync(p, alive),
            () if alive is None else _offline(p, alive),
        )
        if p.leader >= 0 and not partitions.is_offline(topic.name, index)
        else MetadataResponsePartition(
            ErrorCode.LEADER_NOT_AVAILABLE,
            index,
            NO_LEADER,
            p.leader_epoch,
            p.replicas,
            _in_sync(p, alive),
            _without_log(p, alive),
        )
        for index, p in zip(shown, topic.partitions[shown.start : shown.stop], strict=True)
    ]


def _alive(image: MetadataImage) -> Alive:
    return frozenset(image.alive) if len(image.brokers) > 1 else None


def _in_sync(partition: Partition, alive: Alive) -> Sequence[int]:
    replicas = partition.replicas
    if alive is None:
        return replicas
    living = [node for node in replicas if node in alive]
    if partition.leader >= 0 and partition.leader not in living:
        living.append(partition.leader)
    return living


def _offline(partition: Partition, alive: Alive) -> Sequence[int]:
    if alive is None:
        return ()
    return [node for node in partition.replicas if node not in alive]


def _without_log(partition: Partition, alive: Alive) -> Sequence[int]:
    """Offline nodes, and the leader whose log is offline."""
    if partition.leader < 0:
        return _offline(partition, alive)
    return [partition.leader, *_offline(partition, alive)]


def describe_topic_partitions(
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    cluster: Cluster,
    partitions: Partitions,
) -> DescribeTopicPartitionsResponse:
    image = cluster.image
    alive = _alive(image)
    asked = {topic.name for topic in request.topics}
    names = sorted(asked or context.visible(TOPIC, image.topics_by_name))
    first_partition = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first_partition = max(0, request.cursor.partition_index)
    most = cluster.config.get_int("max.request.partition.size.limit")
    left = min(max(1, request.response_partition_limit), most)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if left == 0:
            return _page(topics, ResponseCursor(name, 0))
        if asked and not context.may(DESCRIBE, TOPIC, name):
            topics.append(DescribeTopicPartitionsResponseTopic(HIDDEN, name))
            continue
        topic = image.topic(name)
        if topic is None:
            topics.append(_unknown(context, name))
            continue
        shown = range(first_partition, min(len(topic.partitions), first_partition + left))
        topics.append(_described(context, topic, shown, partitions, alive))
        left -= len(shown)
        if shown.stop < len(topic.partitions):
            return _page(topics, ResponseCursor(name, shown.stop))
        first_partition = 0
    return _page(topics, None)


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], cursor: ResponseCursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _unknown(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not is_legal(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        code, name, topic_authorized_operations=context.operations(TOPIC, name)
    )


def _described(
    context: RequestContext,
    topic: Topic,
    shown: range,
    partitions: Partitions,
    alive: Alive,
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        is_internal=topic.internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                ErrorCode.NONE,
                index,
                p.leader,
                p.leader_epoch,
                p.replicas,
                _in_sync(p, alive),
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=_offline(p, alive),
            )
            if p.leader >= 0 and not partitions.is_offline(topic.name, index)
            else DescribeTopicPartitionsResponsePartition(
                ErrorCode.LEADER_NOT_AVAILABLE,
                index,
                NO_LEADER,
                p.leader_epoch,
                p.replicas,
                _in_sync(p, alive),
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=_without_log(p, alive),
            )
            for index, p in zip(shown, topic.partitions[shown.start : shown.stop], strict=True)
        ],
        topic_authorized_operations=context.operations(TOPIC, topic.name),
    )
