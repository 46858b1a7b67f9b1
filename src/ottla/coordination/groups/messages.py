"""Requests and responses of the group coordinator, independent of protocol versions.

The broker's handlers translate each version of each API to and from these values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.coordination.groups.share_messages import ForgetTopics, ShareRequest, ShareResponse
from ottla.coordination.groups.topics import TopicsImage
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from ottla.coordination.groups.config import ConsumerSettings
    from ottla.coordination.groups.partitions import Partitions
    from ottla.coordination.machine import Marker, Transactional

UNKNOWN_GENERATION = -1
NO_OFFSET = -1


class JoinProtocol(NamedTuple):
    """One assignor of a classic member, with its subscription."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """`fresh_id` is a random member id, used if the member needs one.

    `require_known_member` is true from v4 on (KIP-394), `can_skip_assignment` from v9 on.
    Below v1 the rebalance timeout is the session timeout.
    """

    group_id: str
    member_id: str
    fresh_id: str
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    require_known_member: bool = True
    can_skip_assignment: bool = True


class JoinMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResponse:
    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = UNKNOWN_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """`protocol_type` and `protocol` are None below v5 and then not checked."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroupResponse:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    error: ErrorCode = ErrorCode.NONE


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveGroupResponse:
    """One entry per requested member; below v3 the handler returns the error of the only entry."""

    members: tuple[LeftMember, ...]


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """`epoch` is the generation of a classic member or the member epoch of a KIP-848 one.

    With `transaction` the offsets take effect when it commits (KIP-98, KIP-447).
    """

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = ""
    epoch: int = UNKNOWN_GENERATION
    instance_id: str | None = None
    retention_ms: int = -1
    transaction: Transactional | None = None

    @property
    def names_nobody(self) -> bool:
        return not self.member_id and self.instance_id is None and self.epoch < 0


class PartitionResult(NamedTuple):
    topic: str
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """`topics` None asks for all offsets of the group.

    With `require_stable` an offset that an open transaction may replace is an error.
    """

    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None
    member_id: str | None = None
    epoch: int = -1
    require_stable: bool = False


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    error: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetDelete:
    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponse:
    error: ErrorCode
    partitions: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ForgetOffsets:
    """These topics were deleted: delete their committed offsets in all groups."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ForgetOffsetsResponse:
    pass


@dataclass(frozen=True, slots=True)
class ApplyMarker:
    """The marker of a producer: applies or drops its pending offsets in all groups."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class MarkerApplied:
    pass


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """A classic group, or a group id with offsets alone."""

    group_id: str


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribeGroupResponse:
    """A missing group has error 69 and state "Dead"; below v6 the error is left out."""

    error: ErrorCode
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Empty filters match everything; names are case-insensitive."""

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class ListGroupsResponse:
    groups: tuple[ListedGroup, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """For share groups `topics` is needed, and the response waits until their state is deleted."""

    group_id: str
    topics: TopicsImage = field(default_factory=TopicsImage)


@dataclass(frozen=True, slots=True)
class DeleteGroupResponse:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """KIP-848. None, and -1 as a timeout, mean unchanged; an empty regex means none.

    `topics` are the current topics of the cluster. `fresh_id` is the member id if the request has
    none, which only v0 allows. `settings` are those of the group, within the broker's bounds; None:
    use the broker's.
    """

    group_id: str
    member_id: str
    member_epoch: int
    topics: TopicsImage
    fresh_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    settings: ConsumerSettings | None = None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResponse:
    """`assignment` None means unchanged."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroup:
    group_id: str


class ConsumerMember(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    regex: str | None
    assignment: Partitions
    target: Partitions


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroupResponse:
    error: ErrorCode
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[ConsumerMember, ...] = ()


Request: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | ForgetOffsets
    | ApplyMarker
    | DescribeGroup
    | ListGroups
    | DeleteGroup
    | ConsumerHeartbeat
    | DescribeConsumerGroup
    | ShareRequest
    | ForgetTopics
)
Response: TypeAlias = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | ForgetOffsetsResponse
    | MarkerApplied
    | DescribeGroupResponse
    | ListGroupsResponse
    | DeleteGroupResponse
    | ConsumerHeartbeatResponse
    | DescribeConsumerGroupResponse
    | ShareResponse
)
