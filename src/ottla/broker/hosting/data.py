"""The data directory of a running node: which logs are on disk, opening, closing, deleting them.

Threads: the state of the directory in memory belongs to the event loop and is changed only there.
`open_logs`, `close_logs`, `recover`, `shrink`, `retire` and `purge` block and run in worker
threads. They take all they need as arguments and touch only files; the loop applies their results.

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
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from ottla.broker.hosting.checkpoints import Checkpoints
from ottla.clock import SYSTEM
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
from ottla.log.directory import STRAY_SUFFIX, DataDirectory
from ottla.log.errors import LogError, StorageFailure
from ottla.log.os_storage import OsStorage
from ottla.log.tail import DEFAULT_TAIL_BYTES, TailCache

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from pathlib import Path

    from ottla.log.closed import ClosedLog
    from ottla.log.config import LogConfig
    from ottla.log.journal.replay import Leftover
    from ottla.log.partition import PartitionLog
    from ottla.log.storage import Directory, Storage
    from ottla.metadata.image import MetadataImage

METADATA_FILE: Final = "metadata.db"
# Names of `ottla.log.journal`, which is not loaded where there is none.
STATE_FILE: Final = "ottla.journal"
STALE_SUFFIX: Final = ".stale"
# From here on one sync of the file system costs less than those of the files; it also writes what
# others have there.
LOGS_TO_SHARE_A_SYNC: Final = 16

logger = logging.getLogger(__name__)


class WrongDirectory(Exception):
    """The data directory belongs to another cluster or node, or cannot be adopted."""


class UnsyncedStorage(OsStorage):
    """For ephemeral brokers: what does not outlive the process need not outlive a power cut."""

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: Path | Directory) -> None:
        pass

    @contextmanager
    def together(self, fd: int) -> Iterator[None]:
        yield


class BrokenJournal(Exception):
    """Acknowledged records may be in a journal that is damaged or missing."""


class LogRequest(NamedTuple):
    """All that a worker needs to open one log."""

    name: TopicPartition
    topic_id: UUID
    config: LogConfig
    on_disk: bool
    create: bool
    trusted: bool
    recovery_point: int
    high_watermark: int
    log_start_offset: int
    first_dirty: int
    """How far it has been compacted."""


class Opened(NamedTuple):
    """The outcome of a request; without log and error the log does not exist."""

    log: PartitionLog | None = None
    error: LogError | None = None
    stray: bool = False  # the directory was another topic's and is set aside


class Shrunk(NamedTuple):
    """What retention has left of a closed log."""

    opened: Opened
    left: ClosedLog | None = None
    is_trusted: bool = False


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
        clean = take_clean_shutdown(self.storage, path)
        offsets = {}
        for file in Checkpoint:
            try:
                offsets[file] = read_offsets(self.storage, path, file)
            except CorruptCheckpoint as error:
                logger.warning("%s is ignored: %s", file.value, error)
                clean = False
        self._on_disk = set(self._directory.partitions())
        self._trusted = set(self._on_disk) if clean else set()
        self._tail = TailCache(tail_bytes)
        self._dropping = threading.Lock()  # a stop does not wait for a worker that does it
        # Batches that a crash left in a journal; None if there are none.
        self.leftover: Leftover | None = None
        # Logs keep so much of new batches until the journal takes them; without a journal nothing.
        self._fresh_max_bytes = fresh_max_bytes
        self.checkpoints = Checkpoints(self.storage, path, offsets)
        self.checkpoints.keep_only(self._on_disk)

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

    def look_for_journal(self, *, accept_loss: bool) -> None:
        """Read the batches that a crash left in a journal; raises BrokenJournal. Blocks."""
        if not (self.path / STATE_FILE).exists():
            return
        from ottla.log.journal.files import set_aside
        from ottla.log.journal.replay import CorruptJournal, JournalMissing, scan

        meta = self._directory.meta()
        try:
            self.leftover = scan(self._directory)
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
            self.leftover = None
            set_aside(self._directory)
            logger.warning(
                "%s shows that a broker without a journal has used this directory: the journal is"
                " renamed to *%s and not replayed",
                META_PROPERTIES,
                STALE_SUFFIX,
            )

    def keep_leftover_of(self, image: MetadataImage) -> None:
        """Drop batches of deleted topics; the logs of the others must be opened."""
        if self.leftover is None:
            return
        for topic_id, partition in self.leftover.unsettled():
            topic = image.topic_names.get(UUID(bytes=topic_id))
            name = None if topic is None else TopicPartition(topic, partition)
            if name is None or name not in self._on_disk:
                self.leftover.settle((topic_id, partition))
            else:
                self._trusted.discard(name)

    @property
    def is_replayed(self) -> bool:
        """Whether a journal of the run before can go: all that it held is in the logs."""
        return self.leftover is not None and not len(self.leftover)

    def drop_journal(self) -> None:
        """The directory is one without a journal again. Blocks."""
        from ottla.log.journal.files import remove

        with self._dropping:
            remove(self._directory)

    # -- what is there ----------------------------------------------------------------------------

    def has(self, name: TopicPartition) -> bool:
        """Whether the partition has a directory. If not it was never written."""
        return name in self._on_disk

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

    def open_logs(self, requests: Sequence[LogRequest]) -> list[Opened]:
        """Open logs, and create new ones. Blocks; each may fail separately."""
        settled: dict[TopicPartition, Opened] = {}
        made = {}
        for request in requests:
            try:
                if request.on_disk and self._is_stray(request):
                    settled[request.name] = Opened(stray=True)
                elif request.create and not request.on_disk:
                    made[request.name] = request.topic_id
            except (OSError, CorruptCheckpoint) as error:
                settled[request.name] = _failed(request.name, error)
        for name, reason in (self._directory.create_partitions(made) if made else {}).items():
            settled[name] = _failed(name, reason)
        return [settled.get(request.name) or self._open_log(request) for request in requests]

    def _is_stray(self, request: LogRequest) -> bool:
        """Return whether the directory belongs to another topic; if so, rename it."""
        name = request.name
        if self._directory.topic_id(name) in (None, request.topic_id):
            return False
        for target in self._directory.retire([name], STRAY_SUFFIX).values():
            if isinstance(target, OSError):
                raise target
            logger.warning(
                "%s-%d belongs to a deleted topic of that name, renamed to %s: a crash interrupted "
                "the deletion; remove the directory if it is not needed",
                *name,
                target.name,
            )
        return True

    def _open_log(self, request: LogRequest) -> Opened:
        # The largest part of the log room: not needed to be ready.
        from ottla.log.partition import PartitionLog

        if self._fresh_max_bytes is not None:
            import ottla.broker.hosting.journal  # noqa: F401 (for the first append, on the loop)

        if not request.on_disk and not request.create:
            return Opened()
        key = request.topic_id.bytes, request.name.partition
        first = None if self.leftover is None else self.leftover.first_offset(key)
        start = request.log_start_offset
        try:
            log = PartitionLog.open(
                self._directory.path_of(request.name),
                request.config,
                now_ms=SYSTEM.wall_ms(),
                clean=request.trusted,
                recovery_point=request.recovery_point,
                high_watermark=request.high_watermark,
                log_start_offset=start if first is None else min(start, first),
                tail=self._tail,
                storage=self.storage,
            )
            if request.on_disk:
                if first is not None:
                    self._replay(request, log)
                if request.trusted:
                    log.synced(log.log_end_offset)  # its close has done that
                else:
                    log.flush()
                log.advance_high_watermark(log.recovery_point)
        except Exception as error:
            if not isinstance(error, LogError | OSError):
                logger.exception("%s-%d could not be opened", *request.name)
            return _failed(request.name, error)
        return Opened(log)

    def _replay(self, request: LogRequest, log: PartitionLog) -> None:
        """Restore batches that a crash took from a log, from the journal."""
        assert self.leftover is not None
        key = request.topic_id.bytes, request.name.partition
        try:
            batches = self.leftover.replay(key, log, SYSTEM.wall_ms())
        except BaseException:
            log.close(clean=False)
            raise
        log.raise_log_start(min(request.log_start_offset, log.log_end_offset))
        if batches:
            logger.info("%s-%d got %d batches from the journal", *request.name, batches)

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

    def close_logs(self, logs: Sequence[PartitionLog], *, clean: bool) -> list[bool]:
        """Close logs that refuse calls already; which of them can be trusted now. Blocks."""
        closed: list[bool] = []
        share_sync = clean and len(logs) >= LOGS_TO_SHARE_A_SYNC
        try:
            with self._directory.together() if share_sync else nullcontext():
                closed += [_close_log(log, clean=clean, within=share_sync) for log in logs]
        except OSError:
            logger.exception("%d logs could not be made durable", len(logs))
            return [False] * len(logs)
        if share_sync:
            for log, is_clean in zip(logs, closed, strict=True):
                if is_clean:
                    log.synced(log.log_end_offset)
        return closed

    def was_closed(self, name: TopicPartition, *, trusted: bool) -> None:
        if trusted and name in self._on_disk:
            self._trusted.add(name)

    def recover(self, requests: Sequence[LogRequest]) -> list[tuple[Opened, bool]]:
        """Repair logs after an unclean stop and leave them closed, trusted if all went well."""
        try:
            with self._directory.together():
                opened = self.open_logs(requests)
                logs = [one.log for one in opened if one.log is not None]
                for log in logs:
                    log.begin_close()
                closed = iter([_close_log(log, clean=True) for log in logs])
        except OSError as error:
            return [(_failed(request.name, error), False) for request in requests]
        return [(one, one.log is not None and next(closed)) for one in opened]

    def shrink(self, requests: Sequence[LogRequest], now_ms: int) -> list[Shrunk]:
        """Delete segments of closed, trusted logs by retention; they stay closed.

        Blocks. Each fails alone, and is looked at again with the next round.
        """
        found = [self._drop_expired(request, now_ms) for request in requests]
        unclear = sum(one is None for one in found)
        share_sync = unclear >= LOGS_TO_SHARE_A_SYNC
        try:
            with self._directory.together() if share_sync else nullcontext():
                return [
                    self._shrink_open(request, now_ms) if one is None else one
                    for request, one in zip(requests, found, strict=True)
                ]
        except OSError as error:
            return [Shrunk(_failed(request.name, error)) for request in requests]

    def _drop_expired(self, request: LogRequest, now_ms: int) -> Shrunk | None:
        """By the files alone; None if more may go, which only an open log can tell."""
        from ottla.log.closed import drop_expired, look_at

        path, config, start = self.path_of(request.name), request.config, request.log_start_offset
        try:
            if self._is_stray(request):
                return Shrunk(Opened(stray=True))
            drop_expired(self.storage, path, config, log_start=start, now_ms=now_ms)
            left = look_at(path, request.first_dirty)
        except (OSError, CorruptCheckpoint, ValueError) as error:
            return Shrunk(_failed(request.name, error), is_trusted=True)
        if left.may_shrink(config, log_start=start, now_ms=now_ms):
            return None
        return Shrunk(Opened(), left, is_trusted=True)

    def _shrink_open(self, request: LogRequest, now_ms: int) -> Shrunk:
        """Open the log for this, and close it again."""
        from ottla.log.closed import look_into

        opened = self._open_log(request)
        log = opened.log
        if log is None:
            return Shrunk(opened)
        left = None
        try:
            log.apply_retention(now_ms)
            log.purge(now_ms + request.config.file_delete_delay_ms)
            left = look_into(log, request.first_dirty)
        except LogError as error:
            opened = _failed(request.name, error)
        log.begin_close()
        return Shrunk(opened, left, is_trusted=_close_log(log, clean=True))

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
        if self.leftover is not None:
            self.leftover.settle((topic_id, partition))

    def retire(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, str | None]:
        """Rename directories of deleted topics. Blocks.

        Returns the new names, None for a directory that could not be renamed. `purge` removes the
        files later.
        """
        try:
            answer = self._directory.retire(names)
        except OSError:
            logger.exception("the renaming of directories of deleted topics is not durable")
            return {}  # They are renamed, but after a crash they may be back as strays.
        retired: dict[TopicPartition, str | None] = {}
        for name, target in answer.items():
            if isinstance(target, OSError):
                logger.error("the log of %s-%d cannot be deleted: %s", *name, target)
                retired[name] = None
            else:
                retired[name] = target.name
        return retired

    def was_not_retired(self, name: TopicPartition) -> None:
        """It is in the way still: opened for another topic, it will be found to be a stray."""
        self._on_disk.add(name)

    def purge(self, keep: Container[str]) -> None:
        """Remove the files of deleted logs, but not those of the directories in `keep`. Blocks."""
        self._directory.purge(keep)

    def mark_clean(self) -> None:
        """Say that no log needs recovery at the next start, if that is so. Blocks."""
        if self._on_disk <= self._trusted:
            if (self.path / STATE_FILE).exists():
                self.drop_journal()
            mark_clean_shutdown(self.storage, self.path)

    def close(self) -> None:
        """Give the directory back: another process may have it from now on."""
        self._directory.close()


def _close_log(log: PartitionLog, *, clean: bool, within: bool = False) -> bool:
    try:
        return log.close(clean=clean, within=within)
    except Exception:
        logger.exception("%s could not be closed", log.directory.name)
        return False


def _failed(name: TopicPartition, reason: object) -> Opened:
    return Opened(error=StorageFailure(f"no log for {name.topic}-{name.partition}: {reason}"))
