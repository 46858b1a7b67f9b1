"""The classic protocol: the effect of each request in each state of a group.

    request     Empty   PreparingRebalance  CompletingRebalance        Stable
    Join        round   waits               round if metadata changed  round if metadata changed
                                                                       or from the leader
    Sync        25      27                  waits for the leader       answered
    Heartbeat   25      27                  0                          0
    Commit      *       0                   27                         0

    * without member and generation 0, otherwise 25.

Checks come in one order everywhere: instance and member first (25 unknown, 82 fenced), then
generation (22), then protocol (23), then state. In the two later states a join with unchanged
metadata gets the current generation again, because its first response was lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordination.groups.classic_state import ClassicGroup, ClassicMember, State, session
from ottla.coordination.groups.messages import (
    DescribedMember,
    DescribeGroupResponse,
    JoinGroupResponse,
    LeftMember,
    SyncGroupResponse,
)
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from ottla.coordination.groups.messages import (
        Heartbeat,
        JoinGroup,
        LeavingMember,
        OffsetCommit,
        SyncGroup,
    )
    from ottla.coordination.groups.turn import Turn
    from ottla.coordination.machine import Token


def check_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    if instance_id is not None:
        owner = group.static.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def join(group: ClassicGroup, request: JoinGroup, token: Token, turn: Turn) -> None:
    error = _check_join(group, request)
    if error is not ErrorCode.NONE:
        turn.reply(token, JoinGroupResponse(error, request.member_id))
    elif request.member_id:
        _join_known(group, request, token, turn)
    elif request.instance_id in group.static:
        _take_over(group, request, token, turn)
    elif request.instance_id is None and request.require_known_member:
        _hand_out_id(group, request, token, turn)
    else:
        _join_new(group, request, _new_member_id(request), token, turn)


def _check_join(group: ClassicGroup, request: JoinGroup) -> ErrorCode:
    if request.member_id and request.member_id not in group.pending:
        error = check_member(group, request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            return error
    names = {protocol.name for protocol in request.protocols}
    known = request.member_id or group.static.get(request.instance_id or "")
    if (
        not request.protocol_type
        or not names
        or not group.shares_protocol(request.protocol_type, names, besides=known)
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if known not in group.members and _is_full(group):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    return ErrorCode.NONE


def _is_full(group: ClassicGroup) -> bool:
    """During a join round only joined members count: the others may be dead."""
    members = group.members.values()
    if group.state is State.PREPARING_REBALANCE:
        size = sum(member.join_token is not None for member in members)
    else:
        size = len(members)
    return size >= group.config.max_size


def _new_member_id(request: JoinGroup) -> str:
    return f"{request.instance_id or request.client_id}-{request.fresh_id}"


def _hand_out_id(group: ClassicGroup, request: JoinGroup, token: Token, turn: Turn) -> None:
    if len(group.pending) >= group.config.max_pending_members:
        turn.reply(token, JoinGroupResponse(ErrorCode.GROUP_MAX_SIZE_REACHED))
        return
    member_id = _new_member_id(request)
    group.add_pending(member_id, request.session_timeout_ms, turn.now_ms)
    turn.reply(token, JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _join_new(
    group: ClassicGroup, request: JoinGroup, member_id: str, token: Token, turn: Turn
) -> None:
    group.drop_pending(member_id)
    if not group.members:
        group.protocol_type = request.protocol_type
    member = ClassicMember(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
    )
    group.add(member)
    group.park_join(member, token, turn)


def _join_known(group: ClassicGroup, request: JoinGroup, token: Token, turn: Turn) -> None:
    if request.member_id in group.pending:
        _join_new(group, request, request.member_id, token, turn)
        return
    member = group.members[request.member_id]
    unchanged = member.protocols == request.protocols
    _update(member, request)
    leads_stable = group.state is State.STABLE and group.leader == member.member_id
    if group.state is State.PREPARING_REBALANCE or not unchanged or leads_stable:
        group.park_join(member, token, turn)
    else:
        group.touch(member, turn.now_ms)
        turn.reply(token, group.joined(member))


def _update(member: ClassicMember, request: JoinGroup) -> None:
    member.protocols = request.protocols
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.client_id = request.client_id
    member.client_host = request.client_host


def _take_over(group: ClassicGroup, request: JoinGroup, token: Token, turn: Turn) -> None:
    """A static member restarted: its old id is fenced; it keeps its place and assignment."""
    assert request.instance_id is not None
    old_id = group.static[request.instance_id]
    group.fail_waiting(group.members[old_id], ErrorCode.FENCED_INSTANCE_ID, turn)
    member = group.rename(old_id, _new_member_id(request))
    before = member.metadata(group.protocol)
    _update(member, request)
    if (
        group.state is not State.STABLE
        or group.select_protocol() != group.protocol
        or member.metadata(group.protocol) != before
    ):
        group.park_join(member, token, turn)
        return
    group.store(turn)
    group.touch(member, turn.now_ms)
    turn.reply(token, _kept_place(group, member, old_id, request))


def _kept_place(
    group: ClassicGroup, member: ClassicMember, old_id: str, request: JoinGroup
) -> JoinGroupResponse:
    """A returning leader must not assign again; below v9 the response names another leader."""
    answer = group.joined(member)
    if group.leader != member.member_id:
        return answer
    if request.can_skip_assignment:
        return replace(answer, skip_assignment=True)
    return replace(answer, leader=old_id, members=())


def sync(group: ClassicGroup, request: SyncGroup, token: Token, turn: Turn) -> None:
    error = _check_sync(group, request)
    if error is not ErrorCode.NONE:
        turn.reply(token, SyncGroupResponse(error))
        return
    member = group.members[request.member_id]
    group.mark_synced(member.member_id)
    if group.state is State.STABLE:
        group.touch(member, turn.now_ms)
        turn.reply(token, group.synced(member))
        return
    group.fail_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    member.sync_token = token
    group.timers.cancel(session(member.member_id))
    if member.member_id == group.leader:
        group.become_stable(dict(request.assignments), turn)


def _check_sync(group: ClassicGroup, request: SyncGroup) -> ErrorCode:
    error = check_member(group, request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol not in (
        None,
        group.protocol,
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def heartbeat(group: ClassicGroup, request: Heartbeat, turn: Turn) -> ErrorCode:
    error = check_member(group, request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    group.touch(group.members[request.member_id], turn.now_ms)
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(
    group: ClassicGroup, leaving: tuple[LeavingMember, ...], turn: Turn
) -> tuple[LeftMember, ...]:
    left = tuple(
        LeftMember(member_id, instance_id, _leave_one(group, member_id, instance_id, turn))
        for member_id, instance_id in leaving
    )
    if any(entry.error is ErrorCode.NONE for entry in left):
        group.after_removal(turn)
    return left


def _leave_one(
    group: ClassicGroup, member_id: str, instance_id: str | None, turn: Turn
) -> ErrorCode:
    if instance_id is not None and not member_id:
        member_id = group.static.get(instance_id, "")
    if member_id in group.pending:
        group.drop_pending(member_id)
        return ErrorCode.NONE
    error = check_member(group, member_id, instance_id)
    if error is ErrorCode.NONE:
        group.remove(member_id, turn)
    return error


def check_commit(group: ClassicGroup, request: OffsetCommit, turn: Turn) -> ErrorCode:
    """Check whether this member may commit now; a commit renews its session."""
    error = check_member(group, request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.epoch != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    group.touch(group.members[request.member_id], turn.now_ms)
    if group.state is State.COMPLETING_REBALANCE and request.transaction is None:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def describe(group: ClassicGroup) -> DescribeGroupResponse:
    """Metadata and assignments are shown only when the group is stable."""
    stable = group.state is State.STABLE
    return DescribeGroupResponse(
        ErrorCode.NONE,
        group.state,
        group.protocol_type,
        (group.protocol or "") if stable else "",
        tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol) if stable else b"",
                member.assignment if stable else b"",
            )
            for member in group.members.values()
        ),
    )
