"""One partition's log: append, read, flush, and the offsets that describe it.

Threads: `append`, `append_many`, `read`, `advance_high_watermark`, `apply_retention`, `install`,
`delete_records_before`, `drop_local_segments`, `roll` and the plain attributes belong to one
thread, the broker's event loop. `flush`, `purge` and the time lookups block and may run in a worker
thread meanwhile; at most one `flush` of a log at a time. `open` and `close` block too.

Durability: `append` returns when the operating system has the bytes. `flush` makes them durable
and says up to which offset; the caller then advances the high watermark and answers. An I/O error
takes the log offline: from then on every call raises StorageFailure, and nothing is retried,
because after a failed sync nobody knows what the disk holds.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log import reading
from ottla.log.errors import (
    LogError,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    PolicyViolation,
)
from ottla.log.producer_state import Origin
from ottla.log.reading import ReadResult, TimestampOffset
from ottla.log.recovery import SWAP
from ottla.log.retention import expired_segments
from ottla.log.segment import (
    INDEX_SUFFIXES,
    LOG,
    SNAPSHOT,
    CorruptSegment,
    Segment,
    segment_path,
)
from ottla.log.state import LogState
from ottla.wire.batch import LENGTH_OVERHEAD, RecordBatch
from ottla.wire.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.compaction import CompactedGroup
    from ottla.log.index import AbortedTransaction

_PATCHED = struct.Struct(">qii")  # base offset, length, leader epoch: what precedes the magic
DELETE_TO_HIGH_WATERMARK: Final = -1
_by_base = attrgetter("base_offset")


class AppendResult(NamedTuple):
    """What Produce answers for one batch."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class _Staged(NamedTuple):
    """A batch on its way to the file."""

    chunk: bytes
    base_offset: int
    last_offset: int
    max_timestamp: int


