"""Records of share groups in `__consumer_offsets`.

Types 12 and 13 (target assignment) have the layout of their consumer counterparts and share their
values. All are version 0 and flexible.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ottla.coordination.codec import Writer
from ottla.coordination.groups.partitions import by_topic, read_partitions, write_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from ottla.coordination.codec import Reader
    from ottla.coordination.groups.partitions import Partitions, TopicPartition

STABLE = 0
"""The only state of a share group's member: it revokes nothing before it gets more."""


@dataclass(frozen=True, slots=True)
class ShareGroupValue:
    where: ClassVar[str] = "share group"
    versions: ClassVar[int] = 0
    epoch: int
    metadata_hash: int = 0

    def encode(self) -> bytes:
        writer = Writer(flexible=True).int16(0)
        return writer.int32(self.epoch).int64(self.metadata_hash).tags().done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> ShareGroupValue:
        reader.flexible = True
        value = cls(reader.int32(), reader.int64())
        reader.tags()
        return value


@dataclass(frozen=True, slots=True)
class ShareMemberValue:
    """The stored data of a member; topic names are sorted."""

    where: ClassVar[str] = "share group member"
    versions: ClassVar[int] = 0
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]

    def encode(self) -> bytes:
        writer = Writer(flexible=True).int16(0).string(self.rack_id)
        writer.string(self.client_id).string(self.client_host)
        return writer.array(self.topic_names, writer.string).tags().done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> ShareMemberValue:
        reader.flexible = True
        value = cls(
            reader.nullable_string(),
            reader.string(),
            reader.string(),
            reader.array(reader.string),
        )
        reader.tags()
        return value


@dataclass(frozen=True, slots=True)
class ShareCurrentAssignmentValue:
    where: ClassVar[str] = "current assignment of a share group member"
    versions: ClassVar[int] = 0
    member_epoch: int
    previous_epoch: int
    assigned: Partitions
    state: int = STABLE

    def encode(self) -> bytes:
        writer = Writer(flexible=True).int16(0)
        writer.int32(self.member_epoch).int32(self.previous_epoch).int8(self.state)
        write_partitions(writer, self.assigned)
        return writer.tags().done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> ShareCurrentAssignmentValue:
        reader.flexible = True
        member_epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
        value = cls(member_epoch, previous_epoch, read_partitions(reader), state)
        reader.tags()
        return value


@dataclass(frozen=True, slots=True)
class ShareStatePartitionsValue:
    """Where the group has state at the share coordinator, or may have.

    `initializing` is requested and not confirmed; `initialized` can be assigned; topics in
    `deleting` may still have state. `names` has the name of every topic in these.
    """

    where: ClassVar[str] = "state partitions of a share group"
    versions: ClassVar[int] = 0
    initializing: Partitions = frozenset()
    initialized: Partitions = frozenset()
    deleting: frozenset[UUID] = frozenset()
    names: Mapping[UUID, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        writer = Writer(flexible=True).int16(0)

        def partitions(item: tuple[UUID, tuple[int, ...]]) -> None:
            writer.uuid(item[0]).string(self.names[item[0]])
            writer.array(item[1], writer.int32).tags()

        def topic(topic_id: UUID) -> None:
            writer.uuid(topic_id).string(self.names[topic_id]).tags()

        writer.array(by_topic(self.initializing).items(), partitions)
        writer.array(by_topic(self.initialized).items(), partitions)
        return writer.array(sorted(self.deleting), topic).tags().done()

    @classmethod
    def read(cls, reader: Reader, _version: int) -> ShareStatePartitionsValue:
        reader.flexible = True
        names: dict[UUID, str] = {}

        def partitions() -> list[TopicPartition]:
            topic_id = reader.uuid()
            names[topic_id] = reader.string()
            indexes = reader.array(reader.int32)
            reader.tags()
            return [(topic_id, index) for index in indexes]

        def topic() -> UUID:
            topic_id = reader.uuid()
            names[topic_id] = reader.string()
            reader.tags()
            return topic_id

        value = cls(
            frozenset(pair for pairs in reader.array(partitions) for pair in pairs),
            frozenset(pair for pairs in reader.array(partitions) for pair in pairs),
            frozenset(reader.array(topic)),
            names,
        )
        reader.tags()
        return value
