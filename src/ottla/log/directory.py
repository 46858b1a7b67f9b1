"""A data directory: one lock, one identity, one subdirectory for each partition.

Names: `<topic>-<partition>` is a log, `<topic>-<partition>.<32 hex digits>-delete` one that is
being deleted, the same with `-stray` one of an unknown topic; anything else is ignored.
Every call blocks.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ottla.errors import OttlaError
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
from ottla.log.os_storage import FILE_MODE, OsStorage
from ottla.log.storage import TMP_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from uuid import UUID

    from ottla.log.storage import Storage

LOCK_FILE: Final = ".lock"
# Of the supervisor of several nodes, who holds the directory even while none of its nodes runs.
SUPERVISOR_LOCK: Final = ".supervisor.lock"
HOLDER_BYTES: Final = 32
"""The number of the process that holds a lock, and blanks."""
# The metadata log of a Kafka broker whose directory this was: no topic's, and to be left alone.
KRAFT_LOG: Final = "__cluster_metadata-0"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
MAX_NAME_LENGTH: Final = 255  # of one path element on the usual file systems
_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_GOING = re.compile(r".*-[0-9]+\.[0-9a-f]{32}-delete")

logger = logging.getLogger(__name__)


class DirectoryLocked(OttlaError):
    """Another process serves from this data directory."""


def partition_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_name(name: str) -> TopicPartition | None:
    match = _PARTITION.fullmatch(name)
    if match is None or match["topic"] in (".", ".."):
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def hold_lock(path: Path, what: str) -> int:
    """Lock a file that names this process, until the descriptor is closed; `what` it protects."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, HOLDER_BYTES, 0).decode(errors="replace").strip()
        os.close(fd)
        by = f"process {holder}" if holder.isdecimal() else "another process"
        raise DirectoryLocked(f"{what} is in use by {by}") from None
    _name_holder(fd, str(os.getpid()))
    return fd


def _name_holder(fd: int, name: str) -> None:
    """In place: the file keeps its block, so that a directory on a full disk can be locked."""
    os.pwrite(fd, name.ljust(HOLDER_BYTES - 1).encode() + b"\n", 0)


def check_unsupervised(path: Path) -> None:
    """Raise DirectoryLocked if a supervisor runs nodes here; all may wait for their next start."""
    lock = path / SUPERVISOR_LOCK
    if lock.exists():
        os.close(hold_lock(lock, f"data directory {path}"))


class DataDirectory:
    """One directory of `log.dirs`, held by a lock until `close`."""

    def __init__(self, path: Path, storage: Storage | None = None) -> None:
        self.path = path
        self.storage = storage or OsStorage()
        self.storage.mkdir(path)
        self._lock_fd = hold_lock(self.path / LOCK_FILE, f"data directory {path}")

    def close(self) -> None:
        """Release the lock; the logs must be closed by then."""
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:  # after a second close the number may be another file's
            # A node that took over from another is not the one to be found there afterwards.
            with suppress(OSError):
                _name_holder(fd, "")
            os.close(fd)

    def together(self) -> AbstractContextManager[None]:
        """For work on many logs: their syncs share one. See `Storage.together`."""
        return self.storage.together(self._lock_fd)

    def meta(self) -> MetaProperties | None:
        """The owner of the directory; None if it is new."""
        try:
            return decode_meta(self.storage.read_file(self.path / META_PROPERTIES))
        except FileNotFoundError:
            return None

    def write_meta(self, meta: MetaProperties) -> None:
        self.storage.replace_file(self.path / META_PROPERTIES, encode_meta(meta))

    def partitions(self) -> list[TopicPartition]:
        """The logs that are here, by their names alone: nothing in them is read."""
        with os.scandir(self.path) as entries:
            found = [
                name
                for entry in entries
                if (name := parse_partition_name(entry.name)) is not None
                and entry.name != KRAFT_LOG
                and entry.is_dir()
            ]
        return sorted(found)

    def path_of(self, name: TopicPartition) -> Path:
        return self.path / partition_name(*name)

    def topic_id(self, name: TopicPartition) -> UUID | None:
        """Of which topic a log is; None if `partition.metadata` is missing."""
        try:
            data = self.storage.read_file(self.path_of(name) / PARTITION_METADATA)
        except FileNotFoundError:
            return None
        return decode_partition_metadata(data)

    def create_partitions(self, wanted: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, str]:
        """Directories for new logs, durable before anything is put in them; why some failed.

        One sync of the data directory serves all. That `partition.metadata` has its name becomes
        durable with the first sync of the log, which syncs the directory: until then there is
        nothing in it that anybody was promised.
        """
        failed = {}
        for name, topic_id in wanted.items():
            if parse_partition_name(partition_name(*name)) is None:
                raise ValueError(f"{partition_name(*name)!r} cannot name a partition directory")
            try:
                self._create(self.path_of(name), topic_id)
            except OSError as error:
                failed[name] = str(error)
        if len(failed) < len(wanted):
            try:
                self.storage.fsync_dir(self.path)
            except OSError as error:
                return dict.fromkeys(wanted, str(error))
        return failed

    def _create(self, path: Path, topic_id: UUID) -> None:
        self.storage.mkdir(path)
        metadata = path / PARTITION_METADATA
        if not self.storage.syncs:
            self.storage.write_file(metadata, encode_partition_metadata(topic_id))
            return
        temporary = metadata.with_name(metadata.name + TMP_SUFFIX)
        self.storage.write_file(temporary, encode_partition_metadata(topic_id))
        self.storage.sync_file(temporary)
        self.storage.rename(temporary, metadata)

    def retire(
        self, names: Iterable[TopicPartition], suffix: str = DELETE_SUFFIX
    ) -> dict[TopicPartition, Path | OSError]:
        """Rename partition directories so that no start will load them; the new paths, or why not.

        With DELETE_SUFFIX the next `purge` removes them, with STRAY_SUFFIX they stay until an
        operator removes them. Missing directories are not in the result; one sync serves all.
        """
        retired: dict[TopicPartition, Path | OSError] = {}
        for name in names:
            ending = f"-{name.partition}.{uuid4().hex}{suffix}"
            target = self.path / (name.topic[: MAX_NAME_LENGTH - len(ending)] + ending)
            try:
                self.storage.rename(self.path_of(name), target)
                retired[name] = target
            except FileNotFoundError:
                continue
            except OSError as error:
                retired[name] = error
        if retired:
            self.storage.fsync_dir(self.path)
        return retired

    def purge(self, keep: Container[str] = ()) -> list[str]:
        """Remove what `retire` marked for deletion, also before a restart; the names.

        Directories in `keep` stay: their time has not come.
        What cannot be removed now, for instance because a worker of the deleted log is still
        writing to it, is left to the next purge.
        """
        from shutil import rmtree

        names = [
            name
            for name in self.storage.listdir(self.path)
            if _GOING.fullmatch(name) and name not in keep
        ]
        for name in names:
            try:
                rmtree(self.path / name)
            except OSError as error:
                logger.warning("deleted log %s cannot be removed yet: %s", name, error)
        return names
