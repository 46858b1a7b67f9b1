"""A data directory: one lock, one identity, one subdirectory for each partition.

Names: `<topic>-<partition>` is a log, `<topic>-<partition>.<32 hex digits>-delete` one that is
being deleted, the same with `-stray` one whose topic nobody knows; anything else is left alone.
Every call blocks.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.checkpoints import (
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    TopicPartition,
    decode_meta,
    decode_partition_metadata,
    encode_meta,
    encode_partition_metadata,
)
from ottla.log.storage import OsStorage

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from ottla.log.storage import Storage

LOCK_FILE: Final = ".lock"
# The metadata log of a Kafka broker whose directory this was: no topic's, and to be left alone.
KRAFT_LOG: Final = "__cluster_metadata-0"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
MAX_NAME_LENGTH: Final = 255  # of one path element on the usual file systems
_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_GOING = re.compile(r".*-[0-9]+\.[0-9a-f]{32}-delete")

logger = logging.getLogger(__name__)


class DirectoryLocked(Exception):
    """Another process serves from this data directory."""


class PartitionDirectory(NamedTuple):
    """A log on disk; `topic_id` is None if `partition.metadata` is missing."""

    topic_partition: TopicPartition
    path: Path
    topic_id: UUID | None


def partition_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_name(name: str) -> TopicPartition | None:
    match = _PARTITION.fullmatch(name)
    if match is None or match["topic"] in (".", ".."):
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


class DataDirectory:
    """One directory of `log.dirs`, held by a lock until `close`."""

    def __init__(self, path: Path, storage: Storage | None = None) -> None:
        self.path = path
        self.storage = storage or OsStorage()
        self.storage.mkdir(path)
        self._lock_fd = self._lock()

    def _lock(self) -> int:
        fd = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            by = f"process {holder}" if holder.isdecimal() else "another process"
            raise DirectoryLocked(f"data directory {self.path} is in use by {by}") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def close(self) -> None:
        """Release the lock; the logs must be closed by then."""
        os.close(self._lock_fd)

    def meta(self) -> MetaProperties | None:
        """Who this directory belongs to; None if it is new."""
        try:
            return decode_meta(self.storage.read_file(self.path / META_PROPERTIES))
        except FileNotFoundError:
            return None

    def write_meta(self, meta: MetaProperties) -> None:
        self.storage.replace_file(self.path / META_PROPERTIES, encode_meta(meta))

    def partitions(self) -> list[PartitionDirectory]:
        """The logs that are here."""
        found = []
        for name in self.storage.listdir(self.path):
            topic_partition = parse_partition_name(name)
            if name == KRAFT_LOG:
                continue
            if topic_partition is not None and (self.path / name).is_dir():
                path = self.path / name
                found.append(PartitionDirectory(topic_partition, path, self._topic_id(path)))
        return found

    def _topic_id(self, path: Path) -> UUID | None:
        try:
            return decode_partition_metadata(self.storage.read_file(path / PARTITION_METADATA))
        except FileNotFoundError:
            return None

    def create_partition(self, topic: str, partition: int, topic_id: UUID) -> Path:
        """The directory for a new log, durable before anything is put in it."""
        name = partition_name(topic, partition)
        if parse_partition_name(name) is None:
            raise ValueError(f"{name!r} cannot name a partition directory")
        path = self.path / name
        self.storage.mkdir(path)
        metadata = encode_partition_metadata(topic_id)
        self.storage.replace_file(path / PARTITION_METADATA, metadata)
        self.storage.fsync_dir(self.path)
        return path

    def retire(self, path: Path, unique: UUID, suffix: str = DELETE_SUFFIX) -> Path:
        """Rename a partition directory so that no start will load it; the new path.

        With DELETE_SUFFIX the next `purge` removes it, with STRAY_SUFFIX it stays for a person.
        """
        topic, _, partition = path.name.rpartition("-")
        ending = f"-{partition}.{unique.hex}{suffix}"
        target = self.path / (topic[: MAX_NAME_LENGTH - len(ending)] + ending)
        self.storage.rename(path, target)
        self.storage.fsync_dir(self.path)
        return target

    def purge(self) -> list[str]:
        """Remove what `retire` marked for deletion, also before a restart; the names.

        What cannot be removed now, for instance because a worker of the deleted log is still
        writing to it, is left to the next purge.
        """
        from shutil import rmtree

        names = [name for name in self.storage.listdir(self.path) if _GOING.fullmatch(name)]
        for name in names:
            try:
                rmtree(self.path / name)
            except OSError as error:
                logger.warning("deleted log %s cannot be removed yet: %s", name, error)
        return names
