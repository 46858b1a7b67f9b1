"""KIP-848: members join, reconcile and leave by heartbeats.

    epoch 0   join, or join again after being fenced: all fields, nothing owned
    epoch n   alive; fields that are null are unchanged, `owned` acknowledges an assignment
    epoch -1  leave; a static member leaves for good
    epoch -2  a static member leaves for now and keeps its partitions until its session ends

Rules:

- Only a real change raises the group epoch: fields sent again with equal values do not, and an
  empty regex is no regex.
- The epoch of a heartbeat must be the member's. The previous epoch is accepted if the reported
  partitions are a subset of the assigned ones, because the response with the new epoch was lost.
- An instance id in use is not taken over (111) until its owner has left with -2 or expired.
- A heartbeat that changes a large group soon after its last target waits for the next one; see
  `consumer_state`. All others are answered at once, with the current target.
- The response has the assignment if it changed, if the member reports another one (it missed a
  response), on a join and on a full request.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordination.groups.assignors import ASSIGNORS
from ottla.coordination.groups.consumer_state import (
    LEFT_FOR_NOW,
    NOTHING_YET,
    ConsumerGroup,
    Waiting,
)
from ottla.coordination.groups.keys import (
    ConsumerGroupKey,
    CurrentAssignmentKey,
    MemberKey,
    RegexKey,
    TargetMemberKey,
)
from ottla.coordination.groups.messages import (
    ConsumerHeartbeatResponse,
    ConsumerMember,
    DescribeConsumerGroupResponse,
)
from ottla.coordination.groups.reconcile import STABLE, reconcile
from ottla.coordination.groups.records import (
    ConsumerGroupValue,
    CurrentAssignmentValue,
    MemberValue,
    RegexValue,
    TargetMemberValue,
)
from ottla.coordination.groups.topics import TopicsImage, metadata_hash
from ottla.coordination.machine import Refused
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordination.groups.messages import ConsumerHeartbeat
    from ottla.coordination.groups.turn import Turn
    from ottla.coordination.machine import Token

Resolve: TypeAlias = "Callable[[str, TopicsImage], frozenset[str]]"
"""Returns the topics that a regular expression matches; raises `InvalidRegularExpression`."""

JOIN, LEAVE = 0, -1


class InvalidRegularExpression(ValueError):
    """Raised by the broker's matcher; the message goes to the client."""


def refused(refusal: Refused) -> ConsumerHeartbeatResponse:
    return ConsumerHeartbeatResponse(refusal.error, refusal.message)


def check_request(request: ConsumerHeartbeat) -> None:
    """Check the parts of a heartbeat that do not depend on the state of the group."""
    joining = request.member_epoch == JOIN
    faults = (
        (not request.group_id, "the group id is empty"),
        (not request.member_id and not (joining and request.fresh_id), "the member id is empty"),
        (request.instance_id == "", "the instance id is empty"),
        (request.rack_id == "", "the rack id is empty"),
        (request.member_epoch < LEFT_FOR_NOW, "the member epoch is below -2"),
        (
            request.member_epoch == LEFT_FOR_NOW and request.instance_id is None,
            "only a member with an instance id leaves with epoch -2",
        ),
        (joining and request.rebalance_timeout_ms < 0, "a join needs a rebalance timeout"),
        (
            joining and not request.regex and not request.topic_names,
            "a join needs topic names or a regular expression",
        ),
        (joining and bool(request.owned), "a member that joins owns no partitions"),
    )
    for wrong, message in faults:
        if wrong:
            raise Refused(ErrorCode.INVALID_REQUEST, message)
    if request.assignor and request.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"no assignor {request.assignor!r}; known: {known}"
        )


def match_regex(request: ConsumerHeartbeat, resolve: Resolve) -> frozenset[str]:
    """The topics of the regular expression in a request."""
    try:
        return resolve(request.regex or "", request.topics) if request.regex else frozenset()
    except InvalidRegularExpression as error:
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def heartbeat(
    group: ConsumerGroup, request: ConsumerHeartbeat, resolve: Resolve, token: Token, turn: Turn
) -> None:
    """`check_request` has passed; raises `Refused` before the first record."""
    if request.member_epoch < 0:
        turn.reply(token, _leave(group, request, turn))
        return
    member_id = request.member_id or request.fresh_id
    replaced = _check_member(group, member_id, request)
    matched: frozenset[str] = frozenset()
    if request.regex not in group.regexes:
        matched = match_regex(request, resolve)
    if replaced is not None:
        _replace(group, replaced, member_id, turn)
    waited = group.overtake(member_id, turn)
    changed = _update(group, member_id, request, matched, turn)
    _follow_topics(group, request.topics, resolve, turn, changed=changed)
    group.touch(member_id, turn.now_ms, request.settings)
    answer = partial(_answer, group, member_id, request, token)
    if group.epoch > group.target_epoch:
        due_ms = group.next_target_ms(request.topics)
        if due_ms <= turn.now_ms:
            group.retarget(request.topics, turn)
        elif changed or waited:
            refuse = partial(_refuse, group, member_id, token)
            waiting = Waiting(member_id, request.topics, answer, refuse)
            group.wait_for_target(waiting, due_ms)
            return
    answer(turn)


