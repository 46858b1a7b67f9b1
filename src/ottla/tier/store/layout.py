"""The two objects of a remote segment, and where their parts are.

`<prefix><topic>-<topic id>/<partition>/<20-digit start>-<segment id>.log` is the segment file byte
for byte. The `.meta` beside it holds the sections of `Section`, in that order, back to back, then a
manifest in JSON, then 16 bytes: u32 position, length and CRC-32C of the manifest, `TSM1`.

`.meta` is written last and never replaced: if it exists, the segment is complete. It has enough to
rebuild the catalogue from a listing. The custom metadata in the catalogue (49 bytes) has the
position of each section, so that reading an index takes one ranged request.
"""

from __future__ import annotations

import json
import struct
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crc32c import crc32c

from ottla.log.checkpoints import decode_id, encode_id
from ottla.tier.catalogue.segments import (
    EpochStart,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
    TopicIdPartition,
)
from ottla.tier.errors import CorruptRemoteData, InvalidSegment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

LOG_SUFFIX: Final = ".log"
META_SUFFIX: Final = ".meta"
FORMAT: Final = 1
TAIL_BYTES: Final = 64 * 1024
"""Bytes to read from the end of `.meta` for its manifest: about 700, and 30 per epoch."""

_TRAILER = struct.Struct(">III4s")
_MAGIC: Final = b"TSM1"
_CUSTOM_VERSION: Final = 1
_CUSTOM = struct.Struct(">BII10I")
CUSTOM_METADATA_SIZE: Final = _CUSTOM.size
_ID_LENGTH: Final = 22
_OFFSET_DIGITS: Final = 20


class Section(Enum):
    """The parts of `.meta`; a reader of records needs the first three."""

    OFFSET = "OFFSET"
    TIMESTAMP = "TIMESTAMP"
    TRANSACTION = "TRANSACTION"
    LEADER_EPOCH = "LEADER_EPOCH"
    PRODUCER_SNAPSHOT = "PRODUCER_SNAPSHOT"


class Place(NamedTuple):
    """The place of a section in `.meta`; length 0: absent."""

    position: int
    length: int

    @property
    def end(self) -> int:
        return self.position + self.length


class CustomMetadata(NamedTuple):
    """Custom metadata of a segment in the catalogue."""

    log_crc: int
    meta_size: int
    places: Mapping[Section, Place]

    def encode(self) -> bytes:
        numbers = [number for section in Section for number in self.places[section]]
        return _CUSTOM.pack(_CUSTOM_VERSION, self.log_crc, self.meta_size, *numbers)

    @classmethod
    def decode(cls, data: bytes | None) -> CustomMetadata | None:
        """None if another plugin or version wrote it; the manifest has the same data."""
        if data is None or len(data) != _CUSTOM.size or data[0] != _CUSTOM_VERSION:
            return None
        _, log_crc, meta_size, *numbers = _CUSTOM.unpack(data)
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return cls(
            log_crc,
            meta_size,
            {section: Place(*pair) for section, pair in zip(Section, pairs, strict=True)},
        )


class Manifest(NamedTuple):
    """A segment as its `.meta` describes it: the catalogue's entry, and where the bytes are."""

    metadata: RemoteLogSegmentMetadata
    cluster_id: str
    custom: CustomMetadata
    crcs: Mapping[Section, int]


def topic_prefix(prefix: str, topic: str, topic_id: UUID) -> str:
    return f"{prefix}{topic}-{encode_id(topic_id)}/"


def partition_prefix(prefix: str, tip: TopicIdPartition) -> str:
    return f"{topic_prefix(prefix, tip.topic, tip.topic_id)}{tip.partition}/"


