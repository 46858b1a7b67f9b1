"""Values of remote segments, as the tests of tiered storage need them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.tier.catalogue.segments import (
    EpochStart,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC_ID = UUID("6f1d2c3b-4a59-4788-9796-a5b4c3d2e1f0")
TIP = TopicIdPartition(TOPIC_ID, "clicks", 3)

STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED


def segment(
    start: int,
    end: int,
    *,
    number: int = 100,
    epochs: Mapping[int, int] | None = None,
    tip: TopicIdPartition = TIP,
    state: SegmentState = STARTED,
    custom: bytes | None = None,
    max_timestamp: int = 1_700_000_000_000,
    event_timestamp: int = 1_700_000_000_000,
    size: int = 1000,
    txn_index_empty: bool = True,
) -> RemoteLogSegmentMetadata:
    """Segment `number`; its id is that number."""
    starts = {0: start} if epochs is None else epochs
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(tip, UUID(int=number)),
        start,
        end,
        max_timestamp,
        5,
        event_timestamp,
        size,
        tuple(EpochStart(*pair) for pair in starts.items()),
        custom,
        state,
        txn_index_empty,
    )


def becomes(
    metadata: RemoteLogSegmentMetadata, state: SegmentState, custom: bytes | None = None
) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(metadata.id, 5, 1_700_000_000_001, custom, state)
