"""KIP-848: ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69).

Members send nothing but heartbeats: epoch 0 joins, -1 leaves, -2 leaves for now (static members),
null fields mean unchanged. From v1 the client chooses its member id; in v0 the broker may do it.

Permissions: a heartbeat needs read on the group and describe on each topic that is subscribed to by
name; a pattern matches only topics that the principal may describe. Describing a group needs
describe on it and on every assigned topic.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ottla.broker.coordinators.regex import scoped, unscoped
from ottla.broker.errors import ApiError
from ottla.broker.serving.context import NOT_ASKED
from ottla.coordination.groups import messages as m
from ottla.coordination.groups.config import ConsumerSettings
from ottla.coordination.groups.consumer import InvalidRegularExpression
from ottla.coordination.groups.partitions import by_topic
from ottla.metadata.config.values import resolve_group_config
from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import consumer_group_describe as describe
from ottla.wire.schema.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.running.services import Lazy
    from ottla.broker.serving.context import RequestContext
    from ottla.coordination.groups.partitions import Partitions

CONSUMER_MEMBER = 1
HIDDEN_TOPICS = "The group has topics that the client may not describe."


async def consumer_group_heartbeat(
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
    groups: Lazy[GroupService],
    cluster: Cluster,
) -> ConsumerGroupHeartbeatResponse:
    owned = None
    if request.topic_partitions is not None:
        owned = frozenset(
            (uuid.UUID(bytes=topic.topic_id), index)
            for topic in request.topic_partitions
            for index in topic.partitions
        )
    names = request.subscribed_topic_names
    try:
        context.require(Operation.READ, Resource.GROUP, request.group_id)
        for name in names or ():
            context.require(Operation.DESCRIBE, Resource.TOPIC, name)
        answer = await groups().ask(
            request.group_id,
            m.ConsumerHeartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                topics=groups().topics,
                fresh_id=str(uuid.uuid4()) if context.version == 0 else "",
                instance_id=request.instance_id,
                rack_id=request.rack_id,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                topic_names=None if names is None else tuple(names),
                regex=_pattern(context, request.subscribed_topic_regex),
                assignor=request.server_assignor,
                owned=owned,
                client_id=context.client_id or "",
                client_host=f"/{context.peer.host}",
                settings=_settings(cluster, request.group_id),
            ),
            m.ConsumerHeartbeatResponse,
        )
    except ApiError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
    assignment = None
    if answer.assignment is not None:
        assignment = Assignment(
            [
                ResponseTopicPartitions(topic_id.bytes, indexes)
                for topic_id, indexes in by_topic(answer.assignment).items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


def _pattern(context: RequestContext, pattern: str | None) -> str | None:
    if pattern is None:
        return None
    try:
        return scoped(pattern, context.peer.access)
    except InvalidRegularExpression as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def _settings(cluster: Cluster, group_id: str) -> ConsumerSettings | None:
    """The settings of the group; None without any. Fast, because every heartbeat calls it."""
    if group_id not in cluster.image.group_configs:
        return None
    config = resolve_group_config(cluster.image, group_id, cluster.config)
    return ConsumerSettings(
        config.get_int("consumer.session.timeout.ms"),
        config.get_int("consumer.heartbeat.interval.ms"),
    )


async def consumer_group_describe(
    context: RequestContext,
    request: describe.ConsumerGroupDescribeRequest,
    groups: Lazy[GroupService],
    cluster: Cluster,
) -> describe.ConsumerGroupDescribeResponse:
    return describe.ConsumerGroupDescribeResponse(
        groups=[
            await _describe(context, request, groups(), cluster, group_id)
            for group_id in request.group_ids
        ]
    )


async def _describe(
    context: RequestContext,
    request: describe.ConsumerGroupDescribeRequest,
    groups: GroupService,
    cluster: Cluster,
    group_id: str,
) -> describe.DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, Resource.GROUP, group_id)
        answer = await groups.ask(
            group_id, m.DescribeConsumerGroup(group_id), m.DescribeConsumerGroupResponse
        )
    except ApiError as error:
        return describe.DescribedGroup(error.code, str(error), group_id)
    if answer.error != ErrorCode.NONE:
        text = f"Group {group_id} is not a consumer group."
        return describe.DescribedGroup(answer.error, text, group_id)
    names = cluster.image.topic_names
    assigned = {
        names.get(topic_id, "")
        for member in answer.members
        for partitions in (member.assignment, member.target)
        for topic_id, _ in partitions
    }
    if len(context.visible(Resource.TOPIC, assigned)) < len(assigned):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return describe.DescribedGroup(code, HIDDEN_TOPICS, group_id)
    return describe.DescribedGroup(
        group_id=group_id,
        group_state=answer.state,
        group_epoch=answer.group_epoch,
        assignment_epoch=answer.assignment_epoch,
        assignor_name=answer.assignor,
        members=[
            describe.Member(
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.member_epoch,
                member.client_id,
                member.client_host,
                member.topic_names,
                unscoped(member.regex),
                _assignment(cluster, member.assignment),
                _assignment(cluster, member.target),
                CONSUMER_MEMBER,
            )
            for member in answer.members
        ],
        authorized_operations=context.operations(Resource.GROUP, group_id)
        if request.include_authorized_operations
        else NOT_ASKED,
    )


def _assignment(cluster: Cluster, partitions: Partitions) -> describe.Assignment:
    names = cluster.image.topic_names
    return describe.Assignment(
        [
            describe.TopicPartitions(topic_id.bytes, names.get(topic_id, ""), indexes)
            for topic_id, indexes in by_topic(partitions).items()
        ]
    )
