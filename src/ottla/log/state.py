"""What a partition's log is at any time, how it becomes durable, and what happens when it cannot.

The offsets, from left to right: log start, local start, last stable, high watermark, log end; the
recovery point lies somewhere up to the end and says what a crash of the machine cannot take any
more. Log start and local start are the same unless the log is tiered: what lies between them is in
the remote tier alone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from ottla.log.epochs import FILE_NAME as EPOCHS_FILE
from ottla.log.errors import StorageFailure
from ottla.log.recovery import LogLoader
from ottla.log.retention import SegmentBin
from ottla.log.segment import SNAPSHOT, CorruptSegment, Segment, segment_path
from ottla.log.storage import OsStorage
from ottla.log.tail import DEFAULT_TAIL_BYTES, TailCache
from ottla.wire.errors import BatchError

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.config import LogConfig
    from ottla.log.producer_state import Producer
    from ottla.log.recovery import LoadedLog
    from ottla.log.storage import Storage


class LogState:
    """The part of a PartitionLog that does not depend on what is in the batches."""

    def __init__(
        self,
        storage: Storage,
        directory: Path,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        recovery_point: int,
        high_watermark: int,
        log_start_offset: int,
        tail_bytes: int,
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.config = config
        self._segments = loaded.segments
        self._active = loaded.segments[-1]
        self._producers = loaded.producers
        self.epochs = loaded.epochs
        self.log_end_offset = self._active.next_offset
        # The oldest part of a tiered log is in the remote tier alone.
        first = 0 if config.remote_storage_enable else self._segments[0].base_offset
        self.log_start_offset = min(max(log_start_offset, first), self.log_end_offset)
        self.recovery_point = min(recovery_point, self.log_end_offset)
        self.high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)
        self._tail = TailCache(tail_bytes)
        self._bin = SegmentBin()
        self._failure: BaseException | None = None
        self._closed = self._closed_cleanly = False
        self._directory_changes = 1  # grows with every file made; what flush has to sync
        self._directory_synced = 0

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool = False,
        recovery_point: int = 0,
        high_watermark: int = 0,
        log_start_offset: int = 0,
        tail_bytes: int = DEFAULT_TAIL_BYTES,
        storage: Storage | None = None,
    ) -> Self:
        """Load or make the log in `directory`. Blocks.

        `clean` says that every file was closed by `close(clean=True)`; the three offsets come from
        the data directory's checkpoints.
        """
        storage = storage or OsStorage()
        try:
            loaded = LogLoader(
                storage,
                directory,
                config,
                now_ms=now_ms,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
            ).load()
        except (OSError, CorruptSegment, BatchError) as error:
            raise StorageFailure(f"log {directory.name} cannot be opened: {error}") from error
        return cls(
            storage,
            directory,
            config,
            loaded,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            tail_bytes=tail_bytes,
        )

    # What the log is

    @property
    def online(self) -> bool:
        return self._failure is None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one grows. The tuple itself never changes."""
        return self._segments

    @property
    def local_start_offset(self) -> int:
        """The first offset that can be read here."""
        return max(self.log_start_offset, self._segments[0].base_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def unflushed(self) -> int:
        """Records that a crash of the machine may still take."""
        return self.log_end_offset - self.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """Where a reader with isolation 1 stops."""
        unstable = self._producers.first_unstable_offset(self.high_watermark)
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return unstable

    def producers(self) -> list[Producer]:
        """For DescribeProducers; the entries are the log's own, to be read at once."""
        return list(self._producers)

    def producer(self, producer_id: int) -> Producer | None:
        """What is known of one producer; the log's own entry, to be read at once."""
        return self._producers.get(producer_id)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        return self._producers.expire(now_ms, expiration_ms)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) for OffsetForLeaderEpoch, None if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # Durability

    def flush(self) -> int:
        """Make everything appended so far durable; the offset up to which it is. Blocks."""
        self._require_online()
        end = self.log_end_offset
        changes = self._directory_changes
        segments = self._segments
        try:
            if self.epochs.dirty:
                self.epochs.dirty = False
                self.storage.replace_file(self.directory / EPOCHS_FILE, self.epochs.encode())
            if end > self.recovery_point or changes != self._directory_synced:
                self._sync(segments)
            if changes != self._directory_synced:
                self.storage.fsync_dir(self.directory)
                self._directory_synced = changes
        except OSError as error:
            raise self._fail(error) from error
        self.recovery_point = max(self.recovery_point, end)
        return end

    def _sync(self, segments: tuple[Segment, ...]) -> None:
        for segment in reversed(segments):
            if segment.next_offset <= self.recovery_point and segment.indexes_synced:
                break
            segment.sync()
            self.storage.sync_file(segment_path(self.directory, segment.base_offset, SNAPSHOT))

    def advance_high_watermark(self, offset: int) -> int:
        """Let readers see up to `offset`; it never goes back nor past the end. The new value."""
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))
        return self.high_watermark

    def close(self, *, clean: bool = True) -> bool:
        """Give the files back; with `clean` make everything durable first. Blocks.

        True if `open` may trust the files as they are. A log that is offline, or that fails now,
        gives False: then the data directory must not be marked as shut down cleanly. Closing twice
        changes nothing.
        """
        if clean and self.online and not self._closed:
            with suppress(StorageFailure):
                self._finish()
                self._closed_cleanly = True
        self._closed = True
        for segment in self._segments:
            segment.file.close()
        self._bin.clear()
        self._tail.clear()
        return self._closed_cleanly

    def _finish(self) -> None:
        """Write what only a running log keeps in memory, and sync all of it."""
        try:
            self._active.write_indexes()
            snapshot = segment_path(self.directory, self.log_end_offset, SNAPSHOT)
            self.storage.replace_file(snapshot, self._producers.encode())
        except OSError as error:
            raise self._fail(error) from error
        self._directory_changes += 1
        self.recovery_point = min(self.recovery_point, self._active.base_offset)
        self.flush()

    # Failing

    def _require_online(self) -> None:
        if self._failure is not None:
            raise StorageFailure(f"log {self.directory.name} is offline: {self._failure}")

    def _fail(self, error: BaseException) -> StorageFailure:
        """Take the log offline."""
        self._failure = self._failure or error
        return StorageFailure(f"log {self.directory.name} went offline: {error}")
