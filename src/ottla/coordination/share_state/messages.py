"""Requests and responses of the share coordinator, one share-partition each.

An RPC contains many share-partitions, which may belong to different partitions of the state topic,
so the broker splits it into one request per key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordination.share_state.batches import NO_OFFSET, StateBatches
from ottla.coordination.share_state.records import UNKNOWN_COUNT, ShareKey
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.coordination.groups.topics import TopicsImage

NO_EPOCH = -1
UNKNOWN_LAG = -1


@dataclass(frozen=True, slots=True)
class InitializeState:
    """Start a share-partition over; its leader resolves a start offset of -1."""

    key: ShareKey
    topics: TopicsImage
    state_epoch: int
    start_offset: int = NO_OFFSET


@dataclass(frozen=True, slots=True)
class ReadState:
    """A leader takes over: its epoch is stored, which fences the previous leader."""

    key: ShareKey
    topics: TopicsImage
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class WriteState:
    """An epoch of -1 is not checked; a start offset of -1 means unchanged."""

    key: ShareKey
    topics: TopicsImage
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: StateBatches
    delivery_complete_count: int = UNKNOWN_COUNT


@dataclass(frozen=True, slots=True)
class DeleteState:
    """The topic need not exist: state of a deleted topic can still be deleted."""

    key: ShareKey


@dataclass(frozen=True, slots=True)
class ReadStateSummary:
    key: ShareKey
    topics: TopicsImage


@dataclass(frozen=True, slots=True)
class DropTopics:
    """The topics were deleted: drop all of their state."""

    topic_ids: frozenset[UUID]


@dataclass(frozen=True, slots=True)
class StateResponse:
    """The response to initialize, write, delete and drop."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ReadStateResponse:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    start_offset: int = NO_OFFSET
    batches: StateBatches = ()


@dataclass(frozen=True, slots=True)
class StateSummaryResponse:
    """An unknown key gets the defaults and no error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_OFFSET
    delivery_complete_count: int = UNKNOWN_COUNT

    def lag(self, end_offset: int) -> int:
        """Number of records that are not settled yet (KIP-1226); -1 if unknown."""
        if self.start_offset == NO_OFFSET or self.delivery_complete_count == UNKNOWN_COUNT:
            return UNKNOWN_LAG
        return end_offset - self.start_offset - self.delivery_complete_count


KeyedRequest: TypeAlias = InitializeState | ReadState | WriteState | DeleteState | ReadStateSummary
StateRequest: TypeAlias = KeyedRequest | DropTopics
StateReply: TypeAlias = StateResponse | ReadStateResponse | StateSummaryResponse