class PartitionLog(LogState):
    """See the module's docstring. Make one with `PartitionLog.open`."""

    # Appending

    def append(
        self,
        batch: RecordBatch,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Append one batch that has passed `validate_produce`, or raise why not."""
        (result,) = self.append_many(
            (batch,), leader_epoch=leader_epoch, now_ms=now_ms, origin=origin
        )
        if isinstance(result, LogError):
            raise result
        return result

    def append_many(
        self,
        batches: Sequence[RecordBatch],
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> list[AppendResult | LogError]:
        """Append batches of independent requests with one system call.

        A refused batch does not affect the others; its error stands in its place.
        """
        self._require_online()
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, self.log_end_offset)
        config = self.config
        results: list[AppendResult | LogError] = []
        staged: list[_Staged] = []
        staged_bytes = 0
        end = self.log_end_offset
        try:
            for batch in batches:
                tracked = batch.producer_id >= 0
                if tracked and (settled := self._settle(batch, origin)) is not None:
                    results.append(settled)
                    continue
                if config.log_append_time:
                    batch = _stamped(batch, now_ms)  # noqa: PLW2901
                size = batch.batch_length + LENGTH_OVERHEAD
                last = end + batch.last_offset_delta
                timestamp = batch.max_timestamp
                if self._active.must_roll(config, staged_bytes, size, last, timestamp, now_ms):
                    self._write(staged)
                    staged, staged_bytes = [], 0
                    self._roll(now_ms)
                if tracked and (aborted := self._producers.update(batch, end)) is not None:
                    self._active.aborted.append(aborted)
                chunk = _PATCHED.pack(end, batch.batch_length, leader_epoch) + batch.data[16:]
                staged.append(_Staged(chunk, end, last, timestamp))
                staged_bytes += size
                stamp = now_ms if config.log_append_time else NO_TIMESTAMP
                results.append(AppendResult(end, last, stamp, self.log_start_offset, False))
                end = last + 1
            self._write(staged)
        except OSError as error:
            raise self._fail(error) from error
        return results

    def check_coordinator(self, batch: RecordBatch) -> None:
        """Raise what `append` would refuse a coordinator's batch with, if it would."""
        self._producers.check(batch, Origin.COORDINATOR)

    def _settle(self, batch: RecordBatch, origin: Origin) -> AppendResult | LogError | None:
        """The answer to a batch that is not to be appended."""
        try:
            sent = self._producers.check(batch, origin)
        except LogError as refusal:
            return refusal
        if sent is None:
            return None
        stamp = sent.timestamp if self.config.log_append_time else NO_TIMESTAMP
        return AppendResult(
            sent.base_offset, sent.last_offset, stamp, self.log_start_offset, duplicate=True
        )

    def _write(self, staged: list[_Staged]) -> None:
        if not staged:
            return
        segment = self._active
        segment.write([entry.chunk for entry in staged])
        for chunk, base, last, timestamp in staged:
            segment.add(len(chunk), last, timestamp)
            self._tail.add(base, chunk)
        self.log_end_offset = staged[-1].last_offset + 1

    def _roll(self, now_ms: int) -> None:
        """Begin a new segment at the end. Nothing is synced here; the next flush does that."""
        self._active.seal()
        end = self.log_end_offset
        snapshot = segment_path(self.directory, end, SNAPSHOT)
        self.storage.write_file(snapshot, self._producers.encode())
        self._active = Segment(self.storage, self.directory, end, self.config, now_ms)
        self._segments = (*self._segments, self._active)
        self._directory_changes += 1

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_message: bool,
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, all below `upper_bound_offset`.

        They fit in `max_bytes`, except that with `min_one_message` the first one comes whole
        whatever its size. Blocks on a file read when the tail cache does not hold the offset.
        """
        self._require_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}"
            )
        if offset >= upper_bound_offset:
            return ReadResult([], 0)
        if offset < self._segments[0].base_offset:
            raise OffsetMovedToTieredStorage(
                f"offset {offset} is before {self.local_start_offset}, the first on local disk"
            )
        chunks: Sequence[bytes | memoryview] | None = self._tail.read(
            offset, max_bytes, upper_bound_offset, at_least_one=min_one_message
        )
        if chunks is None:
            try:
                chunks = reading.read_segments(
                    self._segments,
                    offset,
                    max_bytes,
                    upper_bound_offset,
                    at_least_one=min_one_message,
                )
            except (OSError, CorruptSegment) as error:
                raise self._fail(error) from error
        return ReadResult(chunks, sum(map(len, chunks)))

    def aborted_transactions(self, first: int, end: int) -> list[AbortedTransaction]:
        """Those that touch offsets `first` to `end` (exclusive), ascending by first offset."""
        return reading.aborted_transactions(self._segments, first, end)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record not older than `timestamp`, exact inside its batch. Blocks."""
        self._require_online()
        try:
            return reading.offset_for_timestamp(self._segments, timestamp, self.log_start_offset)
        except (OSError, CorruptSegment) as error:
            raise self._fail(error) from error

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp. Blocks."""
        self._require_online()
        try:
            return reading.max_timestamp_offset(self._segments, self.log_start_offset)
        except (OSError, CorruptSegment) as error:
            raise self._fail(error) from error

    # Shrinking

    def delete_records_before(self, offset: int) -> int:
        """Move the log start to `offset` (-1 = high watermark); the new log start.

        Nothing is served below it any more; whole segments below it go with `apply_retention`.
        """
        self._require_online()
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

    def apply_retention(self, now_ms: int) -> list[Segment]:
        """Let expired segments go; those that went. Their files stay until `purge`."""
        self._require_online()
        try:
            count = expired_segments(
                self._segments,
                self.config,
                now_ms=now_ms,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
            )
            if count == len(self._segments):
                self._roll(now_ms)
        except OSError as error:
            raise self._fail(error) from error
        gone = self.drop_local_segments(count, now_ms)
        if gone:
            self.raise_log_start(self._segments[0].base_offset)
        return gone

    def drop_local_segments(self, count: int, now_ms: int) -> list[Segment]:
        """Let the oldest `count` segments go, never the last; the log start stays where it is."""
        self._require_online()
        gone = self._segments[: min(count, len(self._segments) - 1)]
        self._segments = self._segments[len(gone) :]
        try:
            for segment in gone:
                self._bin.discard(segment, now_ms, self.config.file_delete_delay_ms)
                self._drop_snapshot(segment.base_offset)
        except OSError as error:
            raise self._fail(error) from error
        self._directory_changes += len(gone)
        return list(gone)

    def roll(self, now_ms: int) -> None:
        """End the active segment, if it holds anything, so that it can leave."""
        self._require_online()
        try:
            if self._active.size:
                self._roll(now_ms)
        except OSError as error:
            raise self._fail(error) from error

    def _drop_snapshot(self, offset: int) -> None:
        self.storage.unlink(segment_path(self.directory, offset, SNAPSHOT))

    def install(self, compacted: CompactedGroup, now_ms: int) -> bool:
        """Put a compacted segment in the place of those it was made from.

        Only renames, in an order that a crash may cut anywhere: up to the first one the old
        segments count, from then on the new one. False, and nothing done, if retention has taken
        one of the old segments meanwhile.
        """
        self._require_online()
        first = bisect_left(self._segments, compacted.old[0].base_offset, key=_by_base)
        last = first + len(compacted.old)
        new = compacted.new
        try:
            if self._segments[first:last] != compacted.old:
                new.unlink()
                return False
            new.move((LOG,), SWAP)
            for segment in compacted.old:
                self._bin.discard(segment, now_ms, self.config.file_delete_delay_ms)
                if segment.base_offset != new.base_offset:
                    self._drop_snapshot(segment.base_offset)
            new.move(INDEX_SUFFIXES, "")
            new.suffix = SWAP
            new.rename("")
        except OSError as error:
            raise self._fail(error) from error
        self._segments = (*self._segments[:first], new, *self._segments[last:])
        self._tail.drop_below(new.next_offset)
        self._directory_changes += 1
        return True

    def purge(self, now_ms: int) -> int:
        """Unlink segments that went file.delete.delay.ms ago; how many. Blocks, any thread."""
        try:
            return self._bin.purge(now_ms)
        except OSError as error:
            raise self._fail(error) from error


def _stamped(batch: RecordBatch, now_ms: int) -> RecordBatch:
    """A copy of the batch that carries the broker's time."""
    copy = RecordBatch(memoryview(bytearray(batch.data)))
    copy.set_max_timestamp(now_ms, log_append_time=True)
    return copy