def _answer(
    group: ConsumerGroup, member_id: str, request: ConsumerHeartbeat, token: Token, turn: Turn
) -> None:
    """Move the member towards the target, and answer it."""
    before = group.current.get(member_id, NOTHING_YET)
    after = _reconcile(group, member_id, request, turn)
    response = ConsumerHeartbeatResponse(
        member_id=member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=(request.settings or group.config.consumer).heartbeat_interval_ms,
        assignment=after.assigned if _must_tell(request, before, after) else None,
    )
    turn.reply(token, response)


def _refuse(group: ConsumerGroup, member_id: str, token: Token, turn: Turn) -> None:
    if member_id in group.members:
        refusal = Refused(ErrorCode.FENCED_MEMBER_EPOCH, "a later heartbeat has come")
    else:
        refusal = Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id!r}")
    turn.reply(token, refused(refusal))


def _must_tell(
    request: ConsumerHeartbeat, before: CurrentAssignmentValue, after: CurrentAssignmentValue
) -> bool:
    reported = before.assigned if request.owned is None else request.owned
    subscribes = request.topic_names is not None or request.regex is not None
    return (
        not reported == before.assigned == after.assigned
        or request.member_epoch == JOIN
        or (subscribes and request.owned is not None and request.rebalance_timeout_ms != -1)
    )


def _check_member(group: ConsumerGroup, member_id: str, request: ConsumerHeartbeat) -> str | None:
    """Check member id and epoch; returns the static member that this one replaces, if any."""
    _check_instance(group, member_id, request)
    if request.member_epoch == JOIN:
        owner = group.static.get(request.instance_id or "", member_id)
        if owner != member_id:
            return owner
        if member_id not in group.members and len(group.members) >= group.config.consumer_max_size:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full")
        return None
    if member_id not in group.members:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id!r}")
    current = group.current.get(member_id, NOTHING_YET)
    retried = (
        request.member_epoch == current.previous_epoch
        and request.owned is not None
        and request.owned <= current.assigned
    )
    if request.member_epoch != current.member_epoch and not retried:
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member is at epoch {current.member_epoch}, not {request.member_epoch}",
        )
    return None


def _check_instance(group: ConsumerGroup, member_id: str, request: ConsumerHeartbeat) -> None:
    if (instance_id := request.instance_id) is None:
        return
    owner = group.static.get(instance_id)
    if request.member_epoch == JOIN:
        left = group.current.get(owner or "", NOTHING_YET).member_epoch == LEFT_FOR_NOW
        if owner not in (None, member_id) and not left:
            raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, f"{instance_id!r} is in use")
    elif owner is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no instance {instance_id!r}")
    elif owner != member_id:
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id!r} belongs to another member")


def _replace(group: ConsumerGroup, old_id: str, new_id: str, turn: Turn) -> None:
    """A static member returned under a new id: it inherits subscription, target and partitions."""
    target = group.targets.get(old_id, frozenset())
    assigned = group.current[old_id].assigned
    turn.emit(MemberKey(group.group_id, new_id), group.members[old_id])
    group.forget(old_id, turn)
    turn.emit(TargetMemberKey(group.group_id, new_id), TargetMemberValue(target))
    inherited = replace(NOTHING_YET, assigned=assigned)
    turn.emit(CurrentAssignmentKey(group.group_id, new_id), inherited)


def _update(
    group: ConsumerGroup,
    member_id: str,
    request: ConsumerHeartbeat,
    matched: frozenset[str],
    turn: Turn,
) -> bool:
    """Store changes of the member; true if a new assignment is needed."""
    old = group.members.get(member_id)
    new = _merged(old, request)
    if new == old:
        return False
    turn.emit(MemberKey(group.group_id, member_id), new)
    if new.regex is not None and new.regex not in group.regexes:
        value = RegexValue(tuple(sorted(matched)), request.topics.version, turn.wall_ms)
        turn.emit(RegexKey(group.group_id, new.regex), value)
        group.matched_ms[new.regex] = turn.now_ms
    if old is None:
        return True
    if old.regex != new.regex:
        group.drop_unused_regex(old.regex, turn)
    return (old.topic_names, old.regex, old.assignor, old.rack_id) != (
        new.topic_names,
        new.regex,
        new.assignor,
        new.rack_id,
    )


