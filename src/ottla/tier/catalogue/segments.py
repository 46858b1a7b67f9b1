"""Values of the catalogue: remote segments, their states, partition deletions.

A segment's states and the states that may follow (an update to the same state is always legal, so
that a retry is harmless)::

    (none) -> COPY_SEGMENT_STARTED -> COPY_SEGMENT_FINISHED -> DELETE_SEGMENT_STARTED -> _FINISHED
                       |___________________________________________^
    (none) -> DELETE_PARTITION_MARKED -> _STARTED -> _FINISHED

Only a segment whose copy is finished can be read; one whose deletion is finished is forgotten.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.log.checkpoints import encode_id
from ottla.tier.errors import InvalidSegment

MAX_SEGMENT_SIZE: Final = 0x7FFF_FFFF  # the event has an int32 for it
_RESERVED_IDS: Final = frozenset({UUID(int=0), UUID(int=1)})


class TopicIdPartition(NamedTuple):
    """A partition of a topic; the name is for people and object keys, not part of `identity`."""

    topic_id: UUID
    topic: str
    partition: int

    @property
    def identity(self) -> tuple[UUID, int]:
        return self.topic_id, self.partition

    def __str__(self) -> str:
        return f"{encode_id(self.topic_id)}:{self.topic}-{self.partition}"


class RemoteLogSegmentId(NamedTuple):
    """One copy of a segment; each attempt to copy has a new id."""

    tip: TopicIdPartition
    id: UUID

    def __str__(self) -> str:
        return f"{self.tip}/{encode_id(self.id)}"


class SegmentState(IntEnum):
    """States of a remote segment, by the numbers that events carry."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """States of a partition that is being deleted."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


SEGMENT_TRANSITIONS: Final[dict[SegmentState | None, frozenset[SegmentState]]] = {
    None: frozenset({SegmentState.COPY_SEGMENT_STARTED}),
    SegmentState.COPY_SEGMENT_STARTED: frozenset(
        {
            SegmentState.COPY_SEGMENT_STARTED,
            SegmentState.COPY_SEGMENT_FINISHED,
            SegmentState.DELETE_SEGMENT_STARTED,
        }
    ),
    SegmentState.COPY_SEGMENT_FINISHED: frozenset(
        {SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED}
    ),
    SegmentState.DELETE_SEGMENT_STARTED: frozenset(
        {SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED}
    ),
    SegmentState.DELETE_SEGMENT_FINISHED: frozenset({SegmentState.DELETE_SEGMENT_FINISHED}),
}

PARTITION_DELETE_TRANSITIONS: Final[
    dict[PartitionDeleteState | None, frozenset[PartitionDeleteState]]
] = {
    None: frozenset({PartitionDeleteState.DELETE_PARTITION_MARKED}),
    PartitionDeleteState.DELETE_PARTITION_MARKED: frozenset(
        {
            PartitionDeleteState.DELETE_PARTITION_MARKED,
            PartitionDeleteState.DELETE_PARTITION_STARTED,
        }
    ),
    PartitionDeleteState.DELETE_PARTITION_STARTED: frozenset(
        {
            PartitionDeleteState.DELETE_PARTITION_STARTED,
            PartitionDeleteState.DELETE_PARTITION_FINISHED,
        }
    ),
    PartitionDeleteState.DELETE_PARTITION_FINISHED: frozenset(
        {PartitionDeleteState.DELETE_PARTITION_FINISHED}
    ),
}


class EpochStart(NamedTuple):
    """Records from `start_offset` on were written under this leader epoch."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """All that the catalogue knows of one remote segment. Both offsets are inclusive."""

    id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size: int
    leader_epochs: tuple[EpochStart, ...]
    custom_metadata: bytes | None = None
    state: SegmentState = SegmentState.COPY_SEGMENT_STARTED
    txn_index_empty: bool = False

    def __post_init__(self) -> None:
        if self.start_offset < 0:
            raise InvalidSegment(f"start offset {self.start_offset} is negative")
        if self.end_offset < self.start_offset:
            raise InvalidSegment(f"offsets {self.start_offset}..{self.end_offset} are no range")
        if not 0 <= self.segment_size <= MAX_SEGMENT_SIZE:
            raise InvalidSegment(f"size {self.segment_size} does not fit an int32")
        epochs = self.leader_epochs
        if not epochs:
            raise InvalidSegment("a segment has at least one leader epoch")
        if len(epochs) > 1:
            ordered = tuple(sorted(epochs))
            if any(one.epoch == two.epoch for one, two in pairwise(ordered)):
                raise InvalidSegment(f"leader epochs {epochs} name one epoch twice")
            object.__setattr__(self, "leader_epochs", ordered)

    @property
    def tip(self) -> TopicIdPartition:
        return self.id.tip

    def after(self, update: RemoteLogSegmentMetadataUpdate) -> RemoteLogSegmentMetadata:
        """The metadata after an update; custom metadata of None deletes the old one."""
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=update.custom_metadata,
            state=update.state,
        )

    def update(
        self, state: SegmentState, *, broker_id: int, now_ms: int
    ) -> RemoteLogSegmentMetadataUpdate:
        """The update to another state that keeps the custom metadata by sending it again."""
        return RemoteLogSegmentMetadataUpdate(
            self.id, broker_id, now_ms, self.custom_metadata, state
        )

    def epoch_ranges(self) -> list[tuple[int, int, int]]:
        """(epoch, first offset, last offset) within this segment."""
        epochs = self.leader_epochs
        ends = [*(following.start_offset - 1 for following in epochs[1:]), self.end_offset]
        return [(epoch, start, end) for (epoch, start), end in zip(epochs, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """A segment's next state."""

    id: RemoteLogSegmentId
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: SegmentState


@dataclass(frozen=True, slots=True)
class RemotePartitionDeleteMetadata:
    """How far the deletion of a partition has come."""

    tip: TopicIdPartition
    state: PartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


MetadataEvent: TypeAlias = (
    RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata
)
"""A segment is added, a segment is updated, or a partition's deletion goes on."""


def event_tip(event: MetadataEvent) -> TopicIdPartition:
    """The partition an event is about."""
    return event.tip if isinstance(event, RemotePartitionDeleteMetadata) else event.id.tip


def random_segment_id() -> UUID:
    """A new id: none of the reserved ones, and no text form that looks like an option."""
    while True:
        found = UUID(bytes=secrets.token_bytes(16))
        if found not in _RESERVED_IDS and not encode_id(found).startswith("-"):
            return found
