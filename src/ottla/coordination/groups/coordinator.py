"""The groups of one partition of `__consumer_offsets`, as one state machine.

Passes every request to the classic, consumer or share group of its group id. A group id with
offsets alone is listed and described as an Empty classic group. An empty classic group may become a
consumer group and vice versa; while there are members, a join of the other protocol is refused. A
share group stays a share group until it is deleted, and has no committed offsets.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordination.groups import classic, consumer
from ottla.coordination.groups.classic_state import ClassicGroup, State
from ottla.coordination.groups.consumer_state import ConsumerGroup
from ottla.coordination.groups.keys import (
    AnyShareKey,
    ClassicGroupKey,
    ConsumerGroupKey,
    OffsetKey,
    ShareGroupKey,
)
from ottla.coordination.groups.messages import (
    ApplyMarker,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteGroupResponse,
    DescribeConsumerGroup,
    DescribeConsumerGroupResponse,
    DescribeGroup,
    DescribeGroupResponse,
    ForgetOffsets,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeftMember,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    SyncGroup,
    SyncGroupResponse,
)
from ottla.coordination.groups.offsets.offsets import Offsets
from ottla.coordination.groups.offsets.requests import OffsetRequests
from ottla.coordination.groups.records import ClassicGroupValue, OffsetValue, Record, decode
from ottla.coordination.groups.share_group import ShareGroup
from ottla.coordination.groups.share_messages import ForgetTopics
from ottla.coordination.groups.share_requests import ShareRequests
from ottla.coordination.groups.turn import Turn
from ottla.coordination.machine import Refused
from ottla.coordination.timers import Timers
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Now
    from ottla.coordination.groups.config import GroupConfig
    from ottla.coordination.groups.messages import Request, Response
    from ottla.coordination.machine import Decision, Marker, Token

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup
"""The kinds of groups in a partition of `__consumer_offsets`."""

_EXPIRY = ""
"""The key of the coordinator's own deadline; no group has this id."""

MAX_EXPIRED_PER_TICK = 5_000
"""Tombstones of one sweep that go into one batch: some 300 kB, well under a batch's limit."""

NEXT_SWEEP_MS = 10


def is_idle(group: Group | None) -> bool:
    """Whether a group has no members, and none that join."""
    return group is not None and group.timers.next_deadline() is None


