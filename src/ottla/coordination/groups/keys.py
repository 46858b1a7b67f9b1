"""The keys of `__consumer_offsets`: int16 type, then its fields, never flexible.

Types: 0 and 1 committed offset, 2 classic group, 3 consumer group, 4 partition metadata (older
releases; only its tombstones are written), 5 member, 6 target epoch, 7 target of a member, 8
current assignment of a member, 16 resolved regular expression; of share groups: 10 member, 11
group, 12 target epoch, 13 target of a member, 14 current assignment of a member, 15 partitions
whose state is kept. Other types (streams groups, newer releases) decode to None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ottla.coordination.codec import Reader, Writer

OFFSET_LEGACY, OFFSET, CLASSIC_GROUP, CONSUMER_GROUP, PARTITION_METADATA = range(5)
MEMBER, TARGET_EPOCH, TARGET_MEMBER, CURRENT_ASSIGNMENT = range(5, 9)
SHARE_MEMBER, SHARE_GROUP, SHARE_TARGET_EPOCH, SHARE_TARGET_MEMBER = range(10, 14)
SHARE_CURRENT_ASSIGNMENT, SHARE_STATE_PARTITIONS, REGEX = range(14, 17)


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ClassicGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionMetadataKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class MemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentAssignmentKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RegexKey:
    group_id: str
    regex: str


@dataclass(frozen=True, slots=True)
class ShareMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ShareTargetEpochKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ShareTargetMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareCurrentAssignmentKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareStatePartitionsKey:
    group_id: str


_OfShareGroupKey: TypeAlias = ShareGroupKey | ShareTargetEpochKey | ShareStatePartitionsKey
_OfShareMemberKey: TypeAlias = ShareMemberKey | ShareTargetMemberKey | ShareCurrentAssignmentKey
_GroupKey: TypeAlias = (
    ClassicGroupKey | ConsumerGroupKey | PartitionMetadataKey | TargetEpochKey | _OfShareGroupKey
)
_OfMemberKey: TypeAlias = MemberKey | TargetMemberKey | CurrentAssignmentKey | _OfShareMemberKey
AnyShareKey: TypeAlias = _OfShareGroupKey | _OfShareMemberKey
"""Keys of share groups."""
Key: TypeAlias = OffsetKey | RegexKey | _GroupKey | _OfMemberKey

_GROUP_KEYS: dict[int, type[_GroupKey]] = {
    CLASSIC_GROUP: ClassicGroupKey,
    CONSUMER_GROUP: ConsumerGroupKey,
    PARTITION_METADATA: PartitionMetadataKey,
    TARGET_EPOCH: TargetEpochKey,
    SHARE_GROUP: ShareGroupKey,
    SHARE_TARGET_EPOCH: ShareTargetEpochKey,
    SHARE_STATE_PARTITIONS: ShareStatePartitionsKey,
}
_MEMBER_KEYS: dict[int, type[_OfMemberKey]] = {
    MEMBER: MemberKey,
    TARGET_MEMBER: TargetMemberKey,
    CURRENT_ASSIGNMENT: CurrentAssignmentKey,
    SHARE_MEMBER: ShareMemberKey,
    SHARE_TARGET_MEMBER: ShareTargetMemberKey,
    SHARE_CURRENT_ASSIGNMENT: ShareCurrentAssignmentKey,
}
_TYPE_OF: dict[type, int] = {
    OffsetKey: OFFSET,
    RegexKey: REGEX,
    **{kind: number for number, kind in _GROUP_KEYS.items()},
    **{kind: number for number, kind in _MEMBER_KEYS.items()},
}


def encode_key(key: Key) -> bytes:
    writer = Writer().int16(_TYPE_OF[type(key)]).string(key.group_id)
    if isinstance(key, OffsetKey):
        writer.string(key.topic).int32(key.partition)
    elif isinstance(key, RegexKey):
        writer.string(key.regex)
    elif isinstance(key, _OfMemberKey):
        writer.string(key.member_id)
    return writer.done()


def decode_key(data: bytes) -> Key | None:
    """The key; None for an unknown type."""
    reader = Reader(data, "key of __consumer_offsets")
    kind = reader.int16()
    key: Key
    if kind in (OFFSET_LEGACY, OFFSET):
        key = OffsetKey(reader.string(), reader.string(), reader.int32())
    elif kind == REGEX:
        key = RegexKey(reader.string(), reader.string())
    elif kind in _GROUP_KEYS:
        key = _GROUP_KEYS[kind](reader.string())
    elif kind in _MEMBER_KEYS:
        key = _MEMBER_KEYS[kind](reader.string(), reader.string())
    else:
        return None
    reader.end()
    return key
