"""Requests and responses of the group coordinator that concern share groups.

`topics` are always the current topics of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.coordination.groups.share_effects import ShareStateDeleted, ShareStateInitialized
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.coordination.groups.config import ShareSettings
    from ottla.coordination.groups.partitions import Partitions
    from ottla.coordination.groups.topics import TopicsImage


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """None means unchanged. `fresh_id` is the id of a member that joins without one.

    `settings` are those of the group, within the broker's bounds; None: use the broker's.
    """

    group_id: str
    member_id: str
    member_epoch: int
    topics: TopicsImage
    fresh_id: str = ""
    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    settings: ShareSettings | None = None


@dataclass(frozen=True, slots=True)
class ShareHeartbeatResponse:
    """`assignment` None means unchanged."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True)
class DescribeShareGroup:
    group_id: str


class ShareMember(NamedTuple):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assignment: Partitions


@dataclass(frozen=True, slots=True)
class DescribeShareGroupResponse:
    error: ErrorCode
    state: str = "Dead"
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[ShareMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeShareOffsets:
    """Summaries of share-partitions; `wanted` None: all with state."""

    group_id: str
    topics: TopicsImage
    wanted: tuple[tuple[str, tuple[int, ...]], ...] | None = None


class SharePartition(NamedTuple):
    """`has_state` False: nothing is read; the start offset is -1 without an error."""

    topic: str
    topic_id: UUID | None
    partition: int
    has_state: bool


@dataclass(frozen=True, slots=True)
class DescribeShareOffsetsResponse:
    error: ErrorCode
    partitions: tuple[SharePartition, ...] = ()


class ShareStart(NamedTuple):
    topic: str
    partition: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class AlterShareOffsets:
    """Answered when the share coordinator has done it."""

    group_id: str
    topics: TopicsImage
    starts: tuple[ShareStart, ...]


class AlteredPartition(NamedTuple):
    topic: str
    topic_id: UUID | None
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class AlterShareOffsetsResponse:
    error: ErrorCode
    partitions: tuple[AlteredPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteShareOffsets:
    """Answered when the share coordinator has done it."""

    group_id: str
    topics: TopicsImage
    names: tuple[str, ...]


class DeletedTopic(NamedTuple):
    topic: str
    topic_id: UUID | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class DeleteShareOffsetsResponse:
    error: ErrorCode
    topics: tuple[DeletedTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class ForgetTopics:
    """The topics and their state were deleted: share groups forget them."""

    topic_ids: frozenset[UUID]


@dataclass(frozen=True, slots=True)
class Noted:
    """The reply to a report; no client waits for it."""


ShareRequest: TypeAlias = (
    ShareHeartbeat
    | DescribeShareGroup
    | DescribeShareOffsets
    | AlterShareOffsets
    | DeleteShareOffsets
    | ShareStateInitialized
    | ShareStateDeleted
)
ShareResponse: TypeAlias = (
    ShareHeartbeatResponse
    | DescribeShareGroupResponse
    | DescribeShareOffsetsResponse
    | AlterShareOffsetsResponse
    | DeleteShareOffsetsResponse
    | Noted
)
