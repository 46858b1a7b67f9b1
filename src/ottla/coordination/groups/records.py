"""The records of `__consumer_offsets`, byte for byte as Kafka writes them.

A value is int16 version plus fields; a null value is a tombstone. A record with a key of an unknown
type decodes to None and stays in the log unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

from ottla.coordination.codec import Reader, UnsupportedRecordVersion, Writer
from ottla.coordination.groups.keys import (
    ClassicGroupKey,
    ConsumerGroupKey,
    CurrentAssignmentKey,
    Key,
    MemberKey,
    OffsetKey,
    RegexKey,
    ShareCurrentAssignmentKey,
    ShareGroupKey,
    ShareMemberKey,
    ShareStatePartitionsKey,
    ShareTargetEpochKey,
    ShareTargetMemberKey,
    TargetEpochKey,
    TargetMemberKey,
    decode_key,
    encode_key,
)
from ottla.coordination.groups.partitions import read_partitions, write_partitions
from ottla.coordination.groups.share_records import (
    ShareCurrentAssignmentValue,
    ShareGroupValue,
    ShareMemberValue,
    ShareStatePartitionsValue,
)

if TYPE_CHECKING:
    from ottla.coordination.groups.partitions import Partitions


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """Written as v3; as v1 if it has its own expiry, for which v3 has no field."""

    where: ClassVar[str] = "committed offset"
    versions: ClassVar[int] = 4
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1

    def encode(self) -> bytes:
        if self.expire_ms != -1:
            writer = Writer().int16(1).int64(self.offset).string(self.metadata)
            return writer.int64(self.commit_ms).int64(self.expire_ms).done()
        writer = Writer().int16(3).int64(self.offset).int32(self.leader_epoch)
        return writer.string(self.metadata).int64(self.commit_ms).done()

    @classmethod
    def read(cls, reader: Reader, version: int) -> OffsetValue:
        reader.flexible = version >= 4
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= 3 else -1
        metadata = reader.string()
        commit_ms = reader.int64()
        expire_ms = reader.int64() if version == 1 else -1
        if version >= 4:
            reader.tags()
        return cls(offset, leader_epoch, metadata, commit_ms, expire_ms)


class ClassicMemberValue(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicGroupValue:
    """Written as v3, the version every release since 2.3 reads."""

    where: ClassVar[str] = "classic group"
    versions: ClassVar[int] = 4
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[ClassicMemberValue, ...]

    def encode(self) -> bytes:
        writer = Writer().int16(3).string(self.protocol_type).int32(self.generation)
        writer.string(self.protocol).string(self.leader).int64(self.state_ms)

        def member(value: ClassicMemberValue) -> None:
            writer.string(value.member_id).string(value.instance_id)
            writer.string(value.client_id).string(value.client_host)
            writer.int32(value.rebalance_timeout_ms).int32(value.session_timeout_ms)
            writer.blob(value.subscription).blob(value.assignment)

        return writer.array(self.members, member).done()

    @classmethod
    def read(cls, reader: Reader, version: int) -> ClassicGroupValue:
        reader.flexible = version >= 4

        def member() -> ClassicMemberValue:
            member_id = reader.string()
            instance_id = reader.nullable_string() if version >= 3 else None
            client_id, client_host = reader.string(), reader.string()
            rebalance_ms = reader.int32() if version >= 1 else -1
            session_ms = reader.int32()
            value = ClassicMemberValue(
                member_id,
                instance_id,
                client_id,
                client_host,
                rebalance_ms if version >= 1 else session_ms,
                session_ms,
                reader.blob(),
                reader.blob(),
            )
            if version >= 4:
                reader.tags()
            return value

        value = cls(
            reader.string(),
            reader.int32(),
            reader.nullable_string(),
            reader.nullable_string(),
            reader.int64() if version >= 2 else -1,
            reader.array(member),
        )
        if version >= 4:
            reader.tags()
        return value


@dataclass(frozen=True, slots=True)
class ConsumerGroupValue:
    where: ClassVar[str] = "consumer group"
    versions: ClassVar[int] = 0
    epoch: int
    metadata_hash: int = 0

    def encode(self) -> bytes:
        tagged = {0: Writer().int64(self.metadata_hash)} if self.metadata_hash else {}
        return Writer(flexible=True).int16(0).int32(self.epoch).tags(tagged).done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> ConsumerGroupValue:
        reader.flexible = True
        epoch = reader.int32()
        tagged = reader.tags()
        return cls(epoch, tagged[0].int64() if 0 in tagged else 0)


@dataclass(frozen=True, slots=True)
class MemberValue:
    """The stored data of a KIP-848 member; topic names are sorted."""

    where: ClassVar[str] = "consumer group member"
    versions: ClassVar[int] = 0
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None

    def encode(self) -> bytes:
        writer = Writer(flexible=True).int16(0).string(self.instance_id).string(self.rack_id)
        writer.string(self.client_id).string(self.client_host)
        writer.array(self.topic_names, writer.string).string(self.regex)
        return writer.int32(self.rebalance_timeout_ms).string(self.assignor).tags().done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> MemberValue:
        reader.flexible = True
        value = cls(
            reader.nullable_string(),
            reader.nullable_string(),
            reader.string(),
            reader.string(),
            reader.array(reader.string),
            reader.nullable_string(),
            reader.int32(),
            reader.nullable_string(),
        )
        reader.tags()
        return value


@dataclass(frozen=True, slots=True)
class TargetEpochValue:
    where: ClassVar[str] = "target assignment epoch"
    versions: ClassVar[int] = 0
    epoch: int

    def encode(self) -> bytes:
        return Writer(flexible=True).int16(0).int32(self.epoch).tags().done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> TargetEpochValue:
        reader.flexible = True
        value = cls(reader.int32())
        reader.tags()
        return value


@dataclass(frozen=True, slots=True)
class TargetMemberValue:
    where: ClassVar[str] = "target assignment of a member"
    versions: ClassVar[int] = 0
    partitions: Partitions

    def encode(self) -> bytes:
        writer = Writer(flexible=True).int16(0)
        write_partitions(writer, self.partitions)
        return writer.tags().done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> TargetMemberValue:
        reader.flexible = True
        value = cls(read_partitions(reader))
        reader.tags()
        return value


@dataclass(frozen=True, slots=True)
class CurrentAssignmentValue:
    where: ClassVar[str] = "current assignment of a member"
    versions: ClassVar[int] = 0
    member_epoch: int
    previous_epoch: int
    state: int
    assigned: Partitions
    pending_revocation: Partitions

    def encode(self) -> bytes:
        writer = Writer(flexible=True).int16(0)
        writer.int32(self.member_epoch).int32(self.previous_epoch).int8(self.state)
        write_partitions(writer, self.assigned)
        write_partitions(writer, self.pending_revocation)
        return writer.tags().done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> CurrentAssignmentValue:
        reader.flexible = True
        value = cls(
            reader.int32(),
            reader.int32(),
            reader.int8(),
            read_partitions(reader),
            read_partitions(reader),
        )
        reader.tags()
        return value


@dataclass(frozen=True, slots=True)
class RegexValue:
    where: ClassVar[str] = "resolved regular expression"
    versions: ClassVar[int] = 0
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int

    def encode(self) -> bytes:
        writer = Writer(flexible=True).int16(0)
        writer.array(self.topics, writer.string).int64(self.version).int64(self.timestamp_ms)
        return writer.tags().done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> RegexValue:
        reader.flexible = True
        value = cls(reader.array(reader.string), reader.int64(), reader.int64())
        reader.tags()
        return value


Value: TypeAlias = (
    OffsetValue
    | ClassicGroupValue
    | ConsumerGroupValue
    | MemberValue
    | TargetEpochValue
    | TargetMemberValue
    | CurrentAssignmentValue
    | RegexValue
    | ShareGroupValue
    | ShareMemberValue
    | ShareCurrentAssignmentValue
    | ShareStatePartitionsValue
)

_VALUE_OF: dict[type, type[Value]] = {
    OffsetKey: OffsetValue,
    ClassicGroupKey: ClassicGroupValue,
    ConsumerGroupKey: ConsumerGroupValue,
    MemberKey: MemberValue,
    TargetEpochKey: TargetEpochValue,
    TargetMemberKey: TargetMemberValue,
    CurrentAssignmentKey: CurrentAssignmentValue,
    RegexKey: RegexValue,
    ShareMemberKey: ShareMemberValue,
    ShareGroupKey: ShareGroupValue,
    ShareTargetEpochKey: TargetEpochValue,
    ShareTargetMemberKey: TargetMemberValue,
    ShareCurrentAssignmentKey: ShareCurrentAssignmentValue,
    ShareStatePartitionsKey: ShareStatePartitionsValue,
}


class Record(NamedTuple):
    """One record of a group; `value` None is a tombstone."""

    key: Key
    value: Value | None

    def encode(self) -> tuple[bytes, bytes | None]:
        return encode_key(self.key), None if self.value is None else self.value.encode()


def decode(key_data: bytes, value_data: bytes | None) -> Record | None:
    """The record; None for an unknown type."""
    key = decode_key(key_data)
    if key is None:
        return None
    kind = _VALUE_OF.get(type(key))
    if value_data is None or kind is None:
        return Record(key, None)
    reader = Reader(value_data, kind.where)
    version = reader.int16()
    if not 0 <= version <= kind.versions:
        raise UnsupportedRecordVersion(f"0 to {kind.versions}", version, kind.where)
    value = kind.read(reader, version)
    reader.end()
    return Record(key, value)
