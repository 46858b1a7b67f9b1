"""KIP-848: ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69).

One heartbeat does it all: epoch 0 joins, -1 leaves, -2 leaves for now (static members), null
fields mean unchanged. From v1 the client makes its member id; in v0 it may leave that to us.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.coordination.groups import messages as m
from ottla.coordination.groups.config import ConsumerSettings
from ottla.coordination.groups.partitions import by_topic
from ottla.metadata.config.values import resolve_group_config
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
                regex=request.subscribed_topic_regex,
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


def _settings(cluster: Cluster, group_id: str) -> ConsumerSettings | None:
    """Those of the group, if it has any: most have none, and every heartbeat asks."""
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
        groups=[await _describe(groups(), cluster, group_id) for group_id in request.group_ids]
    )


async def _describe(
    groups: GroupService, cluster: Cluster, group_id: str
) -> describe.DescribedGroup:
    try:
        answer = await groups.ask(
            group_id, m.DescribeConsumerGroup(group_id), m.DescribeConsumerGroupResponse
        )
    except ApiError as error:
        return describe.DescribedGroup(error.code, str(error), group_id)
    if answer.error != ErrorCode.NONE:
        text = f"Group {group_id} is not a consumer group."
        return describe.DescribedGroup(answer.error, text, group_id)
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
                member.regex,
                _assignment(cluster, member.assignment),
                _assignment(cluster, member.target),
                CONSUMER_MEMBER,
            )
            for member in answer.members
        ],
    )


def _assignment(cluster: Cluster, partitions: Partitions) -> describe.Assignment:
    names = cluster.image.topic_names
    return describe.Assignment(
        [
            describe.TopicPartitions(topic_id.bytes, names.get(topic_id, ""), indexes)
            for topic_id, indexes in by_topic(partitions).items()
        ]
    )