def segment_key(prefix: str, metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
    """The key of one of the segment's objects, from the metadata alone."""
    name = f"{metadata.start_offset:0{_OFFSET_DIGITS}d}-{encode_id(metadata.id.id)}"
    return f"{partition_prefix(prefix, metadata.tip)}{name}{suffix}"


def segment_id_of(key: str) -> UUID | None:
    """The segment id in an object's key, None if the key is none of ours."""
    name, dot, _ = key.rpartition("/")[2].partition(".")
    if not dot or len(name) != _OFFSET_DIGITS + 1 + _ID_LENGTH:
        return None
    try:
        return decode_id(name[_OFFSET_DIGITS + 1 :])
    except ValueError:
        return None


def topic_id_of(directory: str, topic: str) -> UUID | None:
    """The topic id in `<topic>-<topic id>`, None if the directory is another topic's."""
    name, text = directory[: -_ID_LENGTH - 1], directory[-_ID_LENGTH:]
    if name != topic or directory[len(name) : len(name) + 1] != "-":
        return None
    try:
        return decode_id(text)
    except ValueError:
        return None


def encode_meta(
    metadata: RemoteLogSegmentMetadata,
    cluster_id: str,
    log_crc: int,
    sections: Mapping[Section, bytes],
) -> tuple[bytes, CustomMetadata]:
    """The content of `.meta`, and the custom metadata that goes with it."""
    places: dict[Section, Place] = {}
    position = 0
    for section in Section:
        length = len(sections.get(section, b""))
        places[section] = Place(position if length else 0, length)
        position += length
    manifest = json.dumps(
        _manifest(metadata, cluster_id, log_crc, sections, places), separators=(",", ":")
    ).encode()
    trailer = _TRAILER.pack(position, len(manifest), crc32c(manifest), _MAGIC)
    parts = [sections.get(section, b"") for section in Section]
    data = b"".join((*parts, manifest, trailer))
    return data, CustomMetadata(log_crc, len(data), places)


def _manifest(
    metadata: RemoteLogSegmentMetadata,
    cluster_id: str,
    log_crc: int,
    sections: Mapping[Section, bytes],
    places: Mapping[Section, Place],
) -> dict[str, object]:
    return {
        "format": FORMAT,
        "cluster_id": cluster_id,
        "topic": metadata.tip.topic,
        "topic_id": encode_id(metadata.tip.topic_id),
        "partition": metadata.tip.partition,
        "segment_id": encode_id(metadata.id.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "leader_epochs": [list(pair) for pair in metadata.leader_epochs],
        "broker_id": metadata.broker_id,
        "created_ms": metadata.event_timestamp_ms,
        "txn_index_empty": metadata.txn_index_empty,
        "log": {"size": metadata.segment_size, "crc32c": log_crc},
        "sections": {
            section.value: [*places[section], crc32c(data)]
            for section, data in sections.items()
            if data
        },
    }


def decode_meta(tail: memoryview, size: int, where: str) -> Manifest:
    """The manifest in the last bytes of a `.meta` of `size` bytes."""
    try:
        position, length, crc, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
        start = position - (size - len(tail))
        found = bytes(tail[start : start + length])
        whole = position + length + _TRAILER.size == size and start >= 0
        if magic != _MAGIC or not whole or crc32c(found) != crc:
            raise ValueError("trailer and manifest do not fit")
        return _read_manifest(json.loads(found), size)
    except (struct.error, ValueError, KeyError, TypeError, InvalidSegment) as error:
        raise CorruptRemoteData(f"{where} holds no manifest: {error}") from error


def _read_manifest(manifest: Any, size: int) -> Manifest:
    if manifest["format"] != FORMAT:
        raise ValueError(f"format {manifest['format']}")
    tip = TopicIdPartition(
        decode_id(manifest["topic_id"]), manifest["topic"], manifest["partition"]
    )
    sections = manifest["sections"]
    places = {one: Place(*sections.get(one.value, (0, 0, 0))[:2]) for one in Section}
    custom = CustomMetadata(manifest["log"]["crc32c"], size, places)
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(tip, decode_id(manifest["segment_id"])),
        manifest["start_offset"],
        manifest["end_offset"],
        manifest["max_timestamp_ms"],
        manifest["broker_id"],
        manifest["created_ms"],
        manifest["log"]["size"],
        tuple(EpochStart(*pair) for pair in manifest["leader_epochs"]),
        custom.encode(),
        SegmentState.COPY_SEGMENT_FINISHED,
        manifest["txn_index_empty"],
    )
    crcs = {one: sections[one.value][2] for one in Section if one.value in sections}
    return Manifest(metadata, manifest["cluster_id"], custom, crcs)
