"""A snapshot of the catalogue in a file, so that a restart replays only newer events.

Layout: `RLMS`, u16 version, cluster id, metadata topic id, u32 partition count, (i32 partition, i64
position) of each, entries, u32 CRC-32C of all before it. An entry is one byte of kind and a body:
0 is a segment event that carries the segment's current state, 1 a partition delete event, 2 the
highest offset of each epoch of a partition, which outlives the segments. Entries of a partition lie
together, segments in the order of their last change.

Positions are captured together with the catalogue. A file that is damaged, or of another cluster,
topic or partition count, is a `SnapshotError`: the caller replays.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from ottla.tier.catalogue.catalogue import Catalogue, Deferred
from ottla.tier.catalogue.codec import Cursor, decode_event, encode_event, encode_tip
from ottla.tier.catalogue.placement import metadata_partition_for
from ottla.tier.catalogue.segments import (
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from ottla.tier.errors import CodecError, SnapshotError
from ottla.wire.varints import UVARINTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

FILE_NAME: Final = "snapshot"

_MAGIC: Final = b"RLMS"
_VERSION: Final = 1
_SEGMENT: Final = 0
_DELETE: Final = 1
_HIGHEST: Final = 2
_ENVELOPE_SIZE: Final = 3
_PARTITION_SIZE: Final = 21  # topic id, partition, no tags: what follows the name in an event

_HEAD = struct.Struct(">4sH")
_COUNT = struct.Struct(">I")
_POSITION = struct.Struct(">iq")
_EPOCH = struct.Struct(">iq")
_CRC = struct.Struct(">I")


class Identity(NamedTuple):
    """The cluster and topic of a snapshot."""

    cluster_id: str
    topic_id: UUID
    partition_count: int


class Captured(NamedTuple):
    """A catalogue at one moment, as values that no later event changes."""

    positions: Mapping[int, int]
    events: Sequence[MetadataEvent]
    highest: Sequence[tuple[TopicIdPartition, Sequence[tuple[int, int]]]]
    deferred: Sequence[bytes]


class Loaded(NamedTuple):
    """A snapshot: the position and the catalogue of each metadata partition."""

    positions: dict[int, int]
    catalogues: dict[int, Catalogue]


def capture(positions: Mapping[int, int], catalogues: Sequence[Catalogue]) -> Captured:
    """Cheap: references to immutable values. `encode` then does the work, in a thread perhaps."""
    events: list[MetadataEvent] = []
    highest = []
    deferred: list[bytes] = []
    for catalogue in catalogues:
        for tip, cache in catalogue.caches():
            events += cache.segments.values()
            highest.append((tip, cache.highest_offsets()))
        events += catalogue.deletes()
        for waiting in catalogue.deferred():
            deferred += waiting.entries
    return Captured(dict(positions), events, highest, deferred)


def encode(identity: Identity, captured: Captured) -> bytes:
    """The content of the file."""
    cluster = identity.cluster_id.encode()
    head = [
        _HEAD.pack(_MAGIC, _VERSION),
        UVARINTS[len(cluster) + 1],
        cluster,
        identity.topic_id.bytes,
        _COUNT.pack(identity.partition_count),
        *(
            _POSITION.pack(number, captured.positions.get(number, 0))
            for number in range(identity.partition_count)
        ),
    ]
    entries = [*_entries(captured), *captured.deferred]
    body = [part for entry in entries for part in (UVARINTS[len(entry)], entry)]
    data = b"".join((*head, UVARINTS[len(entries)], *body))
    return data + _CRC.pack(crc32c(data))


def _entries(captured: Captured) -> Iterator[bytes]:
    for event in captured.events:
        kind = _DELETE if isinstance(event, RemotePartitionDeleteMetadata) else _SEGMENT
        yield bytes((kind,)) + encode_event(event)
    for tip, highest in captured.highest:
        packed = b"".join(_EPOCH.pack(*pair) for pair in highest)
        yield bytes((_HIGHEST,)) + encode_tip(tip) + UVARINTS[len(highest) + 1] + packed


def decode(data: bytes, identity: Identity) -> Loaded:
    """The snapshot in a file's content; partitions are read when they are first asked for."""
    if len(data) < _CRC.size or crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise SnapshotError("a matching CRC", "another", "catalogue snapshot")
    try:
        return _decode(Cursor(data[: -_CRC.size]), identity)
    except CodecError as error:
        raise SnapshotError(error.expected, error.got, error.where) from error


def _decode(cursor: Cursor, identity: Identity) -> Loaded:
    if cursor.take(_HEAD.size) != _HEAD.pack(_MAGIC, _VERSION):
        raise cursor.fault(f"version {_VERSION} of the format", "another")
    found = Identity(cursor.string(), cursor.uuid(), cursor.unpack(_COUNT)[0])
    if found != identity:
        raise cursor.fault(identity, found)
    positions: dict[int, int] = {}
    for _ in range(identity.partition_count):
        number, position = cursor.unpack(_POSITION)
        positions[number] = position
    catalogues = {number: Catalogue() for number in positions}
    for tip, entries in _grouped(cursor).items():
        number = metadata_partition_for(*tip.identity, identity.partition_count)
        catalogues[number].defer(Deferred(tip, entries, _thaw))
    cursor.end()
    return Loaded(positions, catalogues)


def _grouped(cursor: Cursor) -> dict[TopicIdPartition, list[bytes]]:
    """The entries by partition, of which nothing but the partition is read."""
    groups: dict[bytes, list[bytes]] = {}
    for _ in range(cursor.uvarint()):
        entry = cursor.take(cursor.uvarint())
        start = 1 if entry[:1] == bytes((_HIGHEST,)) else 1 + _ENVELOPE_SIZE
        # A topic name has at most 249 bytes, hence a length of one or two bytes.
        wide = entry[start : start + 1] >= b"\x80"
        length = int.from_bytes(entry[start : start + 1]) & 0x7F
        if wide:
            length |= int.from_bytes(entry[start + 1 : start + 2]) << 7
        end = start + (2 if wide else 1) + length - 1 + _PARTITION_SIZE
        groups.setdefault(entry[start:end], []).append(entry)
    return {Cursor(key).tip(): entries for key, entries in groups.items()}


def _thaw(catalogue: Catalogue, entries: Sequence[bytes]) -> None:
    for entry in entries:
        kind, body = entry[0], entry[1:]
        if kind == _HIGHEST:
            cursor = Cursor(body)
            tip = cursor.tip()
            for epoch, offset in cursor.array(partial(cursor.unpack, _EPOCH), _EPOCH.size):
                catalogue.put_highest(tip, epoch, offset)
            continue
        event = decode_event(body)
        if isinstance(event, RemoteLogSegmentMetadata):
            catalogue.put_segment(event)
        elif isinstance(event, RemotePartitionDeleteMetadata):
            catalogue.put_delete(event)
