"""The data directory of a running node: which logs are on disk, opening and deleting them.

One replica is all there is, so whatever a log holds after recovery is committed: it is synced once
more and shown to readers at once. A directory whose topic id is not the one the image names is
set aside as stray, never written to and never deleted. How a node takes over the directory of a
Kafka broker is in `ottla.broker.hosting.adoption`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ottla.clock import SYSTEM
from ottla.log.checkpoints import (
    Checkpoint,
    CorruptCheckpoint,
    MetaProperties,
    TopicPartition,
    mark_clean_shutdown,
    read_offsets,
    take_clean_shutdown,
    write_offsets,
)
from ottla.log.directory import STRAY_SUFFIX, DataDirectory, PartitionDirectory
from ottla.log.errors import StorageFailure
from ottla.log.storage import OsStorage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from uuid import UUID

    from ottla.broker.hosting.partitions import HostedPartition
    from ottla.log.config import LogConfig
    from ottla.log.partition import PartitionLog
    from ottla.log.storage import Directory, Storage
    from ottla.metadata.image import MetadataImage

METADATA_FILE: Final = "metadata.db"

logger = logging.getLogger(__name__)


class WrongDirectory(Exception):
    """The data directory belongs to another cluster or node, or to one that cannot be adopted."""


class UnsyncedStorage(OsStorage):
    """For ephemeral brokers: what does not outlive the process need not outlive a power cut."""

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: Path | Directory) -> None:
        pass


class Data:
    """Holds the lock on the directory from construction to `close`."""

    def __init__(self, path: Path, *, ephemeral: bool = False) -> None:
        self.storage: Storage = UnsyncedStorage() if ephemeral else OsStorage()
        self._directory = DataDirectory(path, self.storage)
        self.path = path
        self._directory.purge()
        self.clean = take_clean_shutdown(self.storage, path)
        self._offsets = {name: self._read_offsets(name) for name in Checkpoint}
        self._unopened: set[TopicPartition] = set()  # logs that could not be opened when needed
        self._found = {found.topic_partition: found for found in self._directory.partitions()}

    @property
    def cluster_id(self) -> str | None:
        """Of which cluster the directory is, None if it is new."""
        meta = self._directory.meta()
        return None if meta is None else meta.cluster_id

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Make the directory this node's, or refuse one that is another's."""
        meta = self._directory.meta()
        if meta is None:
            self._directory.write_meta(MetaProperties(cluster_id, node_id, uuid4()))
        elif (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
            raise WrongDirectory(
                f"data directory {self.path} belongs to node {meta.node_id} of cluster "
                f"{meta.cluster_id}, this is node {node_id} of cluster {cluster_id}"
            )

    def set_aside_strays(self, image: MetadataImage) -> None:
        for topic_partition, found in tuple(self._found.items()):
            topic = image.topic(topic_partition.topic)
            if topic is None or found.topic_id not in (None, topic.topic_id):
                self._set_aside(found)

    def _set_aside(self, found: PartitionDirectory) -> None:
        stray = self._directory.retire(found.path, uuid4(), STRAY_SUFFIX)
        del self._found[found.topic_partition]
        logger.warning("%s is of no topic of this cluster, set aside as %s", found.path, stray.name)

    def partitions_on_disk(self, topic: str) -> list[int]:
        return sorted(found.partition for found in self._found if found.topic == topic)

    def all_on_disk(self) -> list[TopicPartition]:
        return sorted(self._found)

    def open_log(self, topic: str, index: int, topic_id: UUID, config: LogConfig) -> PartitionLog:
        """The partition's log, made if it is new. Blocks; long only after an unclean stop."""
        try:
            return self._open_log(topic, index, topic_id, config)
        except OSError as error:
            self._unopened.add(TopicPartition(topic, index))
            raise StorageFailure(f"no log for {topic}-{index}: {error}") from error
        except StorageFailure:
            self._unopened.add(TopicPartition(topic, index))
            raise

    def _open_log(self, topic: str, index: int, topic_id: UUID, config: LogConfig) -> PartitionLog:
        # The largest part of the log room: not needed to be ready.
        from ottla.log.partition import PartitionLog

        key = TopicPartition(topic, index)
        found = self._found.get(key)
        if found is not None and found.topic_id not in (None, topic_id):
            self._set_aside(found)
            found = None
        if found is None:
            path = self._directory.create_partition(topic, index, topic_id)
            self._found[key] = PartitionDirectory(key, path, topic_id)
            for offsets in self._offsets.values():
                offsets.pop(key, None)
        log = PartitionLog.open(
            self._directory.path / self._found[key].path,
            config,
            now_ms=SYSTEM.wall_ms(),
            clean=self.clean and found is not None,
            recovery_point=self._offsets[Checkpoint.RECOVERY_POINT].get(key, 0),
            high_watermark=self._offsets[Checkpoint.HIGH_WATERMARK].get(key, 0),
            log_start_offset=self._offsets[Checkpoint.LOG_START].get(key, 0),
            storage=self.storage,
        )
        if found is not None:
            log.advance_high_watermark(log.flush())
        self._unopened.discard(key)
        return log

    def delete_log(self, topic: str, index: int, log: PartitionLog | None) -> None:
        """Out of sight at once; the files go with the next `purge`."""
        if log is not None:
            log.close(clean=False)
        found = self._found.pop(TopicPartition(topic, index), None)
        if found is not None:
            self._directory.retire(found.path, uuid4())

    def purge(self) -> None:
        """Remove the files of deleted logs. Blocks."""
        self._directory.purge()

    def log_start_moved(self, topic: str, index: int, offset: int) -> None:
        """Durable at once: what was deleted does not come back after a crash."""
        offsets = self._offsets[Checkpoint.LOG_START]
        offsets[TopicPartition(topic, index)] = offset
        try:
            write_offsets(self.storage, self.path, Checkpoint.LOG_START, offsets)
        except OSError as error:
            raise StorageFailure(f"log start of {topic}-{index} not written: {error}") from error

    def first_dirty_offset(self, partition: HostedPartition) -> int:
        key = TopicPartition(partition.topic, partition.index)
        return self._offsets[Checkpoint.CLEANER].get(key, 0)

    def compacted(self, partition: HostedPartition, first_dirty_offset: int) -> None:
        """Remember how far a log has been compacted; written with the next checkpoint."""
        key = TopicPartition(partition.topic, partition.index)
        self._offsets[Checkpoint.CLEANER][key] = first_dirty_offset

    def checkpoint(self, partitions: Iterable[HostedPartition]) -> None:
        """Write down how far the logs are. Blocks."""
        for partition in partitions:
            key = TopicPartition(partition.topic, partition.index)
            log = partition.log
            self._offsets[Checkpoint.RECOVERY_POINT][key] = log.recovery_point
            self._offsets[Checkpoint.HIGH_WATERMARK][key] = log.high_watermark
            self._offsets[Checkpoint.LOG_START][key] = log.log_start_offset
        for name, offsets in self._offsets.items():
            known = {key: offset for key, offset in offsets.items() if key in self._found}
            self._offsets[name] = known
            write_offsets(self.storage, self.path, name, known)

    def close(self, *, clean: bool) -> None:
        """Give the directory back; a log that was never opened may still need its recovery."""
        try:
            if clean and not self._unopened:
                mark_clean_shutdown(self.storage, self.path)
        finally:
            self._directory.close()

    def _read_offsets(self, name: Checkpoint) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.storage, self.path, name)
        except CorruptCheckpoint as error:
            logger.warning("%s is ignored: %s", name.value, error)
            self.clean = False
            return {}
