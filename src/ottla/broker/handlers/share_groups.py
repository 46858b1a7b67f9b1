"""ShareGroupHeartbeat (76) and ShareGroupDescribe (77).

Epoch 0 joins, -1 leaves, null fields mean unchanged. If the share state of a group must be
initialized first, a joining member would get an empty assignment and wait a whole heartbeat
interval for its partitions. Instead the response waits for that state, for at most half an
interval, and never fails because of it.

Permissions: a heartbeat needs read on the group and describe on each subscribed topic. Describing a
group needs describe on it and on every assigned topic.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import NOT_ASKED
from ottla.coordination.groups import share_messages as m
from ottla.coordination.groups.config import ShareSettings
from ottla.coordination.groups.partitions import by_topic
from ottla.metadata.config.values import resolve_group_config
from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import share_group_describe as describe
from ottla.wire.schema.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.running.services import Lazy
    from ottla.broker.serving.context import RequestContext

JOIN = 0
HIDDEN_TOPICS = "The group has topics that the client may not describe."


async def share_group_heartbeat(
    context: RequestContext,
    request: ShareGroupHeartbeatRequest,
    groups: Lazy[GroupService],
    cluster: Cluster,
) -> ShareGroupHeartbeatResponse:
    group_id = request.group_id
    names = request.subscribed_topic_names
    heartbeat = m.ShareHeartbeat(
        group_id=group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        topics=groups().topics,
        fresh_id=_fresh_id(),
        rack_id=request.rack_id,
        topic_names=None if names is None else tuple(names),
        client_id=context.client_id or "",
        client_host=f"/{context.peer.host}",
        settings=_settings(cluster, group_id),
    )
    try:
        context.require(Operation.READ, Resource.GROUP, group_id)
        for name in names or ():
            context.require(Operation.DESCRIBE, Resource.TOPIC, name)
        answer = await groups().ask(group_id, heartbeat, m.ShareHeartbeatResponse)
        if request.member_epoch == JOIN and answer.error == ErrorCode.NONE:
            answer = await _with_state(groups(), heartbeat, answer)
    except ApiError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
    assignment = None
    if answer.assignment is not None:
        assignment = Assignment(
            [
                TopicPartitions(topic_id.bytes, indexes)
                for topic_id, indexes in by_topic(answer.assignment).items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


async def _with_state(
    groups: GroupService, heartbeat: m.ShareHeartbeat, answer: m.ShareHeartbeatResponse
) -> m.ShareHeartbeatResponse:
    """Answer a join after the group's share state is initialized, or after a time."""
    effects = groups.effects_of(heartbeat.group_id)
    if effects is None or answer.assignment:
        return answer
    await asyncio.wait([effects], timeout=answer.heartbeat_interval_ms / 2000)
    again = replace(
        heartbeat,
        member_id=answer.member_id or heartbeat.member_id,
        topics=groups.topics,
        fresh_id="",
    )
    return await groups.ask(heartbeat.group_id, again, m.ShareHeartbeatResponse)


def _settings(cluster: Cluster, group_id: str) -> ShareSettings:
    config = resolve_group_config(cluster.image, group_id, cluster.config)
    return ShareSettings(
        config.get_int("share.session.timeout.ms"),
        config.get_int("share.heartbeat.interval.ms"),
        config.get_int("share.assignment.interval.ms"),
    )


def _fresh_id() -> str:
    """A member id in the form of the Java client's."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


async def share_group_describe(
    context: RequestContext,
    request: describe.ShareGroupDescribeRequest,
    groups: Lazy[GroupService],
    cluster: Cluster,
) -> describe.ShareGroupDescribeResponse:
    return describe.ShareGroupDescribeResponse(
        groups=[
            await _describe(context, request, groups(), cluster, group_id)
            for group_id in request.group_ids
        ]
    )


async def _describe(
    context: RequestContext,
    request: describe.ShareGroupDescribeRequest,
    groups: GroupService,
    cluster: Cluster,
    group_id: str,
) -> describe.DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, Resource.GROUP, group_id)
        answer = await groups.ask(
            group_id, m.DescribeShareGroup(group_id), m.DescribeShareGroupResponse
        )
    except ApiError as error:
        return describe.DescribedGroup(error.code, str(error), group_id)
    if answer.error != ErrorCode.NONE:
        text = f"Group {group_id} is not a share group."
        return describe.DescribedGroup(answer.error, text, group_id, answer.state)
    names = cluster.image.topic_names
    assigned = {
        names.get(topic_id, "") for member in answer.members for topic_id, _ in member.assignment
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
                member.rack_id,
                member.member_epoch,
                member.client_id,
                member.client_host,
                member.topic_names,
                describe.Assignment(
                    [
                        describe.TopicPartitions(topic_id.bytes, names.get(topic_id, ""), indexes)
                        for topic_id, indexes in by_topic(member.assignment).items()
                    ]
                ),
            )
            for member in answer.members
        ],
        authorized_operations=context.operations(Resource.GROUP, group_id)
        if request.include_authorized_operations
        else NOT_ASKED,
    )
