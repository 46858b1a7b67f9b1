"""The data directory of a running node: which logs are on disk, opening, closing, deleting them.

The state of the directory in memory belongs to the event loop and is changed only there. Worker
threads do the work on files (`ottla.broker.hosting.work`); the loop applies their results.

There is only one replica, so all records in a log after recovery are committed: the log is synced
once more and served to readers at once. A directory with another topic id than the image's is
renamed to a stray, never written to and never deleted; this is checked when the directory is first
needed. How a node takes over the directory of a Kafka broker is in `ottla.broker.hosting.adoption`.

Which files are trusted: those of a log that was closed cleanly, in this run or by a clean stop
before it. All others are walked when they are opened. The mark of a clean stop says that about all
logs, so it is written only when all are trusted.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from ottla.broker.hosting.checkpoints import Checkpoints
from ottla.broker.hosting.work import LogRequest, LogWork
from ottla.log.checkpoints import (
    META_PROPERTIES,
    PLAIN,
    Checkpoint,
    CorruptCheckpoint,
    MetaProperties,
    TopicPartition,
    mark_clean_shutdown,
    read_offsets,
    take_clean_shutdown,
)
from ottla.log.directory import LOCK_FILE, STRAY_SUFFIX, DataDirectory
from ottla.log.os_storage import OsStorage
from ottla.log.tail import DEFAULT_TAIL_BYTES, TailCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ottla.broker.hosting.work import Opened
    from ottla.broker.membership.handover import Brought, Handover
    from ottla.cluster.handover import Note
    from ottla.log.config import LogConfig
    from ottla.log.journal.replay import Leftover
    from ottla.log.storage import Directory, Storage
    from ottla.metadata.image import MetadataImage

METADATA_FILE: Final = "metadata.db"
# Names of `ottla.log.journal`, which is not loaded where there is none.
STATE_FILE: Final = "ottla.journal"
STALE_SUFFIX: Final = ".stale"

logger = logging.getLogger(__name__)


class WrongDirectory(Exception):
    """The data directory belongs to another cluster or node, or cannot be adopted."""


class UnsyncedStorage(OsStorage):
    """For ephemeral brokers: what does not outlive the process need not outlive a power cut."""

    syncs = False

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: Path | Directory) -> None:
        pass

    @contextmanager
    def together(self, fd: int) -> Iterator[None]:
        yield


class BrokenJournal(Exception):
    """Acknowledged records may be in a journal that is damaged or missing."""


class Data:
    """Holds the lock on the directory from construction to `close`."""

    def __init__(
        self,
        path: Path,
        *,
        ephemeral: bool = False,
        tail_bytes: int = DEFAULT_TAIL_BYTES,
        fresh_max_bytes: int | None = None,
    ) -> None:
        self.storage: Storage = UnsyncedStorage() if ephemeral else OsStorage()
        self.path = path
        self._directory = DataDirectory(path, self.storage)
        self.was_empty = set(self.storage.listdir(path)) <= {LOCK_FILE}
        clean = not self.was_empty and take_clean_shutdown(self.storage, path)
        offsets: dict[Checkpoint, dict[TopicPartition, int]] = {file: {} for file in Checkpoint}
        for file in () if self.was_empty else Checkpoint:
            try:
                offsets[file] = read_offsets(self.storage, path, file)
            except CorruptCheckpoint as error:
                logger.warning("%s is ignored: %s", file.value, error)
                clean = False
        self._on_disk = set() if self.was_empty else set(self._directory.partitions())
        self._trusted = set(self._on_disk) if clean else set()
        self.work = LogWork(
            self._directory, TailCache(tail_bytes), keeps_journal=fresh_max_bytes is not None
        )
        # With siblings: partitions that have been looked for, and were nowhere.
        self._absent: set[TopicPartition] | None = None
        self._dropping = threading.Lock()  # a stop does not wait for a worker that does it
        # Logs keep so much of new batches until the journal takes them; without a journal nothing.
        self._fresh_max_bytes = fresh_max_bytes
        self.checkpoints = Checkpoints(self.storage, path, offsets)
        self.checkpoints.keep_only(self._on_disk)

    def share(self, handover: Handover) -> None:
        """Other nodes may have logs that this one leads; they come and go through `handover`."""
        self._absent = set()
        self.work.handover = handover

    # -- whose it is ------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        """Id of the owning cluster, None if the directory is new."""
        meta = self._meta()
        return None if meta is None else meta.cluster_id

    def _meta(self) -> MetaProperties | None:
        try:
            return self._directory.meta()
        except CorruptCheckpoint as error:
            raise WrongDirectory(f"data directory {self.path} cannot be used: {error}") from error

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Make the directory this node's, or refuse one that is another's."""
        meta = self._meta()
        if meta is None:
            self._directory.write_meta(MetaProperties(cluster_id, node_id, uuid4()))
        elif (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
            raise WrongDirectory(
                f"data directory {self.path} belongs to node {meta.node_id} of cluster "
                f"{meta.cluster_id}, this is node {node_id} of cluster {cluster_id}"
            )

    # -- the journal of the run before ------------------------------------------------------------

    @property
    def directory(self) -> DataDirectory:
        return self._directory

    @property
    def leftover(self) -> Leftover | None:
        """Batches that a crash left in a journal; None if there are none."""
        return self.work.leftover

    def look_for_journal(self, *, accept_loss: bool) -> None:
        """Read the batches that a crash left in a journal; raises BrokenJournal. Blocks."""
        if not (self.path / STATE_FILE).exists():
            return
        from ottla.log.journal.files import set_aside
        from ottla.log.journal.replay import CorruptJournal, JournalMissing, scan

        meta = self._directory.meta()
        try:
            self.work.leftover = scan(self._directory)
        except (CorruptJournal, JournalMissing) as error:
            if not accept_loss:
                raise BrokenJournal(str(error)) from error
            set_aside(self._directory)
            logger.warning(
                "started without its journal, as ottla.journal.lost=accept asks: %s", error
            )
            return
        if meta is None or meta.version == PLAIN:
            # The version is raised before the first slot and lowered after the last: a broker that
            # does not support journals has written to these logs.
            self.work.leftover = None
            set_aside(self._directory)
            logger.warning(
                "%s shows that a broker without a journal has used this directory: the journal is"
                " renamed to *%s and not replayed",
                META_PROPERTIES,
                STALE_SUFFIX,
            )

    def keep_leftover_of(self, image: MetadataImage) -> None:
        """Drop batches of deleted topics; the logs of the others must be opened."""
        if self.work.leftover is None:
            return
        for topic_id, partition in self.work.leftover.unsettled():
            topic = image.topic_names.get(UUID(bytes=topic_id))
            name = None if topic is None else TopicPartition(topic, partition)
            if name is None or name not in self._on_disk:
                self.work.leftover.settle((topic_id, partition))
            else:
                self._trusted.discard(name)

    @property
    def is_replayed(self) -> bool:
        """Whether a journal of the run before can go: all that it held is in the logs."""
        return self.work.leftover is not None and not len(self.work.leftover)

    def drop_journal(self) -> None:
        """The directory is one without a journal again. Blocks."""
        from ottla.log.journal.files import remove

        with self._dropping:
            remove(self._directory)

    # -- what is there ----------------------------------------------------------------------------

    def has(self, name: TopicPartition) -> bool:
        """Whether the partition has a directory. If not it was never written."""
        return name in self._on_disk

    def may_have(self, name: TopicPartition) -> bool:
        """Whether it has a directory, or may have one with another node: nobody has looked."""
        if name in self._on_disk:
            return True
        return self._absent is not None and name not in self._absent

    def is_trusted(self, name: TopicPartition) -> bool:
        """Whether its files are as a clean close left them."""
        return name in self._trusted

    def untrusted(self) -> list[TopicPartition]:
        return sorted(self._on_disk - self._trusted)

    def partitions_on_disk(self, topic: str) -> list[int]:
        return sorted(name.partition for name in self._on_disk if name.topic == topic)

    def all_on_disk(self) -> frozenset[TopicPartition]:
        return frozenset(self._on_disk)

    def path_of(self, name: TopicPartition) -> Path:
        return self._directory.path_of(name)

    def sizes(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Sizes of closed logs; deleted ones are left out. Blocks."""
        from ottla.log.segment import LOG

        found = {}
        for name in names:
            with suppress(OSError), os.scandir(self.path_of(name)) as entries:
                found[name] = sum(
                    entry.stat().st_size for entry in entries if entry.name.endswith(LOG)
                )
        return found

    def set_aside_strays(self, image: MetadataImage) -> None:
        """Rename directories of unknown topics. Blocks."""
        strays = [name for name in self._on_disk if image.topic(name.topic) is None]
        for name in strays:
            self.forget(name)
        for name, target in self._directory.retire(strays, STRAY_SUFFIX).items():
            if isinstance(target, OSError):
                raise target
            logger.warning(
                "%s-%d belongs to no topic of this cluster, renamed to %s: a crash interrupted the "
                "deletion of its topic, or it was copied here; remove it if it is not needed",
                *name,
                target.name,
            )

    # -- opening and closing ----------------------------------------------------------------------

    def request(
        self, name: TopicPartition, topic_id: UUID, config: LogConfig, *, create: bool
    ) -> LogRequest:
        offset = self.checkpoints.offset
        return LogRequest(
            name,
            topic_id,
            config,
            on_disk=name in self._on_disk,
            create=create,
            trusted=name in self._trusted,
            recovery_point=offset(Checkpoint.RECOVERY_POINT, name),
            high_watermark=offset(Checkpoint.HIGH_WATERMARK, name),
            log_start_offset=offset(Checkpoint.LOG_START, name),
            first_dirty=offset(Checkpoint.CLEANER, name),
        )

    def note(self, name: TopicPartition, topic_id: UUID, leader_epoch: int) -> Note:
        """What the checkpoints say of a closed log that leaves."""
        from ottla.cluster.handover import Note

        offset = self.checkpoints.offset
        return Note(
            topic_id,
            leader_epoch,
            recovery_point=offset(Checkpoint.RECOVERY_POINT, name),
            high_watermark=offset(Checkpoint.HIGH_WATERMARK, name),
            log_start_offset=offset(Checkpoint.LOG_START, name),
            first_dirty=offset(Checkpoint.CLEANER, name),
            clean=True,
        )

    def is_new(self, name: TopicPartition) -> None:
        """It was just created, so no other node has it."""
        if self._absent is not None:
            self._absent.add(name)

    def seek_again(self, name: TopicPartition) -> None:
        """Another node may have got it, or released it, since it was looked for."""
        if self._absent is not None:
            self._absent.discard(name)

    def was_brought(self, request: LogRequest, brought: Brought) -> None:
        """Note a log that came from another node, or that is nowhere."""
        name, note = request.name, brought.note
        if note is not None:
            self._on_disk.add(name)
            self._trusted.add(name)
            self.checkpoints.adopt(name, note)
        elif brought.error is None:
            self.is_new(name)

    def was_released(self, name: TopicPartition, topic_id: bytes) -> None:
        """Another node has it from now on."""
        self.forget(name, topic_id)
        self.seek_again(name)

    def was_opened(self, request: LogRequest, opened: Opened) -> None:
        """Note the logs that a worker has opened or created."""
        name = request.name
        if opened.stray or opened.log is not None:
            self._settle(request.topic_id.bytes, name.partition)
        if opened.stray:
            self.forget(name)
        elif opened.log is not None:
            if self._fresh_max_bytes is not None:
                opened.log.keep_fresh(self._fresh_max_bytes)
            self._on_disk.add(name)
            self._trusted.discard(name)
            self.checkpoints.own(name, request.topic_id.bytes)
        elif opened.error is not None:
            self._trusted.discard(name)

    def was_closed(self, name: TopicPartition, *, trusted: bool) -> None:
        if trusted and name in self._on_disk:
            self._trusted.add(name)

    # -- deleting ---------------------------------------------------------------------------------

    def forget(self, name: TopicPartition, topic_id: bytes | None = None) -> bool:
        """Forget a deleted partition and its checkpoints; returns whether it was on disk."""
        if topic_id is not None:
            self._settle(topic_id, name.partition)
        self.checkpoints.forget(name, topic_id)
        self._trusted.discard(name)
        was_there = name in self._on_disk
        self._on_disk.discard(name)
        return was_there

    def _settle(self, topic_id: bytes, partition: int) -> None:
        if self.work.leftover is not None:
            self.work.leftover.settle((topic_id, partition))

    def was_not_retired(self, name: TopicPartition) -> None:
        """It is in the way still: opened for another topic, it will be found to be a stray."""
        self._on_disk.add(name)

    def mark_clean(self) -> None:
        """Say that no log needs recovery at the next start, if that is so. Blocks."""
        if self._on_disk <= self._trusted:
            if (self.path / STATE_FILE).exists():
                self.drop_journal()
            mark_clean_shutdown(self.storage, self.path)

    def close(self) -> None:
        """Give the directory back: another process may have it from now on."""
        self._directory.close()
