"""The classic group protocol: JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14);
and DescribeGroups (15), ListGroups (16), DeleteGroups (42).

The coordinator decides; these functions translate versions:

- JoinGroup: v0 has no rebalance timeout (the session timeout counts); from v4 a member without an
  id is given one first (KIP-394); from v9 a static leader may be told to keep its assignment.
- LeaveGroup: one member up to v2, a list from v3 with a result for each.
- DescribeGroups: a missing group is error 69 from v6, before that state Dead without an error.

Members need read on their group, DescribeGroups describe, DeleteGroups delete. ListGroups shows all
groups to clients that may describe the cluster, and to others the groups that they may describe.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ottla.broker.errors import ApiError
from ottla.broker.serving.context import NOT_ASKED
from ottla.coordination.groups import messages as m
from ottla.metadata.security.acls import CLUSTER_NAME, Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.wire.schema.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.schema.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla.wire.schema.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.wire.schema.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.schema.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.running.services import Lazy
    from ottla.broker.serving.context import RequestContext


async def join_group(
    context: RequestContext, request: JoinGroupRequest, groups: Lazy[GroupService]
) -> JoinGroupResponse:
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if context.version == 0:
        rebalance_timeout_ms = request.session_timeout_ms
    try:
        context.require(Operation.READ, Resource.GROUP, request.group_id)
        answer = await groups().ask(
            request.group_id,
            m.JoinGroup(
                group_id=request.group_id,
                member_id=request.member_id,
                fresh_id=str(uuid.uuid4()),
                protocol_type=request.protocol_type,
                protocols=tuple(m.JoinProtocol(p.name, p.metadata) for p in request.protocols),
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                instance_id=request.group_instance_id,
                client_id=context.client_id or "",
                client_host=f"/{context.peer.host}",
                require_known_member=context.version >= 4,
                can_skip_assignment=context.version >= 9,
            ),
            m.JoinGroupResponse,
        )
    except ApiError as error:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        # Null only from v7 on; older clients expect text.
        protocol_name=answer.protocol if context.version >= 7 else answer.protocol or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[JoinGroupResponseMember(*member) for member in answer.members],
    )


async def sync_group(
    context: RequestContext, request: SyncGroupRequest, groups: Lazy[GroupService]
) -> SyncGroupResponse:
    try:
        context.require(Operation.READ, Resource.GROUP, request.group_id)
        answer = await groups().ask(
            request.group_id,
            m.SyncGroup(
                group_id=request.group_id,
                member_id=request.member_id,
                generation=request.generation_id,
                instance_id=request.group_instance_id,
                protocol_type=request.protocol_type,
                protocol=request.protocol_name,
                assignments=tuple((a.member_id, a.assignment) for a in request.assignments),
            ),
            m.SyncGroupResponse,
        )
    except ApiError as error:
        return SyncGroupResponse(error_code=error.code)
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


async def heartbeat(
    context: RequestContext, request: HeartbeatRequest, groups: Lazy[GroupService]
) -> HeartbeatResponse:
    try:
        context.require(Operation.READ, Resource.GROUP, request.group_id)
        answer = await groups().ask(
            request.group_id,
            m.Heartbeat(
                request.group_id,
                request.member_id,
                request.generation_id,
                request.group_instance_id,
            ),
            m.HeartbeatResponse,
        )
    except ApiError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse(error_code=answer.error)


async def leave_group(
    context: RequestContext, request: LeaveGroupRequest, groups: Lazy[GroupService]
) -> LeaveGroupResponse:
    if context.version >= 3:
        leaving = tuple(m.LeavingMember(x.member_id, x.group_instance_id) for x in request.members)
    else:
        leaving = (m.LeavingMember(request.member_id),)
    try:
        context.require(Operation.READ, Resource.GROUP, request.group_id)
        answer = await groups().ask(
            request.group_id, m.LeaveGroup(request.group_id, leaving), m.LeaveGroupResponse
        )
    except ApiError as error:
        return LeaveGroupResponse(error_code=error.code)
    if context.version < 3:
        return LeaveGroupResponse(error_code=answer.members[0].error)
    return LeaveGroupResponse(members=[MemberResponse(*member) for member in answer.members])


async def describe_groups(
    context: RequestContext, request: DescribeGroupsRequest, groups: Lazy[GroupService]
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[await _describe(context, request, groups(), each) for each in request.groups]
    )


async def _describe(
    context: RequestContext, request: DescribeGroupsRequest, groups: GroupService, group_id: str
) -> DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, Resource.GROUP, group_id)
        answer = await groups.ask(group_id, m.DescribeGroup(group_id), m.DescribeGroupResponse)
    except ApiError as error:
        return DescribedGroup(error.code, group_id=group_id)
    error_code = answer.error
    message = None
    if error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        message = f"Group {group_id} not found."
        if context.version < 6:
            error_code, message = ErrorCode.NONE, None
    return DescribedGroup(
        error_code,
        message,
        group_id,
        answer.state,
        answer.protocol_type,
        answer.protocol,
        [DescribedGroupMember(*member) for member in answer.members],
        context.operations(Resource.GROUP, group_id)
        if request.include_authorized_operations and error_code == ErrorCode.NONE
        else NOT_ASKED,
    )


async def list_groups(
    context: RequestContext, request: ListGroupsRequest, groups: Lazy[GroupService]
) -> ListGroupsResponse:
    if groups.made is None:  # looking loads no service, and one that was not used has no groups
        return ListGroupsResponse()
    asked = m.ListGroups(frozenset(request.states_filter), frozenset(request.types_filter))
    try:
        found = await groups().list_groups(asked)
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    if not context.sees(Resource.CLUSTER, CLUSTER_NAME):
        found = [group for group in found if context.sees(Resource.GROUP, group.group_id)]
    return ListGroupsResponse(groups=[ListedGroup(*group) for group in found])


async def delete_groups(
    context: RequestContext, request: DeleteGroupsRequest, groups: Lazy[GroupService]
) -> DeleteGroupsResponse:
    results = []
    for group_id in request.groups_names:
        try:
            context.require(Operation.DELETE, Resource.GROUP, group_id)
            answer = await groups().ask(group_id, m.DeleteGroup(group_id), m.DeleteGroupResponse)
        except ApiError as error:
            results.append(DeletableGroupResult(group_id, error.code))
        else:
            results.append(DeletableGroupResult(group_id, answer.error))
    return DeleteGroupsResponse(results=results)
