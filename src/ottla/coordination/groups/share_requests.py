"""Requests for share groups; a part of the group coordinator.

Heartbeats are answered at once. Requests of administrators to alter or delete wait here until the
share coordinator has reported; a restart drops them. A group is deleted in rounds: as long as it
may have state, that is deleted first, so that a new group with the same name never finds old state.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordination.groups import share_heartbeat as membership
from ottla.coordination.groups.messages import DeleteGroupResponse
from ottla.coordination.groups.share_effects import (
    ShareStateDeleted,
    ShareStateInitialized,
    error_of,
)
from ottla.coordination.groups.share_group import ShareGroup
from ottla.coordination.groups.share_messages import (
    AlteredPartition,
    AlterShareOffsets,
    AlterShareOffsetsResponse,
    DeletedTopic,
    DeleteShareOffsets,
    DeleteShareOffsetsResponse,
    DescribeShareGroup,
    DescribeShareGroupResponse,
    DescribeShareOffsets,
    DescribeShareOffsetsResponse,
    ForgetTopics,
    Noted,
    ShareHeartbeat,
    SharePartition,
)
from ottla.coordination.machine import Refused
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.coordination.groups.config import GroupConfig
    from ottla.coordination.groups.messages import DeleteGroup
    from ottla.coordination.groups.partitions import Partitions, TopicPartition
    from ottla.coordination.groups.share_effects import Outcome
    from ottla.coordination.groups.share_messages import ShareStart
    from ottla.coordination.groups.topics import TopicsImage
    from ottla.coordination.groups.turn import Turn
    from ottla.coordination.machine import Effect, Token

Continuation: TypeAlias = "partial[None]"
"""Continues a request with the outcome of an effect."""

UNRESOLVED = -1
"""The lowest start offset of a request; it means `share.auto.offset.reset`."""


class ShareRequests:
    """`groups` are all groups of the partition, of any type.

    `is_taken` tells whether a group id is used; `make` adds an empty share group.
    """

    def __init__(
        self,
        config: GroupConfig,
        groups: Mapping[str, object],
        is_taken: Callable[[str], bool],
        make: Callable[[str], ShareGroup],
    ) -> None:
        self._config = config
        self._groups = groups
        self._is_taken = is_taken
        self._make = make
        self.waiting: dict[Effect, Continuation] = {}
        """Requests that are answered by the report of an effect."""
        self.handlers: dict[type, Callable[..., None]] = {
            ShareHeartbeat: self._heartbeat,
            DescribeShareGroup: self._describe,
            DescribeShareOffsets: self._describe_offsets,
            AlterShareOffsets: self._alter,
            DeleteShareOffsets: self._delete_offsets,
            ShareStateInitialized: self._initialized,
            ShareStateDeleted: self._deleted,
            ForgetTopics: self._forget_topics,
        }

    def _find(self, group_id: str) -> ShareGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    # Membership

    def _heartbeat(self, request: ShareHeartbeat, token: Token, turn: Turn) -> None:
        try:
            response = membership.heartbeat(self._group_to_heartbeat(request), request, turn)
        except Refused as refusal:
            response = membership.refused(refusal)
        turn.reply(token, response)

    def _group_to_heartbeat(self, request: ShareHeartbeat) -> ShareGroup:
        membership.check_request(request, may_be_nameless=self._config.share_makes_member_ids)
        group = self._find(request.group_id)
        if group is not None:
            return group
        if request.member_epoch != membership.JOIN or self._is_taken(request.group_id):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"no share group {request.group_id!r}")
        return self._make(request.group_id)

    def _describe(self, request: DescribeShareGroup, token: Token, turn: Turn) -> None:
        group = self._find(request.group_id)
        if group is None:
            turn.reply(token, DescribeShareGroupResponse(ErrorCode.GROUP_ID_NOT_FOUND))
        else:
            turn.reply(token, membership.describe(group))

    # Reports of the share coordinator

    def _initialized(self, report: ShareStateInitialized, token: Token, turn: Turn) -> None:
        if (group := self._find(report.group_id)) is not None:
            group.take_initialized(report.effect, report.outcome, turn)
        self._go_on(report.effect, report.outcome, turn)
        turn.reply(token, Noted())

    def _deleted(self, report: ShareStateDeleted, token: Token, turn: Turn) -> None:
        if (group := self._find(report.group_id)) is not None:
            group.take_deleted(report.effect, report.outcome, turn)
        self._go_on(report.effect, report.outcome, turn)
        turn.reply(token, Noted())

    def _go_on(self, effect: Effect, outcome: Outcome, turn: Turn) -> None:
        if (then := self.waiting.pop(effect, None)) is not None:
            then(outcome, turn)

    def _forget_topics(self, request: ForgetTopics, token: Token, turn: Turn) -> None:
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                group.forget_topics(request.topic_ids, turn)
        turn.reply(token, Noted())

    # Administration

    def delete(self, request: DeleteGroup, token: Token, turn: Turn) -> None:
        group = self._find(request.group_id)
        if group is None:
            turn.reply(token, DeleteGroupResponse(ErrorCode.GROUP_ID_NOT_FOUND))
        elif group.members:
            turn.reply(token, DeleteGroupResponse(ErrorCode.NON_EMPTY_GROUP))
        elif partitions := group.with_state(request.topics):
            effect = group.delete(partitions, turn)
            self.waiting[effect] = partial(self._delete_further, request, token, partitions)
        else:
            group.end(turn)
            turn.reply(token, DeleteGroupResponse(ErrorCode.NONE))

    def _delete_further(
        self,
        request: DeleteGroup,
        token: Token,
        partitions: Partitions,
        outcome: Outcome,
        turn: Turn,
    ) -> None:
        error = _first_error(outcome, partitions)
        if error is ErrorCode.NONE:
            self.delete(request, token, turn)
        else:
            turn.reply(token, DeleteGroupResponse(error))

    def _describe_offsets(self, request: DescribeShareOffsets, token: Token, turn: Turn) -> None:
        group = self._find(request.group_id)
        if group is None:
            turn.reply(token, DescribeShareOffsetsResponse(ErrorCode.GROUP_ID_NOT_FOUND))
            return
        initialized = group.states.initialized
        found = []
        if request.wanted is None:
            for topic_id, index in sorted(initialized):
                name = group.states.names[topic_id]
                found.append(SharePartition(name, topic_id, index, has_state=True))
        else:
            for name, indexes in request.wanted:
                topic = request.topics.topics_by_name.get(name)
                named = None if topic is None else topic.topic_id
                for index in indexes:
                    has_state = (named, index) in initialized
                    found.append(SharePartition(name, named, index, has_state))
        turn.reply(token, DescribeShareOffsetsResponse(ErrorCode.NONE, tuple(found)))

    def _alter(self, request: AlterShareOffsets, token: Token, turn: Turn) -> None:
        group = self._find(request.group_id)
        if group is None and (self._is_taken(request.group_id) or not request.group_id):
            turn.reply(token, AlterShareOffsetsResponse(ErrorCode.GROUP_ID_NOT_FOUND))
            return
        if group is not None and group.members:
            turn.reply(token, AlterShareOffsetsResponse(ErrorCode.NON_EMPTY_GROUP))
            return
        starts = {
            partition: start.start_offset
            for start in request.starts
            if (partition := _partition_of(start, request.topics)) is not None
        }
        if not starts:
            self._altered(request, token, {}, turn)
            return
        group = group or self._make(request.group_id)
        # A new epoch, so that holders of the old state are fenced.
        group.bump(turn, group.metadata_hash)
        effect = group.initialize(starts, request.topics, turn)
        self.waiting[effect] = partial(self._altered, request, token)

    def _altered(
        self, request: AlterShareOffsets, token: Token, outcome: Outcome, turn: Turn
    ) -> None:
        results = []
        for start in request.starts:
            topic = request.topics.topics_by_name.get(start.topic)
            partition = _partition_of(start, request.topics)
            if start.start_offset < UNRESOLVED:
                error = ErrorCode.INVALID_REQUEST
            elif partition is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                error = error_of(outcome, partition)
            topic_id = None if topic is None else topic.topic_id
            results.append(AlteredPartition(start.topic, topic_id, start.partition, error))
        turn.reply(token, AlterShareOffsetsResponse(ErrorCode.NONE, tuple(results)))

    def _delete_offsets(self, request: DeleteShareOffsets, token: Token, turn: Turn) -> None:
        group = self._find(request.group_id)
        if group is None or group.members:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NON_EMPTY_GROUP
            turn.reply(token, DeleteShareOffsetsResponse(error))
            return
        by_name = request.topics.topics_by_name
        chosen = {by_name[name].topic_id for name in request.names if name in by_name}
        partitions = frozenset(p for p in group.with_state(request.topics) if p[0] in chosen)
        then = partial(self._offsets_deleted, request, token, partitions)
        if partitions:
            self.waiting[group.delete(partitions, turn)] = then
        else:
            then({}, turn)

    def _offsets_deleted(
        self,
        request: DeleteShareOffsets,
        token: Token,
        partitions: Partitions,
        outcome: Outcome,
        turn: Turn,
    ) -> None:
        results = []
        for name in request.names:
            topic = request.topics.topics_by_name.get(name)
            topic_id = None if topic is None else topic.topic_id
            ended = frozenset(p for p in partitions if p[0] == topic_id)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if ended:
                error = _first_error(outcome, ended)
            results.append(DeletedTopic(name, topic_id, error))
        turn.reply(token, DeleteShareOffsetsResponse(ErrorCode.NONE, tuple(results)))


def _first_error(outcome: Outcome, partitions: Partitions) -> ErrorCode:
    errors = (error_of(outcome, partition) for partition in sorted(partitions))
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)


def _partition_of(start: ShareStart, topics: TopicsImage) -> TopicPartition | None:
    """The partition to alter; None if it does not exist or the offset is invalid."""
    topic = topics.topics_by_name.get(start.topic)
    if topic is None or start.start_offset < UNRESOLVED:
        return None
    return (topic.topic_id, start.partition) if 0 <= start.partition < topic.partitions else None
