"""One partition's log: append, read, flush, and the offsets that describe it.

The offsets, from left to right: log start, local start, last stable, high watermark, log end; the
recovery point lies at or before the end; records below it survive a crash of the machine. Log start
and local start are the same unless the log is tiered: the records between them are only in the
remote tier.

Threads: `append`, `append_many`, `read`, `advance_high_watermark`, `apply_retention`, `install`,
`delete_records_before`, `drop_local_segments`, `roll`, `begin_close` and the plain attributes
belong to one thread, the broker's event loop. `flush`, `purge`, `read_files` and the time lookups
block and may run in a worker thread meanwhile, each under a lease of its own. `open` and `close`
block too.

Life: reading or writing files of a log outside its thread needs a `lease`. `close` refuses new
calls at once (`LogClosed`), and the files are closed when the last lease is released; see
`ottla.log.life`. Each open log has its own `incarnation`, so a worker's result about one log is
never applied to a later log in the same directory.

Durability: `append` returns when the operating system has the bytes. `flush` makes them durable
and says up to which offset; the caller then advances the high watermark and answers. An I/O error
takes the log offline: from then on every call raises StorageFailure, and nothing is retried,
because after a failed sync the content of the disk is unknown.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, Self

from ottla.log import reading
from ottla.log.appending import (
    KEPT_BYTES,
    PATCHED,
    PATCHED_BYTES,
    AppendResult,
    FreshBatches,
    fills_its_memory,
    stamped,
)
from ottla.log.epochs import FILE_NAME as EPOCHS_FILE
from ottla.log.errors import (
    LogError,
    MayNotBeAtHand,
    NotAtHand,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    PolicyViolation,
    StorageFailure,
)
from ottla.log.life import THE_LOG, Leases, Life
from ottla.log.os_storage import OsStorage
from ottla.log.producer_state import Origin
from ottla.log.reading import ReadResult, TimestampOffset
from ottla.log.recovery import LogLoader
from ottla.log.retention import expired_segments
from ottla.log.sealed import NO_DESCRIPTOR, Sealed, shared
from ottla.log.segment import CorruptSegment, newest_time
from ottla.log.segments import Segments
from ottla.log.storage import Directory
from ottla.log.tail import LOG_TAIL_BYTES, Tail, TailCache
from ottla.wire.batch import LENGTH_OVERHEAD, RecordBatch
from ottla.wire.errors import BatchError
from ottla.wire.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ottla.log.compaction import CompactedGroup
    from ottla.log.config import LogConfig
    from ottla.log.index import AbortedTransaction
    from ottla.log.life import Lease
    from ottla.log.producer_state import Producer, SentBatch
    from ottla.log.recovery import LoadedLog
    from ottla.log.retention import Hold
    from ottla.log.segment import FoundBatches, Segment
    from ottla.log.storage import Storage

DELETE_TO_HIGH_WATERMARK: Final = -1
# Up to this size, a last segment without producer state is closed without writing its indexes:
# opening it scans its batches for indexes and leader epochs, which takes less time than reading the
# files. So a broker with thousands of small logs stops and starts without creating four files for
# each. If there is producer state, all files are written: Kafka, which may open the directory next,
# does not scan.
SCANNED_BYTES: Final = 64 * 1024
_incarnations = count(1)


class PartitionLog:
    """See the module's docstring. Make one with `PartitionLog.open`."""

    def __init__(
        self,
        directory: Directory,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        recovery_point: int,
        high_watermark: int,
        log_start_offset: int,
        tail: TailCache,
        sealed: Sealed,
    ) -> None:
        self.storage = directory.storage
        self.directory = directory.path
        self.files = directory  # for holders of a lease; the path may belong to a newer log
        self.config = config
        self._segments = Segments(directory, loaded.segments, sealed)
        self._producers = loaded.producers
        self.epochs = loaded.epochs
        self._last_abort = max(segment.last_abort for segment in loaded.segments)
        self._trusts_maps = True
        self.log_end_offset = loaded.segments[-1].next_offset
        # The oldest part of a tiered log is in the remote tier alone.
        first = 0 if config.remote_storage_enable else loaded.segments[0].base_offset
        self.log_start_offset = min(max(log_start_offset, first), self.log_end_offset)
        self.epochs.truncate_start(self.log_start_offset)  # segments may have gone while closed
        self.recovery_point = min(recovery_point, self.log_end_offset)
        self._journalled = 0  # the journal has all batches below this offset that are not synced
        self.fresh: FreshBatches | None = None  # for a journal, which takes them
        self.high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)
        self._tail = Tail(tail)
        self.incarnation = next(_incarnations)
        self._leases = Leases(directory.path.name, self._segments.close)
        self._failure: BaseException | None = None
        self._usable = True  # open and online: one check for the hottest calls
        self._left = self._closed_cleanly = False
        self._closed_as: tuple[int, int] | None = None  # by the clean close before this opening
        self._flushing = threading.Lock()

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
        tail: TailCache | None = None,
        sealed: Sealed | None = None,
        storage: Storage | None = None,
    ) -> Self:
        """Load or make the log in `directory`. Blocks.

        `clean` says that every file was closed by `close(clean=True)`; the three offsets come from
        the data directory's checkpoints. Logs of one node share a `tail`; logs of one process share
        the cache of `sealed` segments.
        """
        storage = storage or OsStorage()
        sealed = sealed or shared()
        try:
            files = _opened(storage, directory)
            loaded = LogLoader(
                files,
                config,
                now_ms=now_ms,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                sealed=sealed,
            ).load()
        except (OSError, CorruptSegment, BatchError) as error:
            raise StorageFailure(f"log {directory.name} cannot be opened: {error}") from error
        log = cls(
            files,
            config,
            loaded,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            tail=TailCache() if tail is None else tail,
            sealed=sealed,
        )
        if clean and not files.unsynced:
            log._closed_as = log._on_disk
        files.let_go()
        return log

    # What the log is

    @property
    def life(self) -> Life:
        return self._leases.life

    def when_closed(self, call: Callable[[], None]) -> None:
        """Call this once nobody uses the files any more; any thread, in any thread."""
        self._leases.when_closed(call)

    def lease(self) -> Lease:
        """Keep the files open until it is released; LogClosed unless the log is OPEN.

        Any thread. Holding one neither keeps the log from closing nor keeps its directory where it
        is: look at `life` before you change anything by what you found out.
        """
        return self._leases.take()

    @property
    def online(self) -> bool:
        return self._failure is None

    @property
    def is_idle(self) -> bool:
        """Whether no lease is held, all is durable, and no file waits to be unlinked."""
        return self._segments.is_purged and not (self._leases.others or self.unflushed)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one grows. The tuple itself never changes."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def local_start_offset(self) -> int:
        """The first offset that can be read here."""
        return max(self.log_start_offset, self.segments[0].base_offset)

    @property
    def unflushed(self) -> int:
        """Records that a crash of the machine may still take."""
        return self.log_end_offset - self.durable_offset

    @property
    def durable_offset(self) -> int:
        """The offset below which the log's files or the journal are durable."""
        return max(self.recovery_point, self._journalled)

    @property
    def has_new_files(self) -> bool:
        """Whether the next flush has a directory to sync, too, and so takes longer than others."""
        return self._segments.has_new_files

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
        """The state of one producer: the log's own object, so read it at once."""
        return self._producers.get(producer_id)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        return self._producers.expire(now_ms, expiration_ms)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) for OffsetForLeaderEpoch, None if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # Appending

    def append(
        self,
        batch: RecordBatch,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        owned: bool = False,
    ) -> AppendResult:
        """Append one batch that has passed `validate_produce`, or raise why not.

        With `owned` the memory of the batch belongs to the log from now on, so a large one need not
        be copied.
        """
        if not self._usable:
            self._require_usable()
        base = self.log_end_offset
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base)
        tracked = batch.producer_id >= 0
        if tracked and (sent := self._producers.check(batch, origin)) is not None:
            return self._repeated(sent)
        config = self.config
        stamp = NO_TIMESTAMP
        if config.log_append_time:
            stamp = now_ms
            batch = stamped(batch, now_ms)
        size = batch.batch_length + LENGTH_OVERHEAD
        last = base + batch.last_offset_delta
        timestamp = batch.max_timestamp
        segment = self._segments.active
        try:
            if segment.must_roll(config, size, last, timestamp, now_ms):
                self._roll(now_ms)
                segment = self._segments.active
            if tracked and (aborted := self._producers.update(batch, base)) is not None:
                segment.add_aborted(aborted)
                self._last_abort = aborted.last_offset
            patched = PATCHED.pack(base, batch.batch_length, leader_epoch)
            if size > LOG_TAIL_BYTES:
                # A batch that the tail does not keep is not copied either.
                segment.append([patched, batch.data[PATCHED_BYTES:]], size, last, timestamp)
                self._tail.clear()
                if self.fresh is not None:
                    self.fresh.drop()
            else:
                chunk: bytes | memoryview
                if owned and size >= KEPT_BYTES and fills_its_memory(batch.data):
                    chunk = batch.data
                    chunk[:PATCHED_BYTES] = patched
                else:
                    chunk = patched + batch.data[PATCHED_BYTES:]
                segment.append((chunk,), size, last, timestamp)
                self._tail.add(base, chunk)
                if self.fresh is not None:
                    self.fresh.add(chunk, size)
        except OSError as error:
            raise self._fail(error) from error
        self._segments.size_bytes += size
        self.log_end_offset = last + 1
        return AppendResult(base, last, stamp, self.log_start_offset, False)

    def append_many(
        self,
        batches: Sequence[RecordBatch],
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> list[AppendResult | LogError]:
        """Append several batches; a refused one does not affect the others, and the result has its
        error in its place."""
        self._require_usable()
        results: list[AppendResult | LogError] = []
        for batch in batches:
            try:
                result: AppendResult | LogError = self.append(
                    batch, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin
                )
            except LogError as refusal:
                if not self._usable:
                    raise
                result = refusal
            results.append(result)
        return results

    def check_coordinator(self, batch: RecordBatch) -> None:
        """Raise what `append` would refuse a coordinator's batch with, if it would."""
        self._producers.check(batch, Origin.COORDINATOR)

    def _repeated(self, sent: SentBatch) -> AppendResult:
        """The answer to a batch that was appended before."""
        stamp = sent.timestamp if self.config.log_append_time else NO_TIMESTAMP
        return AppendResult(
            sent.base_offset, sent.last_offset, stamp, self.log_start_offset, duplicate=True
        )

    def append_replayed(self, batch: RecordBatch, now_ms: int) -> None:
        """Append a batch of the journal as it is: it was here before a crash took it."""
        self._require_usable()
        assert batch.base_offset == self.log_end_offset
        self.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        last, timestamp = batch.last_offset, newest_time(batch)
        try:
            if self._segments.active.must_roll(self.config, batch.size, last, timestamp, now_ms):
                self._roll(now_ms)
            if batch.producer_id >= 0:
                aborted = self._producers.update(batch, batch.base_offset)
                if aborted is not None:
                    self._segments.active.add_aborted(aborted)
                    self._last_abort = aborted.last_offset
            self._segments.active.append([batch.data], batch.size, last, timestamp)
        except OSError as error:
            raise self._fail(error) from error
        self._segments.size_bytes += batch.size
        self.log_end_offset = last + 1

    def keep_fresh(self, max_bytes: int) -> None:
        """From now on keep appended batches for a journal, as long as they are few."""
        self.fresh = FreshBatches(self.log_end_offset, max_bytes)

    def take_fresh(self) -> FreshBatches:
        """The batches appended since the last call."""
        fresh = self.fresh
        assert fresh is not None
        self.fresh = FreshBatches(self.log_end_offset, fresh.max_bytes)
        return fresh

    def journalled(self, end: int) -> None:
        """A journal has everything from the recovery point, or below it, up to `end`."""
        self._journalled = max(self._journalled, end)

    def _roll(self, now_ms: int) -> None:
        """Begin a new segment at the end. Nothing is synced here; the next flush does that."""
        self._segments.roll(self.log_end_offset, self.config, now_ms, self._producers)

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_message: bool,
        wait: bool = True,
        views: bool = False,
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, all below `upper_bound_offset`.

        They fit in `max_bytes`, except that with `min_one_message` the first one is returned whole
        even if it is larger. If neither the tail cache nor the page cache has them, the call waits
        for the disk; without `wait` it raises NotAtHand: then let a worker call `read_files` first.
        With `views` the bytes are for the kernel alone: nothing else may look at them
        (`ottla.log.mapped`). If that fails call `distrust_maps`.
        """
        self.require_readable(offset, upper_bound_offset)
        if offset >= upper_bound_offset or (max_bytes <= 0 and not min_one_message):
            return ReadResult([], 0)
        chunks: Sequence[bytes | memoryview] | None = self._tail.read(
            offset, max_bytes, upper_bound_offset, at_least_one=min_one_message
        )
        if chunks is not None:
            return ReadResult(chunks, sum(map(len, chunks)))
        from_files = partial(
            self.read_files,
            offset,
            max_bytes,
            upper_bound_offset=upper_bound_offset,
            min_one_message=min_one_message,
            views=views and self._trusts_maps,
        )
        try:
            return from_files(wait=wait)
        except MayNotBeAtHand:
            if not reading.is_recent(self.segments, offset):
                raise
            return from_files()

    def look_up(
        self, offset: int, stop_offset: int, max_bytes: int, *, upper_bound_offset: int
    ) -> FoundBatches | None:
        """The headers of the first batch that `read` gives, and of those after it that begin below
        `stop_offset`, as far as they fit; `bytes_of` then gives what the caller sends of them.

        None if the batches are in memory, small, few, or on disk alone: `read` them.
        """
        self.require_readable(offset, upper_bound_offset)
        if offset >= upper_bound_offset or self._tail.holds(offset):
            return None
        with self.lease():
            try:
                segment = reading.segment_of(self._segments.all, offset)
                return segment.look_up(offset, stop_offset, max_bytes, upper_bound_offset)
            except NotAtHand:
                return None
            except (OSError, CorruptSegment) as error:
                raise self._unreadable(error) from error

    def bytes_of(
        self, found: FoundBatches, start: int, stop: int, *, views: bool
    ) -> Sequence[bytes | memoryview]:
        """Bytes that were found in the same turn, counted from the first batch; `views` as in
        `read`."""
        try:
            return found.segment.stretch(
                found.file,
                found.start + start,
                found.start + stop,
                views=views and self._trusts_maps,
            )
        except (OSError, CorruptSegment) as error:
            raise self._unreadable(error) from error

    def require_readable(self, offset: int, upper_bound_offset: int) -> None:
        """Raise what `read` raises for an offset that is not here."""
        self._require_usable()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}"
            )
        if offset < min(self.segments[0].base_offset, upper_bound_offset):
            raise OffsetMovedToTieredStorage(
                f"offset {offset} is before {self.local_start_offset}, the first on local disk"
            )

    def distrust_maps(self) -> None:
        """From now on read with system calls, which say what is wrong with the files."""
        self._trusts_maps = False

    def read_files(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_message: bool,
        wait: bool = True,
        views: bool = False,
        ahead: int = 0,
    ) -> ReadResult:
        """Like `read`, but from the files alone: for worker threads.

        Nothing comes back for an offset that is not on local disk. The next `ahead` bytes are
        brought into the page cache in the background.
        """
        self._require_usable()
        with self.lease():
            # After the lease: what leaves the log from now on keeps its files until it is released.
            segments = self._segments.all
            if not segments[0].base_offset <= offset < upper_bound_offset:
                return ReadResult([], 0)
            try:
                return reading.read_segments(
                    segments,
                    offset,
                    max_bytes,
                    upper_bound_offset,
                    at_least_one=min_one_message,
                    wait=wait,
                    views=views,
                    ahead=ahead,
                )
            except (OSError, CorruptSegment) as error:
                raise self._unreadable(error) from error

    def may_have_aborted(self, first: int) -> bool:
        """Whether a transaction that touches records from `first` on may have been aborted."""
        return first <= self._last_abort

    def aborted_transactions(
        self, first: int, end: int, *, wait: bool = True
    ) -> list[AbortedTransaction]:
        """Those that touch offsets `first` to `end` (exclusive), ascending by first offset.

        Without `wait`, NotAtHand if an index would have to be read.
        """
        if first > self._last_abort:
            return []
        try:
            return reading.aborted_transactions(self._segments.all, first, end, wait=wait)
        except (OSError, CorruptSegment) as error:
            raise self._unreadable(error) from error

    def aborted_in(
        self, first: int, chunks: Sequence[bytes | memoryview], *, wait: bool = True
    ) -> list[AbortedTransaction]:
        """Those that touch what `read` gave from the offset `first` on."""
        if first > self._last_abort or not chunks:
            return []
        return self.aborted_transactions(first, reading.next_offset(chunks), wait=wait)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record not older than `timestamp`, exact inside its batch. Blocks."""
        self._require_usable()
        with self.lease():
            try:
                return reading.offset_for_timestamp(
                    self._segments.all, timestamp, self.log_start_offset
                )
            except (OSError, CorruptSegment) as error:
                raise self._unreadable(error) from error

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp. Blocks."""
        self._require_usable()
        with self.lease():
            try:
                return reading.max_timestamp_offset(self._segments.all, self.log_start_offset)
            except (OSError, CorruptSegment) as error:
                raise self._unreadable(error) from error

    # Shrinking

    def delete_records_before(self, offset: int) -> int:
        """Move the log start to `offset` (-1 = high watermark); the new log start.

        Nothing is served below it any more; whole segments below it go with `apply_retention`.
        """
        self._require_usable()
        if not self.config.deletes:
            raise PolicyViolation("records of a topic that is only compacted cannot be deleted")
        if offset == DELETE_TO_HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete to {offset}, the high watermark is {self.high_watermark}"
            )
        self.raise_log_start(offset)
        return self.log_start_offset

    def raise_log_start(self, offset: int) -> None:
        """Serve nothing below `offset` any more; a log start never goes back."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_start(offset)

    def apply_retention(
        self, now_ms: int, *, limit: int | None = None, hold: Hold | None = None
    ) -> list[Segment]:
        """Let expired segments go, at most `limit` of them and none that is held; those that went.

        Their files stay until `purge`.
        """
        self._require_usable()
        try:
            count = expired_segments(
                self._segments.all,
                self.config,
                total=self.size_bytes,
                now_ms=now_ms,
                log_start_offset=self.log_start_offset,
                high_watermark=self._may_leave,
                hold=hold,
            )
            if limit is not None:
                count = min(count, limit)
            if count == len(self._segments.all):
                self._roll(now_ms)
        except OSError as error:
            raise self._fail(error) from error
        gone = self.drop_local_segments(count, now_ms)
        if gone:
            self.raise_log_start(self.segments[0].base_offset)
        return gone

    def drop_local_segments(self, count: int, now_ms: int) -> list[Segment]:
        """Let the oldest `count` segments go, never the last; the log start stays where it is."""
        self._require_usable()
        gone = self.segments[: min(count, len(self.segments) - 1)]
        while gone and gone[-1].next_offset > self._may_leave:
            gone = gone[:-1]
        try:
            self._segments.drop(gone, *self._way_out(now_ms))
        except OSError as error:
            raise self._fail(error) from error
        return list(gone)

    def _way_out(self, now_ms: int) -> tuple[int, int]:
        """When files of a segment that leaves now may be unlinked: by time, and by leases."""
        return now_ms + self.config.file_delete_delay_ms, self._leases.last_given

    @property
    def _may_leave(self) -> int:
        """The offset up to which segments may be deleted; journalled batches stay until synced."""
        if self.fresh is None:
            return self.high_watermark
        return min(self.high_watermark, self.recovery_point)

    def roll(self, now_ms: int) -> None:
        """End the active segment, if it holds anything, so that it can leave."""
        self._require_usable()
        try:
            if self._segments.active.size:
                self._roll(now_ms)
        except OSError as error:
            raise self._fail(error) from error

    def install(self, compacted: CompactedGroup, now_ms: int) -> bool:
        """Put a compacted segment in the place of those it was made from; see `Segments.replace`.

        False, and nothing done, if retention has taken one of the old segments meanwhile. On a log
        that is closed nothing is touched: its directory may be another topic's by now.
        """
        self._require_usable()
        try:
            is_done = self._segments.replace(compacted, *self._way_out(now_ms))
        except OSError as error:
            raise self._fail(error) from error
        if is_done:
            self._tail.drop_below(compacted.new.next_offset)
        return is_done

    def purge(self, now_ms: int) -> int:
        """Unlink segments that went file.delete.delay.ms ago; how many. Blocks, any thread.

        Holders of a lease from before a segment was deleted may still read it, so its files stay
        until they are done.
        """
        with self.lease():
            try:
                return self._segments.purge(now_ms, self._leases.oldest_inside)
            except OSError as error:
                raise self._fail(error) from error

    # Durability

    def flush(self) -> int:
        """Make everything appended so far durable; the offset up to which it is. Blocks."""
        self._require_usable()
        with self.lease(), self._flushing:
            end = self._sync_files()
            self.synced(end)
            return end

    def flush_within(self) -> int:
        """`flush` in a block of `Storage.together`: `synced` is to follow it. Blocks."""
        self._require_usable()
        with self.lease(), self._flushing:
            return self._sync_files()

    def synced(self, end: int) -> None:
        """What `flush_within` gave is durable."""
        self.recovery_point = max(self.recovery_point, end)

    def _sync_files(self, *, closing: bool = False) -> int:
        end = self.log_end_offset
        epochs = self.epochs
        exchanged = False
        try:
            # After a crash recovery walks the active segment, which gives its epochs.
            active = self._segments.active
            if epochs.dirty and (closing or epochs.began_before(active.base_offset)):
                epochs.dirty = False
                self.storage.exchange_file(self.files / EPOCHS_FILE, epochs.encode())
                exchanged = True
            self._segments.sync(self.recovery_point, renamed=exchanged)
        except OSError as error:
            raise self._fail(error) from error
        return end

    def advance_high_watermark(self, offset: int) -> int:
        """Let readers see up to `offset`; it never goes back nor past the end. The new value."""
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))
        self._producers.committed(self.high_watermark)
        return self.high_watermark

    def begin_close(self) -> None:
        """Refuse every call and lease from now on; `close` is to follow, in any thread."""
        self._usable = False
        if self._leases.begin_close() and self._leases.others:
            try:
                self.files.hold()
            except OSError:
                self.files.close()  # those inside must not look for it by its path any more
        self._tail.clear()

    def close(self, *, clean: bool = True, within: bool = False) -> bool:
        """Refuse every call, and give the files back when the last lease is released. Blocks.

        With `clean` everything is made durable first. True if `open` may trust the files as they
        are. A log that is offline, or that fails now, gives False: then the data directory must
        not be marked as shut down cleanly. Closing twice changes nothing. To be called in the
        log's thread, or in a worker after `begin_close`. In a block of `Storage.together`
        (`within`), `synced` is to follow it.
        """
        self.begin_close()
        if not self._left:
            self._left = True
            if clean and self.online:
                with suppress(StorageFailure), self._flushing:
                    with suppress(OSError):  # once for all files; then each file separately
                        self.files.hold()
                    end = self._finish()
                    if not within:
                        self.synced(end)
                    self._closed_cleanly = True
            self._leases.leave(THE_LOG)
        return self._closed_cleanly

    @property
    def _on_disk(self) -> tuple[int, int]:
        """What changes when the files do."""
        return self.log_end_offset, self._segments.changes

    def _finish(self) -> int:
        """Write what only a running log keeps in memory, and sync all of it; its end."""
        if self._closed_as == self._on_disk and not self.epochs.dirty:
            return self.log_end_offset  # nothing was written since the files were closed cleanly
        active = self._segments.active
        if active.size <= SCANNED_BYTES and not len(self._producers) and not active.aborted:
            return self._sync_files()
        try:
            self._segments.finish(self.log_end_offset, self._producers)
        except OSError as error:
            raise self._fail(error) from error
        return self._sync_files(closing=True)

    # Failing

    def _require_usable(self) -> None:
        if not self._usable:
            if self._leases.life is not Life.OPEN:
                raise self._leases.closed()
            raise StorageFailure(f"log {self.directory.name} is offline: {self._failure}")

    def take_offline(self, error: Exception) -> None:
        """Take the log offline after a failure elsewhere that may have lost writes."""
        self._fail(error)

    def _unreadable(self, error: OSError | CorruptSegment) -> LogError:
        """The error for a reader whose files could not be read."""
        if self._leases.life is not Life.OPEN:
            return self._leases.closed()  # its files may be deleted: closing does not wait for us
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR:
            # That says nothing about the log: it stays online.
            return StorageFailure(
                f"log {self.directory.name} cannot be read now: {error}; raise the limit of open "
                "files (ulimit -n) or have fewer connections"
            )
        return self._fail(error)

    def _fail(self, error: BaseException) -> StorageFailure:
        """Take the log offline."""
        self._failure = self._failure or error
        self._usable = False
        return StorageFailure(f"log {self.directory.name} went offline: {error}")


def _opened(storage: Storage, path: Path) -> Directory:
    try:
        return Directory(storage, path)
    except FileNotFoundError:
        storage.mkdir(path)
        return Directory(storage, path)