class GroupCoordinator:
    """`resolve` matches a regular expression against topic names (the broker brings RE2)."""

    def __init__(self, config: GroupConfig, resolve: consumer.Resolve) -> None:
        self.config = config
        self.groups: dict[str, Group] = {}
        self._resolve = resolve
        self.offsets = Offsets(config)
        self.committed = OffsetRequests(self.groups, self.offsets)
        self._timers: Timers[str] = Timers()
        self.shares = ShareRequests(config, self.groups, self._exists, self._share)
        self._handlers: dict[type, Callable[..., None]] = {
            JoinGroup: self._join,
            SyncGroup: self._sync,
            Heartbeat: self._heartbeat,
            LeaveGroup: self._leave,
            DescribeGroup: self._describe,
            ListGroups: self._list,
            DeleteGroup: self._delete,
            ConsumerHeartbeat: self._consumer_heartbeat,
            DescribeConsumerGroup: self._describe_consumer,
            **self.committed.handlers,
            **self.shares.handlers,
        }

    # Called by the runtime

    def replay(self, key: bytes, value: bytes | None) -> None:
        if (record := decode(key, value)) is not None:
            self.apply(record)

    def replay_transactional(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        if (record := decode(key, value)) is not None:
            self.apply(record, producer_id)

    def replay_marker(self, marker: Marker) -> None:
        self.offsets.end_transaction(marker.producer_id, commit=marker.commit)

    def loaded(self, now: Now) -> None:
        for group_id, group in tuple(self.groups.items()):
            group.restore(now.ms)
            self._settle(group_id)
        self._timers.set(_EXPIRY, now.ms + self.config.offsets_retention_check_interval_ms)

    def decide(self, request: Request, token: Token, now: Now) -> Decision[Record, Response]:
        apply: Callable[[Record], None] = self.apply
        if isinstance(request, OffsetCommit) and request.transaction is not None:
            apply = partial(self.apply, producer_id=request.transaction.producer_id)
        turn = Turn(now, apply)
        self._handlers[type(request)](request, token, turn)
        if not isinstance(request, ListGroups | ForgetTopics | ForgetOffsets | ApplyMarker):
            self._settle(request.group_id)
        return turn.decision

    def tick(self, now: Now) -> Decision[Record, Response]:
        turn = Turn(now, self.apply)
        while (group_id := self._timers.pop_due(now.ms)) is not None:
            if group_id == _EXPIRY:
                self._timers.set(_EXPIRY, now.ms + self._expire(turn))
            else:
                self.groups[group_id].tick(turn)
                self._settle(group_id)
        return turn.decision

    def next_deadline(self) -> int | None:
        return self._timers.next_deadline()

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return record.encode()

    def apply(self, record: Record, producer_id: int | None = None) -> None:
        """Apply a record of a producer's transaction; only offsets are written in transactions."""
        key, value = record
        if isinstance(key, OffsetKey):
            assert value is None or isinstance(value, OffsetValue)
            self.offsets.apply(key, value, producer_id)
        elif value is None and isinstance(key, ClassicGroupKey | ConsumerGroupKey | ShareGroupKey):
            self._forget(key.group_id)
        elif isinstance(key, AnyShareKey):
            if value is not None or isinstance(self.groups.get(key.group_id), ShareGroup):
                self._share(key.group_id).apply(record)
        elif isinstance(value, ClassicGroupValue):
            self._classic(key.group_id).apply(value)
        elif value is not None or isinstance(self.groups.get(key.group_id), ConsumerGroup):
            self._consumer(key.group_id).apply(record)

    # Groups by id

    def _classic(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id, self.config)
        return group

    def _consumer(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            group = self.groups[group_id] = ConsumerGroup(group_id, self.config)
        return group

    def _share(self, group_id: str) -> ShareGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            group = self.groups[group_id] = ShareGroup(group_id, self.config)
        return group

    def _forget(self, group_id: str) -> None:
        self.groups.pop(group_id, None)
        self._timers.cancel(group_id)

    def _settle(self, group_id: str) -> None:
        """After a decision: set the next deadline of the group, or forget an unused group."""
        group = self.groups.get(group_id)
        if group is None:
            return
        deadline = group.timers.next_deadline()
        if deadline is not None:
            self._timers.set(group_id, deadline)
        elif group.stored is None:
            self._forget(group_id)
        else:
            self._timers.cancel(group_id)

    def _exists(self, group_id: str) -> bool:
        return group_id in self.groups or self.offsets.has(group_id)

    # The classic protocol

    def _join(self, request: JoinGroup, token: Token, turn: Turn) -> None:
        config = self.config
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not (
            config.min_session_timeout_ms
            <= request.session_timeout_ms
            <= config.max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        else:
            error = self._make_way_for_classic(request, turn)
        if error is not ErrorCode.NONE:
            turn.reply(token, JoinGroupResponse(error, request.member_id))
        else:
            classic.join(self._classic(request.group_id), request, token, turn)

    def _make_way_for_classic(self, request: JoinGroup, turn: Turn) -> ErrorCode:
        group = self.groups.get(request.group_id)
        if isinstance(group, ShareGroup) or (isinstance(group, ConsumerGroup) and group.members):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id and not isinstance(group, ClassicGroup):
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            group.end(turn)
        return ErrorCode.NONE

    def _sync(self, request: SyncGroup, token: Token, turn: Turn) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            classic.sync(group, request, token, turn)
        else:
            turn.reply(token, SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))

    def _heartbeat(self, request: Heartbeat, token: Token, turn: Turn) -> None:
        group = self.groups.get(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ClassicGroup):
            error = classic.heartbeat(group, request, turn)
        turn.reply(token, HeartbeatResponse(error))

    def _leave(self, request: LeaveGroup, token: Token, turn: Turn) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            left = classic.leave(group, request.members, turn)
        else:
            left = tuple(
                LeftMember(*member, ErrorCode.UNKNOWN_MEMBER_ID) for member in request.members
            )
        turn.reply(token, LeaveGroupResponse(left))

    # KIP-848

    def _consumer_heartbeat(self, request: ConsumerHeartbeat, token: Token, turn: Turn) -> None:
        try:
            consumer.check_request(request)
            group = self._group_to_heartbeat(request, turn)
            consumer.heartbeat(group, request, self._resolve, token, turn)
        except Refused as refusal:
            turn.reply(token, consumer.refused(refusal))

    def _group_to_heartbeat(self, request: ConsumerHeartbeat, turn: Turn) -> ConsumerGroup:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        may_change = group is None or (isinstance(group, ClassicGroup) and is_idle(group))
        if request.member_epoch != consumer.JOIN or not may_change:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"no consumer group {request.group_id!r}")
        # A refused join must not delete the record of an empty classic group.
        consumer.match_regex(request, self._resolve)
        if group is not None:
            turn.emit(ClassicGroupKey(request.group_id), None)
        return self._consumer(request.group_id)

    def _describe_consumer(self, request: DescribeConsumerGroup, token: Token, turn: Turn) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            turn.reply(token, consumer.describe(group))
        else:
            turn.reply(token, DescribeConsumerGroupResponse(ErrorCode.GROUP_ID_NOT_FOUND))

    # Ends

    def _expire(self, turn: Turn) -> int:
        """Delete expired offsets, then groups with neither members nor offsets.


        Share groups stay, because only they know where their state is. Returns the time until the
        next sweep, which is short if one batch could not hold all tombstones.
        """
        for group_id in sorted(self.groups.keys() | self.offsets.group_ids()):
            group = self.groups.get(group_id)
            if isinstance(group, ShareGroup):
                continue
            since_ms = 0
            if isinstance(group, ClassicGroup) and not group.members:
                since_ms = group.state_ms
            read = frozenset() if group is None else group.subscribed_topics()
            self.offsets.expire(group_id, read, since_ms, turn)
            if not self.offsets.has(group_id) and is_idle(group):
                self._emit_end(group_id, turn)
            if len(turn.decision.records) >= MAX_EXPIRED_PER_TICK:
                return NEXT_SWEEP_MS
        return self.config.offsets_retention_check_interval_ms

    # Administration

    def _describe(self, request: DescribeGroup, token: Token, turn: Turn) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            answer = classic.describe(group)
        elif group is None and self.offsets.has(request.group_id):
            answer = DescribeGroupResponse(ErrorCode.NONE, State.EMPTY)
        else:
            answer = DescribeGroupResponse(ErrorCode.GROUP_ID_NOT_FOUND)
        turn.reply(token, answer)

    def _list(self, request: ListGroups, token: Token, turn: Turn) -> None:
        states = {state.lower() for state in request.states}
        types = {kind.lower() for kind in request.types}
        listed = (self._listed(name) for name in self.groups.keys() | self.offsets.group_ids())
        chosen = (
            entry
            for entry in listed
            if (not states or entry.state.lower() in states)
            and (not types or entry.group_type in types)
        )
        turn.reply(token, ListGroupsResponse(tuple(sorted(chosen))))

    def _listed(self, group_id: str) -> ListedGroup:
        group = self.groups.get(group_id)
        if group is None:
            return ListedGroup(group_id, "", State.EMPTY, "classic")
        return ListedGroup(group_id, group.protocol_type, group.state, group.kind)

    def _delete(self, request: DeleteGroup, token: Token, turn: Turn) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            self.shares.delete(request, token, turn)
            return
        error = ErrorCode.NONE
        if not self._exists(request.group_id):
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group is not None and group.members:
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            self.offsets.delete_all(request.group_id, turn)
            self._emit_end(request.group_id, turn)
        turn.reply(token, DeleteGroupResponse(error))

    def _emit_end(self, group_id: str, turn: Turn) -> None:
        """The tombstones of an empty group."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            turn.emit(ClassicGroupKey(group_id), None)
        elif group is not None:
            group.end(turn)
