"""Heartbeats of share groups (KIP-932).

    epoch 0   join, or join again after being fenced, with the subscription
    epoch n   alive; fields that are null are unchanged
    epoch -1  leave

Rules:

- The member chooses its id, any text up to 36 characters; a join without one gets one, unless that
  is disabled.
- The epoch must be the member's, or the previous one if the response with the new one was lost.
- The group epoch rises when subscriptions, topics or assignable partitions change, and a new target
  is computed at most once per assignment interval. Members get their target at once.
- The response has the assignment if it changed, on a join, with a subscription, and for a member
  that missed a response.
- A heartbeat never waits for the share coordinator, and never fails because of it. So a first join
  gets no partitions, and the next heartbeat those that were initialized meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordination.groups import share_assignor as assignor
from ottla.coordination.groups.keys import ShareCurrentAssignmentKey, ShareMemberKey
from ottla.coordination.groups.share_group import NOTHING_YET
from ottla.coordination.groups.share_messages import (
    DescribeShareGroupResponse,
    ShareHeartbeatResponse,
    ShareMember,
)
from ottla.coordination.groups.share_records import ShareCurrentAssignmentValue, ShareMemberValue
from ottla.coordination.machine import Refused
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.coordination.groups.share_group import ShareGroup
    from ottla.coordination.groups.share_messages import ShareHeartbeat
    from ottla.coordination.groups.topics import TopicsImage
    from ottla.coordination.groups.turn import Turn

JOIN, LEAVE = 0, -1

MAX_MEMBER_ID_LENGTH = 36
"""A UUID in its longest form; the id is kept in memory and repeated in every record."""


def refused(refusal: Refused) -> ShareHeartbeatResponse:
    return ShareHeartbeatResponse(refusal.error, refusal.message)


def check_request(request: ShareHeartbeat, *, may_be_nameless: bool) -> None:
    """Check the parts of a heartbeat that do not depend on the state of the group."""
    joining = request.member_epoch == JOIN
    faults = (
        (
            not request.member_id and not (joining and may_be_nameless),
            "the member id is empty",
        ),
        (
            len(request.member_id) > MAX_MEMBER_ID_LENGTH,
            f"the member id is longer than {MAX_MEMBER_ID_LENGTH} characters",
        ),
        (not request.group_id, "the group id is empty"),
        (request.rack_id == "", "the rack id is empty"),
        (joining and not request.topic_names, "a join needs topic names"),
        (request.member_epoch < LEAVE, "the member epoch is below -1"),
    )
    for wrong, message in faults:
        if wrong:
            raise Refused(ErrorCode.INVALID_REQUEST, message)


def heartbeat(group: ShareGroup, request: ShareHeartbeat, turn: Turn) -> ShareHeartbeatResponse:
    """`check_request` has passed; raises `Refused` before the first record."""
    if request.member_epoch == LEAVE:
        return _leave(group, request, turn)
    settings = request.settings or group.config.share
    member_id = request.member_id or request.fresh_id
    _check_member(group, member_id, request.member_epoch)
    before = group.current.get(member_id, NOTHING_YET)
    changed = _update(group, member_id, request, turn)
    group.follow(request.topics, turn, changed=changed)
    group.retarget(request.topics, settings.assignment_interval_ms, turn)
    after = _reconcile(group, member_id, request.topics, turn)
    group.touch(member_id, turn.now_ms, settings)
    group.initialize_missing(request.topics, turn)
    must_tell = (
        request.topic_names is not None
        or request.member_epoch != before.member_epoch
        or after.assigned != before.assigned
    )
    return ShareHeartbeatResponse(
        member_id=member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=after.assigned if must_tell else None,
    )


def _check_member(group: ShareGroup, member_id: str, epoch: int) -> None:
    known = member_id in group.members
    if not known and len(group.members) >= group.config.share_max_size:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full")
    if epoch == JOIN:
        return
    if not known:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id!r}")
    current = group.current.get(member_id, NOTHING_YET)
    if epoch not in (current.member_epoch, current.previous_epoch):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member is at epoch {current.member_epoch}, not {epoch}",
        )


def _update(group: ShareGroup, member_id: str, request: ShareHeartbeat, turn: Turn) -> bool:
    """Store changes of the member; true if its subscription changed."""
    old = group.members.get(member_id, ShareMemberValue(None, "", "", ()))
    names = old.topic_names
    if request.topic_names is not None:
        names = tuple(sorted(set(request.topic_names)))
    new = ShareMemberValue(
        request.rack_id or old.rack_id, request.client_id, request.client_host, names
    )
    if new != group.members.get(member_id):
        turn.emit(ShareMemberKey(group.group_id, member_id), new)
    return new.topic_names != old.topic_names


def _reconcile(
    group: ShareGroup, member_id: str, topics: TopicsImage, turn: Turn
) -> ShareCurrentAssignmentValue:
    """Move the member to its target; nothing has to be revoked first.

    Within an epoch only a new subscription changes the assignment, never a change of topics: a
    member that repeats its epoch because a response was lost has missed nothing else.
    """
    current = group.current.get(member_id, NOTHING_YET)
    subscribed = group.members[member_id].topic_names
    moved = current.member_epoch != group.target_epoch
    given = group.targets.get(member_id, frozenset()) if moved else current.assigned

    def is_read(topic_id: UUID) -> bool:
        topic = topics.topics_by_id.get(topic_id)
        return topic is None or topic.name in subscribed

    updated = ShareCurrentAssignmentValue(
        group.target_epoch,
        current.member_epoch if moved else current.previous_epoch,
        frozenset(partition for partition in given if is_read(partition[0])),
    )
    if updated != current:
        turn.emit(ShareCurrentAssignmentKey(group.group_id, member_id), updated)
    return updated


def _leave(group: ShareGroup, request: ShareHeartbeat, turn: Turn) -> ShareHeartbeatResponse:
    if request.member_id not in group.members:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id!r}")
    group.remove(request.member_id, turn)
    return ShareHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE)


def describe(group: ShareGroup) -> DescribeShareGroupResponse:
    members = []
    for member_id, member in group.members.items():
        current = group.current.get(member_id, NOTHING_YET)
        members.append(
            ShareMember(
                member_id,
                member.rack_id,
                current.member_epoch,
                member.client_id,
                member.client_host,
                member.topic_names,
                current.assigned,
            )
        )
    return DescribeShareGroupResponse(
        ErrorCode.NONE,
        group.state,
        group.epoch,
        group.target_epoch,
        assignor.NAME,
        tuple(members),
    )
