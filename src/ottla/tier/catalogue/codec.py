"""Metadata events as bytes, exactly as Kafka's RemoteLogMetadataSerde writes them.

An event is three unsigned varints (frame version 1, api key, api version 0) and one message of the
flexible form: big-endian integers, compact strings, bytes and arrays, a tagged-field section at the
end of every struct. Nothing may follow.

A Kafka broker that meets an event it cannot read stops reading its catalogue for good. Hence
nothing but versions 1 and 0 and the api keys 0 to 2 is ever written. On reading, unknown tagged
fields are skipped and later versions of a segment event are accepted; everything else that is
unexpected is a `CodecError`, which costs one event and no more.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from ottla.tier.catalogue.segments import (
    EpochStart,
    MetadataEvent,
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
    TopicIdPartition,
)
from ottla.tier.errors import CodecError, InvalidSegment
from ottla.wire.varints import UVARINTS

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME_VERSION: Final = 1
SEGMENT_KEY: Final = 0
UPDATE_KEY: Final = 1
PARTITION_DELETE_KEY: Final = 2
API_VERSION: Final = 0

_TXN_INDEX_EMPTY_TAG: Final = 0
_NO_TAGS: Final = b"\x00"
_TXN_INDEX_EMPTY: Final = b"\x01\x00\x01\x01"  # one tagged field: tag 0, one byte, true
_MAX_UVARINT_BYTES: Final = 5  # Kafka's varints are those of 32-bit numbers

_TIP = struct.Struct(">16siB")
_ID = struct.Struct(">16sB")
_SEGMENT = struct.Struct(">qqiqq")
_EPOCH = struct.Struct(">iqB")
_EPOCH_SIZE_AT_LEAST: Final = _EPOCH.size
_I8 = struct.Struct(">b")
_I32 = struct.Struct(">i")
_UPDATE = struct.Struct(">iq")
_DELETE = struct.Struct(">iqb")

_T = TypeVar("_T")
_S = TypeVar("_S", SegmentState, PartitionDeleteState)


def encode_event(event: MetadataEvent) -> bytes:
    """The value of the record on the metadata topic."""
    if isinstance(event, RemoteLogSegmentMetadata):
        return _envelope(SEGMENT_KEY) + _segment(event)
    if isinstance(event, RemoteLogSegmentMetadataUpdate):
        return _envelope(UPDATE_KEY) + _update(event)
    return _envelope(PARTITION_DELETE_KEY) + _partition_delete(event)


def _envelope(api_key: int) -> bytes:
    return bytes((FRAME_VERSION, api_key, API_VERSION))


def encode_tip(tip: TopicIdPartition) -> bytes:
    name = tip.topic.encode()
    return UVARINTS[len(name) + 1] + name + _TIP.pack(tip.topic_id.bytes, tip.partition, 0)


def _segment_id(segment: RemoteLogSegmentId) -> bytes:
    return encode_tip(segment.tip) + _ID.pack(segment.id.bytes, 0)


def _nullable(data: bytes | None) -> bytes:
    return b"\x00" if data is None else UVARINTS[len(data) + 1] + data


def _segment(event: RemoteLogSegmentMetadata) -> bytes:
    epochs = event.leader_epochs
    return b"".join(
        (
            _segment_id(event.id),
            _SEGMENT.pack(
                event.start_offset,
                event.end_offset,
                event.broker_id,
                event.max_timestamp_ms,
                event.event_timestamp_ms,
            ),
            UVARINTS[len(epochs) + 1],
            *(_EPOCH.pack(epoch, start, 0) for epoch, start in epochs),
            _I32.pack(event.segment_size),
            _nullable(event.custom_metadata),
            _I8.pack(event.state),
            _TXN_INDEX_EMPTY if event.txn_index_empty else _NO_TAGS,
        )
    )


def _update(event: RemoteLogSegmentMetadataUpdate) -> bytes:
    return b"".join(
        (
            _segment_id(event.id),
            _UPDATE.pack(event.broker_id, event.event_timestamp_ms),
            _nullable(event.custom_metadata),
            _I8.pack(event.state),
            _NO_TAGS,
        )
    )


def _partition_delete(event: RemotePartitionDeleteMetadata) -> bytes:
    fixed = _DELETE.pack(event.broker_id, event.event_timestamp_ms, event.state)
    return encode_tip(event.tip) + fixed + _NO_TAGS


class Cursor:
    """Reads forward through bytes that may be anything; every fault is a `CodecError`."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def fault(self, expected: object, got: object) -> CodecError:
        return CodecError(expected, got, f"metadata event at byte {self.position}")

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            found = layout.unpack_from(self.data, self.position)
        except struct.error:
            left = len(self.data) - self.position
            raise self.fault(f"{layout.size} bytes", f"{left}") from None
        self.position += layout.size
        return found

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise self.fault(f"{size} bytes", f"{len(self.data) - self.position}")
        found = self.data[self.position : end]
        self.position = end
        return found

    def uvarint(self) -> int:
        value = shift = 0
        for byte in self.data[self.position : self.position + _MAX_UVARINT_BYTES]:
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise self.fault("an unsigned varint", "none that ends")

    def nullable_bytes(self) -> bytes | None:
        length = self.uvarint()
        return None if length == 0 else self.take(length - 1)

    def string(self) -> str:
        found = self.nullable_bytes()
        if found is None:
            raise self.fault("a string", "null")
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise self.fault("UTF-8", found) from None

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def tags(self) -> dict[int, bytes]:
        """Tagged fields by number; a reader takes those that it knows."""
        found = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = self.take(self.uvarint())
        return found

    def array(self, read: Callable[[], _T], least: int) -> tuple[_T, ...]:
        """Elements of at least `least` bytes each: an impossible count allocates nothing."""
        count = self.uvarint() - 1
        if not 0 <= count <= (len(self.data) - self.position) // least:
            raise self.fault("an array that fits", f"{count} elements")
        return tuple(read() for _ in range(count))

    def state(self, states: type[_S]) -> _S:
        (number,) = self.unpack(_I8)
        try:
            return states(number)
        except ValueError:
            raise self.fault(f"a {states.__name__}", number) from None

    def end(self) -> None:
        if self.position != len(self.data):
            raise self.fault("the end", f"{len(self.data) - self.position} bytes more")

    # The structs of the messages

    def tip(self) -> TopicIdPartition:
        name = self.string()
        topic_id = self.uuid()
        (partition,) = self.unpack(_I32)
        self.tags()
        return TopicIdPartition(topic_id, name, partition)

    def segment_id(self) -> RemoteLogSegmentId:
        tip = self.tip()
        found = RemoteLogSegmentId(tip, self.uuid())
        self.tags()
        return found

    def epoch(self) -> EpochStart:
        epoch, start, tags = self.unpack(_EPOCH)
        if tags:
            self.position -= 1
            self.tags()
        return EpochStart(epoch, start)


