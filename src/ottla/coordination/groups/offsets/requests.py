"""Requests for committed offsets; a part of the group coordinator.

A commit is accepted from a member of the current generation or epoch, or from any client while the
group has no members. A commit in a transaction without a member is not checked, because producers
before KIP-447 send none; there an outdated member gets ILLEGAL_GENERATION in both protocols. Share
groups have no committed offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordination.groups import classic, consumer
from ottla.coordination.groups.classic_state import ClassicGroup
from ottla.coordination.groups.consumer_state import ConsumerGroup
from ottla.coordination.groups.messages import (
    ApplyMarker,
    ForgetOffsets,
    ForgetOffsetsResponse,
    MarkerApplied,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionResult,
)
from ottla.coordination.groups.share_group import ShareGroup
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.coordination.groups.coordinator import Group
    from ottla.coordination.groups.offsets.offsets import Offsets
    from ottla.coordination.groups.turn import Turn
    from ottla.coordination.machine import Token


class OffsetRequests:
    """`groups` are all groups of the partition, of any kind."""

    def __init__(self, groups: Mapping[str, Group], offsets: Offsets) -> None:
        self._groups = groups
        self._offsets = offsets
        self.handlers: dict[type, Callable[..., None]] = {
            OffsetCommit: self._offset_commit,
            OffsetFetch: self._offset_fetch,
            OffsetDelete: self._offset_delete,
            ForgetOffsets: self._forget_offsets,
            ApplyMarker: self._apply_marker,
        }

    def _offset_commit(self, request: OffsetCommit, token: Token, turn: Turn) -> None:
        error = self._check_commit(request, turn)
        if error is ErrorCode.NONE:
            results = self._offsets.commit(request, turn)
        else:
            results = tuple(
                PartitionResult(item.topic, item.partition, error) for item in request.offsets
            )
        turn.reply(token, OffsetCommitResponse(results))

    def _check_commit(self, request: OffsetCommit, turn: Turn) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            return ErrorCode.GROUP_ID_NOT_FOUND
        if request.epoch < 0 and (group is None or not group.members):
            return ErrorCode.NONE
        if group is None:
            known = self._offsets.has(request.group_id)
            return ErrorCode.UNKNOWN_MEMBER_ID if known else ErrorCode.ILLEGAL_GENERATION
        if request.transaction is not None and request.names_nobody:
            return ErrorCode.NONE
        if isinstance(group, ClassicGroup):
            return classic.check_commit(group, request, turn)
        error = consumer.check_epoch(group, request.member_id, request.epoch)
        if request.transaction is not None and error is ErrorCode.STALE_MEMBER_EPOCH:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _offset_fetch(self, request: OffsetFetch, token: Token, turn: Turn) -> None:
        group = self._groups.get(request.group_id)
        error = ErrorCode.NONE
        if isinstance(group, ShareGroup):
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif isinstance(group, ConsumerGroup) and request.member_id is not None:
            error = consumer.check_epoch(group, request.member_id, request.epoch)
        found = self._offsets.fetch(request) if error is ErrorCode.NONE else ()
        turn.reply(token, OffsetFetchResponse(error, found))

    def _offset_delete(self, request: OffsetDelete, token: Token, turn: Turn) -> None:
        group = self._groups.get(request.group_id)
        if isinstance(group, ShareGroup) or not (group or self._offsets.has(request.group_id)):
            turn.reply(token, OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND))
            return
        read = frozenset() if group is None else group.subscribed_topics()
        if read is None:
            turn.reply(token, OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP))
            return
        results = []
        for topic, partition in request.partitions:
            error = ErrorCode.NONE
            if topic in read:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                self._offsets.delete(request.group_id, topic, partition, turn)
            results.append(PartitionResult(topic, partition, error))
        turn.reply(token, OffsetDeleteResponse(ErrorCode.NONE, tuple(results)))

    def _forget_offsets(self, request: ForgetOffsets, token: Token, turn: Turn) -> None:
        self._offsets.delete_topics(request.topics, turn)
        turn.reply(token, ForgetOffsetsResponse())

    def _apply_marker(self, request: ApplyMarker, token: Token, turn: Turn) -> None:
        """The runtime writes the marker itself."""
        marker = request.marker
        self._offsets.end_transaction(marker.producer_id, commit=marker.commit)
        turn.reply(token, MarkerApplied())
