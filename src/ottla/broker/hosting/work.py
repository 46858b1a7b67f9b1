"""Work on the files of logs, for worker threads: open, close, repair, shrink and delete them.

Every call blocks. It gets all it needs as arguments and touches only files; what comes of it is
applied to `ottla.broker.hosting.data` by the event loop.
"""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.clock import SYSTEM
from ottla.log.checkpoints import CorruptCheckpoint
from ottla.log.directory import STRAY_SUFFIX
from ottla.log.errors import LogError, StorageFailure

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from uuid import UUID

    from ottla.broker.membership.handover import Handover
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.closed import ClosedLog
    from ottla.log.config import LogConfig
    from ottla.log.directory import DataDirectory
    from ottla.log.journal.replay import Leftover
    from ottla.log.partition import PartitionLog
    from ottla.log.tail import TailCache

# From here on one sync of the file system costs less than those of the files; it also writes what
# others have there.
LOGS_TO_SHARE_A_SYNC: Final = 16
LOADED: Final = "ottla.log.partition"  # the largest part of the log room; not needed to be ready
NOTE: Final = "handover.json"  # of `ottla.cluster`, which one node alone does not load

logger = logging.getLogger(__name__)


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
    elsewhere: bool = False  # another node has it, or it is on its way


class Shrunk(NamedTuple):
    """What retention has left of a closed log."""

    opened: Opened
    left: ClosedLog | None = None
    is_trusted: bool = False


class LogWork:
    """What workers do in one data directory."""

    def __init__(self, directory: DataDirectory, tail: TailCache, *, keeps_journal: bool) -> None:
        self._directory = directory
        self._storage = directory.storage
        self._tail = tail
        self._keeps_journal = keeps_journal
        # The way to logs of other nodes of this machine; None if there are none.
        self.handover: Handover | None = None
        # Batches that a crash left in a journal; None if there are none.
        self.leftover: Leftover | None = None

    def is_quick(self, requests: Sequence[LogRequest]) -> bool:
        """Whether `open_logs` waits for nothing: it makes logs where nothing is ever synced."""
        return (
            not self._storage.syncs
            and self.handover is None
            and LOADED in sys.modules
            and all(request.create and not request.on_disk for request in requests)
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
        if made:
            settled.update(self._create(made))
        return [settled.get(request.name) or self._open_log(request) for request in requests]

    def _create(self, made: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, Opened]:
        """Directories for new logs; the outcome of those that did not get one."""
        elsewhere: Sequence[TopicPartition] = ()
        if self.handover is None:
            failed = self._directory.create_partitions(made)
        else:
            failed, elsewhere = self.handover.create(self._directory, made)
        settled = {name: _failed(name, reason) for name, reason in failed.items()}
        return {**settled, **dict.fromkeys(elsewhere, Opened(elsewhere=True))}

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
        from ottla.log.partition import PartitionLog

        if self._keeps_journal:
            import ottla.broker.hosting.journal  # noqa: F401 (for the first append, on the loop)

        if not request.on_disk and not request.create:
            return Opened()
        key = request.topic_id.bytes, request.name.partition
        first = None if self.leftover is None else self.leftover.first_offset(key)
        start, recovery_point = request.log_start_offset, request.recovery_point
        try:
            if request.on_disk and not request.trusted:
                start, recovery_point = self._as_handed_over(request)
            log = PartitionLog.open(
                self._directory.path_of(request.name),
                request.config,
                now_ms=SYSTEM.wall_ms(),
                clean=request.trusted,
                recovery_point=recovery_point,
                high_watermark=request.high_watermark,
                log_start_offset=start if first is None else min(start, first),
                tail=self._tail,
                storage=self._storage,
            )
            if request.on_disk:
                if first is not None:
                    self._replay(request, log, start)
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

    def _as_handed_over(self, request: LogRequest) -> tuple[int, int]:
        """Log start and recovery point; the checkpoint files may not have got a node's yet."""
        start, recovery_point = request.log_start_offset, request.recovery_point
        try:
            data = self._storage.read_file(self._directory.path_of(request.name) / NOTE)
        except FileNotFoundError:
            return start, recovery_point
        from ottla.cluster.handover import decode_note

        note = decode_note(data)
        if note.topic_id != request.topic_id:
            return start, recovery_point
        return max(start, note.log_start_offset), max(recovery_point, note.recovery_point)

    def _replay(self, request: LogRequest, log: PartitionLog, start: int) -> None:
        """Restore batches that a crash took from a log, from the journal."""
        assert self.leftover is not None
        key = request.topic_id.bytes, request.name.partition
        try:
            batches = self.leftover.replay(key, log, SYSTEM.wall_ms())
        except BaseException:
            log.close(clean=False)
            raise
        log.raise_log_start(min(start, log.log_end_offset))
        if batches:
            logger.info("%s-%d got %d batches from the journal", *request.name, batches)

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

        path, config, start = (
            self._directory.path_of(request.name),
            request.config,
            request.log_start_offset,
        )
        try:
            if self._is_stray(request):
                return Shrunk(Opened(stray=True))
            drop_expired(self._storage, path, config, log_start=start, now_ms=now_ms)
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

    def purge(self, keep: Container[str]) -> None:
        """Remove the files of deleted logs, but not those of the directories in `keep`. Blocks."""
        self._directory.purge(keep)


def _close_log(log: PartitionLog, *, clean: bool, within: bool = False) -> bool:
    try:
        return log.close(clean=clean, within=within)
    except Exception:
        logger.exception("%s could not be closed", log.directory.name)
        return False


def _failed(name: TopicPartition, reason: object) -> Opened:
    return Opened(error=StorageFailure(f"no log for {name.topic}-{name.partition}: {reason}"))