def decode_event(data: bytes) -> MetadataEvent:
    """The event in a record's value; `CodecError` if it is not an event."""
    cursor = Cursor(data)
    frame_version = cursor.uvarint()
    if frame_version != FRAME_VERSION:
        raise cursor.fault(f"frame version {FRAME_VERSION}", frame_version)
    api_key = cursor.uvarint()
    reader = _READERS.get(api_key)
    if reader is None:
        raise cursor.fault("api key 0, 1 or 2", api_key)
    api_version = cursor.uvarint()
    if api_version != API_VERSION and api_key != SEGMENT_KEY:
        raise cursor.fault(f"api version {API_VERSION}", api_version)
    try:
        event = reader(cursor)
    except InvalidSegment as error:
        raise cursor.fault("a possible segment", str(error)) from error
    cursor.end()
    return event


def _read_segment(cursor: Cursor) -> RemoteLogSegmentMetadata:
    segment = cursor.segment_id()
    start, end, broker, max_timestamp, event_timestamp = cursor.unpack(_SEGMENT)
    epochs = cursor.array(cursor.epoch, _EPOCH_SIZE_AT_LEAST)
    (size,) = cursor.unpack(_I32)
    custom = cursor.nullable_bytes()
    state = cursor.state(SegmentState)
    flag = cursor.tags().get(_TXN_INDEX_EMPTY_TAG, b"\x00")
    if len(flag) != 1:
        raise cursor.fault("one byte of txn_index_empty", flag)
    return RemoteLogSegmentMetadata(
        segment,
        start,
        end,
        max_timestamp,
        broker,
        event_timestamp,
        size,
        epochs,
        custom,
        state,
        flag != b"\x00",
    )


def _read_update(cursor: Cursor) -> RemoteLogSegmentMetadataUpdate:
    segment = cursor.segment_id()
    broker, event_timestamp = cursor.unpack(_UPDATE)
    custom = cursor.nullable_bytes()
    state = cursor.state(SegmentState)
    cursor.tags()
    return RemoteLogSegmentMetadataUpdate(segment, broker, event_timestamp, custom, state)


def _read_partition_delete(cursor: Cursor) -> RemotePartitionDeleteMetadata:
    tip = cursor.tip()
    broker, event_timestamp = cursor.unpack(_UPDATE)
    state = cursor.state(PartitionDeleteState)
    cursor.tags()
    return RemotePartitionDeleteMetadata(tip, state, event_timestamp, broker)


_READERS: Final[dict[int, Callable[[Cursor], MetadataEvent]]] = {
    SEGMENT_KEY: _read_segment,
    UPDATE_KEY: _read_update,
    PARTITION_DELETE_KEY: _read_partition_delete,
}
