"""The records of `__share_group_state`, byte for byte as Kafka writes them.

A key is int16 type (0 snapshot, 1 update), group id, topic id and partition, never flexible. A
value is int16 version 0 and flexible fields; a snapshot without a value ends its share-partition.
The count of completed deliveries is a tagged field here, though a plain one in the requests. A
record of another type, and an update without a value, decode to None and are ignored.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, NamedTuple, TypeAlias
from uuid import UUID

from ottla.coordination.codec import Reader, UnsupportedRecordVersion, Writer
from ottla.coordination.partitioner import partition_for
from ottla.coordination.share_state.batches import StateBatch, StateBatches
from ottla.wire.errors import WireError

SNAPSHOT, UPDATE = range(2)
VERSION = 0

UNKNOWN_COUNT = -1
_COUNT_TAG = 0
_NO_TAGS = 0

_KEY_HEAD = Struct(">hh")
_PARTITION = Struct(">i")
_SNAPSHOT_HEAD = Struct(">hiiiqqq")
_UPDATE_HEAD = Struct(">hiiq")
_BATCH = Struct(">qqbhB")
_COUNT = Struct(">BBBi")  # how many tags, this one, its size, its value


class InvalidShareKey(WireError):
    """A text that does not name a share-partition."""

    summary = "invalid share key"


class ShareKey(NamedTuple):
    """Names a share-partition."""

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        """The text of the key in FindCoordinator; its hash selects the partition."""
        topic = urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        return f"{self.group_id}:{topic}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> ShareKey:
        """From the right, because a group id may hold colons; raises `InvalidShareKey`."""
        parts = text.rsplit(":", 2)
        try:
            group_id, topic, partition = parts
            key = cls(group_id, UUID(bytes=urlsafe_b64decode(topic + "==")), int(partition))
        except ValueError as error:
            raise InvalidShareKey("group:topicId:partition", text, "share key") from error
        if not group_id or str(key) != text:
            raise InvalidShareKey("group:topicId:partition", text, "share key")
        return key

    def state_partition(self, partitions: int) -> int:
        """The partition of `__share_group_state` that owns this key."""
        return partition_for(str(self), partitions)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state of a share-partition; a start offset of -1 is not resolved yet."""

    where: ClassVar[str] = "share snapshot"
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_ms: int
    write_ms: int
    batches: StateBatches
    delivery_complete_count: int = UNKNOWN_COUNT

    def encode(self) -> bytes:
        head = _SNAPSHOT_HEAD.pack(
            VERSION,
            self.snapshot_epoch,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.create_ms,
            self.write_ms,
        )
        return head + _tail(self.batches, self.delivery_complete_count)

    @classmethod
    def read(cls, reader: Reader) -> Snapshot:
        return cls(
            reader.int32(),
            reader.int32(),
            reader.int32(),
            reader.int64(),
            reader.int64(),
            reader.int64(),
            _read_batches(reader),
            _read_count(reader),
        )


@dataclass(frozen=True, slots=True)
class Update:
    """The changes of one write; -1 as leader epoch or start offset means unchanged."""

    where: ClassVar[str] = "share update"
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: StateBatches
    delivery_complete_count: int = UNKNOWN_COUNT

    def encode(self) -> bytes:
        head = _UPDATE_HEAD.pack(VERSION, self.snapshot_epoch, self.leader_epoch, self.start_offset)
        return head + _tail(self.batches, self.delivery_complete_count)

    @classmethod
    def read(cls, reader: Reader) -> Update:
        return cls(
            reader.int32(),
            reader.int32(),
            reader.int64(),
            _read_batches(reader),
            _read_count(reader),
        )


def _tail(batches: StateBatches, count: int) -> bytes:
    """Encode batches and count directly: every acknowledgement is written, so this must be fast."""
    size = Writer().uvarint(len(batches) + 1).done()
    body = b"".join([_BATCH.pack(*batch, _NO_TAGS) for batch in batches])
    tags = b"\0" if count == UNKNOWN_COUNT else _COUNT.pack(1, _COUNT_TAG, 4, count)
    return size + body + tags


def _read_batches(reader: Reader) -> StateBatches:
    def batch() -> StateBatch:
        item = StateBatch(reader.int64(), reader.int64(), reader.int8(), reader.int16())
        reader.tags()
        return item

    return reader.array(batch)


def _read_count(reader: Reader) -> int:
    tagged = reader.tags()
    return tagged[_COUNT_TAG].int32() if _COUNT_TAG in tagged else UNKNOWN_COUNT


Value: TypeAlias = Snapshot | Update


class StateRecord(NamedTuple):
    """One record of a share-partition; `value` None is a tombstone."""

    key: ShareKey
    value: Value | None

    def encode(self) -> tuple[bytes, bytes | None]:
        kind = UPDATE if isinstance(self.value, Update) else SNAPSHOT
        group_id, topic_id, partition = self.key
        group = group_id.encode()
        key = _KEY_HEAD.pack(kind, len(group)) + group + topic_id.bytes + _PARTITION.pack(partition)
        return key, None if self.value is None else self.value.encode()


def decode_key(data: bytes) -> tuple[int, ShareKey] | None:
    """Type and key; None for an unknown type."""
    reader = Reader(data, "key of __share_group_state")
    kind = reader.int16()
    if kind not in (SNAPSHOT, UPDATE):
        return None
    key = ShareKey(reader.string(), reader.uuid(), reader.int32())
    reader.end()
    return kind, key


def decode(key_data: bytes, value_data: bytes | None) -> StateRecord | None:
    """The record; None if there is nothing to apply."""
    named = decode_key(key_data)
    if named is None:
        return None
    kind, key = named
    if value_data is None:
        return StateRecord(key, None) if kind == SNAPSHOT else None
    return StateRecord(key, _read_value(kind, value_data))


def _read_value(kind: int, data: bytes) -> Value:
    shape: type[Value] = Snapshot if kind == SNAPSHOT else Update
    reader = Reader(data, shape.where)
    if (version := reader.int16()) != VERSION:
        raise UnsupportedRecordVersion(VERSION, version, shape.where)
    reader.flexible = True
    value = shape.read(reader)
    reader.end()
    return value