def _merged(old: MemberValue | None, request: ConsumerHeartbeat) -> MemberValue:
    if old is None:
        old = MemberValue(None, None, "", "", (), None, -1, None)
    names, regex = old.topic_names, old.regex
    if request.topic_names is not None:
        names = tuple(sorted(set(request.topic_names)))
    if request.regex is not None:
        regex = request.regex or None
    return MemberValue(
        request.instance_id or old.instance_id,
        request.rack_id or old.rack_id,
        request.client_id,
        request.client_host,
        names,
        regex,
        old.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        request.assignor or old.assignor,
    )


def _follow_topics(
    group: ConsumerGroup, topics: TopicsImage, resolve: Resolve, turn: Turn, *, changed: bool
) -> None:
    """Match stale expressions again; raise the group epoch if anything changed."""
    stale = [
        regex
        for regex, value in group.regexes.items()
        if topics.version != value.version and group.may_match(regex, turn.now_ms)
    ]
    moved = False
    for regex in stale:
        names = tuple(sorted(resolve(regex, topics)))
        moved = moved or names != group.regexes[regex].topics
        fresh = RegexValue(names, topics.version, turn.wall_ms)
        turn.emit(RegexKey(group.group_id, regex), fresh)
        group.matched_ms[regex] = turn.now_ms
    if topics is group.seen_topics and not changed and not stale:
        return
    group.seen_topics = topics
    now = metadata_hash(topics, group.subscribed_topics())
    # One expression may match other topics while the rest match the same ones as before.
    changed = changed or (moved and now == group.metadata_hash)
    if changed or (now != group.metadata_hash and group.epoch <= group.target_epoch):
        group.bump(turn, now)
    elif now != group.metadata_hash:
        # A new target will be computed anyway; update the hash with it.
        turn.emit(ConsumerGroupKey(group.group_id), ConsumerGroupValue(group.epoch, now))


def _reconcile(
    group: ConsumerGroup, member_id: str, request: ConsumerHeartbeat, turn: Turn
) -> CurrentAssignmentValue:
    current = group.current.get(member_id, NOTHING_YET)
    updated = reconcile(
        current,
        group.target_epoch,
        group.targets.get(member_id, frozenset()),
        frozenset() if request.member_epoch == JOIN else request.owned,
        lambda partition: group.is_free_for(member_id, partition),
    )
    if updated != current:
        turn.emit(CurrentAssignmentKey(group.group_id, member_id), updated)
        group.watch_revocation(member_id, turn.now_ms)
    return updated


def _leave(
    group: ConsumerGroup, request: ConsumerHeartbeat, turn: Turn
) -> ConsumerHeartbeatResponse:
    member_id = request.member_id
    _check_instance(group, member_id, request)
    if member_id not in group.members:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id!r}")
    if request.member_epoch == LEAVE:
        group.remove(member_id, turn)
    else:
        current = group.current.get(member_id, NOTHING_YET)
        value = CurrentAssignmentValue(
            LEFT_FOR_NOW, LEFT_FOR_NOW, STABLE, current.assigned, frozenset()
        )
        turn.emit(CurrentAssignmentKey(group.group_id, member_id), value)
        group.watch_revocation(member_id, turn.now_ms)
        group.touch(member_id, turn.now_ms)
    return ConsumerHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)


def check_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode:
    """Check that a commit or fetch of offsets comes from a current member."""
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.current.get(member_id, NOTHING_YET).member_epoch != epoch:
        return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE


def describe(group: ConsumerGroup) -> DescribeConsumerGroupResponse:
    members = []
    for member_id, member in group.members.items():
        current = group.current.get(member_id, NOTHING_YET)
        members.append(
            ConsumerMember(
                member_id,
                member.instance_id,
                member.rack_id,
                current.member_epoch,
                member.client_id,
                member.client_host,
                member.topic_names,
                member.regex,
                current.assigned,
                group.targets.get(member_id, frozenset()),
            )
        )
    return DescribeConsumerGroupResponse(
        ErrorCode.NONE,
        group.state,
        group.epoch,
        group.target_epoch,
        group.assignor,
        tuple(members),
    )
