"""The small files of a data directory; each one is replaced whole or not at all.

Offset checkpoints are text: `0`, the number of entries, then `topic partition offset` a line.
`meta.properties` names cluster, node and directory; `partition.metadata` ties a partition
directory to its topic's id; `.kafka_cleanshutdown` says that every log was closed.
"""

from __future__ import annotations

import base64
import enum
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ottla.log.storage import Storage

META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
_CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'
_OFFSETS_VERSION: Final = "0"
PLAIN: Final = "1"
# Acknowledged records may be in a journal: versions without journals must not open it.
KEEPS_JOURNAL: Final = "2"


class CorruptCheckpoint(ValueError):
    """A malformed checkpoint or metadata file."""


class Checkpoint(enum.Enum):
    """The four offset checkpoints, by file name."""

    RECOVERY_POINT = "recovery-point-offset-checkpoint"
    LOG_START = "log-start-offset-checkpoint"
    HIGH_WATERMARK = "replication-offset-checkpoint"
    CLEANER = "cleaner-offset-checkpoint"


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: UUID
    version: str = PLAIN


def encode_id(value: UUID) -> str:
    """Kafka writes ids as 22 characters of url-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_id(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise CorruptCheckpoint(f"{text!r} is not a valid id: {error}") from error


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [_OFFSETS_VERSION, str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return ("\n".join(lines) + "\n").encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    try:
        version, count, *lines = data.decode().splitlines()
        rows = [line.split(" ") for line in lines]
        offsets = {TopicPartition(topic, int(p)): int(offset) for topic, p, offset in rows}
    except ValueError as error:
        raise CorruptCheckpoint(f"offset checkpoint cannot be read: {error}") from error
    if version != _OFFSETS_VERSION or count != str(len(offsets)):
        raise CorruptCheckpoint("offset checkpoint of another version or length")
    return offsets


def read_offsets(storage: Storage, directory: Path, name: Checkpoint) -> dict[TopicPartition, int]:
    """Empty if the file is missing; a damaged one raises CorruptCheckpoint."""
    try:
        data = storage.read_file(directory / name.value)
    except FileNotFoundError:
        return {}
    return decode_offsets(data)


def write_offsets(
    storage: Storage, directory: Path, name: Checkpoint, offsets: Mapping[TopicPartition, int]
) -> None:
    """Blocks until the new content is durable."""
    storage.replace_file(directory / name.value, encode_offsets(offsets))


def encode_meta(meta: MetaProperties) -> bytes:
    return (
        f"version={meta.version}\ncluster.id={meta.cluster_id}\nnode.id={meta.node_id}\n"
        f"directory.id={encode_id(meta.directory_id)}\n"
    ).encode()


def decode_meta(data: bytes) -> MetaProperties:
    lines = [line for line in data.decode().splitlines() if line and not line.startswith("#")]
    entries = dict(line.split("=", 1) for line in lines if "=" in line)
    try:
        version = entries["version"]
        if version not in (PLAIN, KEEPS_JOURNAL):
            raise CorruptCheckpoint(
                f"{META_PROPERTIES} has version {version}, which this Ottla does not know; start it"
                " with the newer one that wrote it, and stop that cleanly before you go back"
            )
        return MetaProperties(
            entries["cluster.id"],
            int(entries["node.id"]),
            decode_id(entries["directory.id"]),
            version,
        )
    except KeyError as missing:
        raise CorruptCheckpoint(f"{META_PROPERTIES} has no {missing}") from missing


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {encode_id(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    lines = data.decode(errors="replace").split("\n")
    if len(lines) < 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        raise CorruptCheckpoint(f"{PARTITION_METADATA} cannot be read")
    return decode_id(lines[1].removeprefix("topic_id: "))


def mark_clean_shutdown(storage: Storage, directory: Path) -> None:
    """To be called when every log is closed. Blocks."""
    storage.replace_file(directory / CLEAN_SHUTDOWN, _CLEAN_SHUTDOWN_CONTENT)


def take_clean_shutdown(storage: Storage, directory: Path) -> bool:
    """Whether the last stop was clean; the mark is removed, durably, before any log is opened."""
    if CLEAN_SHUTDOWN not in storage.listdir(directory):
        return False
    storage.unlink(directory / CLEAN_SHUTDOWN)
    storage.fsync_dir(directory)
    return True
