"""Compaction: of each key the last record stays, where it was.

In three steps, so that appends never wait:

1. `plan_compaction`, in the log's thread: which closed segments may be cleaned, and a copy of what
   decides about their batches (aborted transactions, live producers).
2. `run_compaction`, in a worker thread: reads the dirty part into a map from key to last offset,
   copies the segments in groups to `.cleaned` files, and makes those durable.
3. `PartitionLog.install`, in the log's thread: swaps each group in by renames. If the log was
   closed meanwhile the result is discarded instead.

All three under one lease of the log.

Offsets never change. The last batch of a group and the last batch of a live producer stay, empty if
need be, so that a group ends where it ended and sequences go on. Tombstones and transaction markers
get a delete horizon at their first compaction and are removed once it has passed; a marker is never
removed before the data of its transaction. A `.swap` file is always complete, and once it exists
the old segments are ignored: a crash leaves the old or the new ones, never both.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.index import AbortedIndex
from ottla.log.reading import aborted_transactions
from ottla.log.recovery import CLEANED
from ottla.log.retention import last_timestamp
from ottla.log.rewrite import rewrite_batch
from ottla.log.segment import INDEX_SUFFIXES, MAX_RELATIVE_OFFSET, Segment, newest_time
from ottla.wire.batch import RecordBatch
from ottla.wire.errors import BatchError
from ottla.wire.records import Record, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.log.config import LogConfig
    from ottla.log.index import AbortedTransaction, IndexSums
    from ottla.log.partition import PartitionLog

MAX_KEYS: Final = 700_000  # about 128 MiB of dict, the size of Kafka's dedupe buffer
_DIGEST_SIZE: Final = 16
_NOTHING: Final = memoryview(b"")
_runs = count(1)


class CompactionPlan(NamedTuple):
    """What `run_compaction` needs to know; nothing in it changes any more."""

    segments: tuple[Segment, ...]
    config: LogConfig
    first_dirty_offset: int
    aborted: list[AbortedTransaction]
    producer_ends: dict[int, int]  # last data offset of each live producer
    now_ms: int
    suffix: str  # of its files, unlike that of any other run


class CompactedGroup(NamedTuple):
    """A new segment, the sums of its indexes, and the segments it replaces."""

    old: tuple[Segment, ...]
    new: Segment
    sums: IndexSums


class CompactionResult(NamedTuple):
    """To be installed group by group; then the first dirty offset belongs in its checkpoint."""

    groups: list[CompactedGroup]
    first_dirty_offset: int

    def discard(self, first: int) -> None:
        """Delete the files from this group on: they are not to be installed. Blocks."""
        for group in self.groups[first:]:
            group.new.unlink()
            group.new.close()


def cleanable_segments(log: PartitionLog, now_ms: int) -> tuple[Segment, ...]:
    """Closed, durable, decided and old enough, from the oldest on."""
    limit = min(log.last_stable_offset, log.recovery_point)
    newest_allowed = now_ms - log.config.min_compaction_lag_ms
    found = []
    for segment in log.segments[:-1]:
        too_young = log.config.min_compaction_lag_ms > 0 and (
            last_timestamp(segment) > newest_allowed
        )
        if segment.next_offset > limit or too_young:
            break
        found.append(segment)
    return tuple(found)


def dirty_ratio(segments: tuple[Segment, ...], first_dirty_offset: int) -> float:
    """How much of the cleanable part has never been compacted; the cleaner takes the largest."""
    total = sum(segment.size for segment in segments)
    dirty = sum(s.size for s in segments if s.next_offset > first_dirty_offset)
    return dirty / total if total else 0.0


def worth_compacting(log: PartitionLog, first_dirty_offset: int, now_ms: int) -> float | None:
    """How dirty the log is, or None if it is not dirty enough to be compacted now."""
    if not log.config.compacts or len(log.segments) == 1:
        return None
    segments = cleanable_segments(log, now_ms)
    dirty = next((s for s in segments if s.next_offset > first_dirty_offset), None)
    if dirty is None:
        return None
    ratio = dirty_ratio(segments, first_dirty_offset)
    overdue = now_ms - dirty.first_timestamp > log.config.max_compaction_lag_ms
    return ratio if ratio >= log.config.min_cleanable_dirty_ratio or overdue else None


def plan_compaction(
    log: PartitionLog, first_dirty_offset: int, now_ms: int
) -> CompactionPlan | None:
    """The next compaction, or None if there is too little. `first_dirty_offset` is checkpointed."""
    if worth_compacting(log, first_dirty_offset, now_ms) is None:
        return None
    segments = cleanable_segments(log, now_ms)
    return CompactionPlan(
        segments,
        log.config,
        max(first_dirty_offset, segments[0].base_offset),
        aborted_transactions(log.segments, segments[0].base_offset, segments[-1].next_offset),
        {producer.producer_id: producer.last_offset for producer in log.producers()},
        now_ms,
        f".{next(_runs)}{CLEANED}",
    )


def run_compaction(plan: CompactionPlan, max_keys: int = MAX_KEYS) -> CompactionResult:
    """Write the compacted segments beside the log. Blocks; for a worker thread."""
    return _Cleaner(plan, max_keys).run()


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_SIZE).digest()


def _batches(segment: Segment, start: int = 0) -> Iterator[RecordBatch]:
    for position, header in segment.headers():
        if header.last_offset >= start:
            yield segment.batch_at(position, header)


class _Cleaner:
    """One run over one log."""

    def __init__(self, plan: CompactionPlan, max_keys: int) -> None:
        self._plan = plan
        self._max_keys = max_keys
        self._last_offsets: dict[bytes, int] = {}
        self._mapped_end = plan.first_dirty_offset
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for entry in plan.aborted:
            self._aborted.setdefault(entry.producer_id, []).append(entry)
        self._open: set[int] = set()  # producers whose transaction has kept records so far
        self._unreadable: set[AbortedTransaction] = set()  # has batches that are kept as they are

    def run(self) -> CompactionResult:
        self._mapped_end = self._map_keys()
        chosen = [s for s in self._plan.segments if s.base_offset < self._mapped_end]
        made: list[Segment] = []
        groups = []
        try:
            for group in self._groups(chosen):
                made.append(self._new_segment(group[0]))
                groups.append(CompactedGroup(group, made[-1], self._copy(group, made[-1])))
        except BaseException:
            for segment in made:
                segment.unlink()
            raise
        return CompactionResult(groups, self._mapped_end)

    def _map_keys(self) -> int:
        """Remember the last offset of each key in the dirty part; the offset where that ends."""
        end = self._plan.first_dirty_offset
        for segment in self._plan.segments:
            if segment.next_offset <= self._plan.first_dirty_offset:
                continue
            for batch in _batches(segment, self._plan.first_dirty_offset):
                if len(self._last_offsets) + batch.record_count > self._max_keys and end > (
                    self._plan.first_dirty_offset
                ):
                    return end
                self._map_batch(batch)
                end = batch.next_offset
            end = segment.next_offset
        return end

    def _map_batch(self, batch: RecordBatch) -> None:
        if batch.is_control or self._aborting(batch) is not None:
            return
        for record in _records(batch) or ():
            if record.key is not None:
                self._last_offsets[_digest(record.key)] = record.offset

    def _aborting(self, batch: RecordBatch) -> AbortedTransaction | None:
        """The aborted transaction that a batch is part of."""
        if not batch.is_transactional:
            return None
        for entry in self._aborted.get(batch.producer_id, ()):
            if entry.first_offset <= batch.base_offset <= entry.last_offset:
                return entry
        return None

    def _is_needed(self, entry: AbortedTransaction) -> bool:
        """Whether the log still has records of the transaction.

        If not, its marker goes as well, some time. A reader that is told of a transaction without
        a marker would skip everything that its producer wrote later.
        """
        return entry.last_offset >= self._mapped_end or entry in self._unreadable

    def _groups(self, segments: list[Segment]) -> Iterator[tuple[Segment, ...]]:
        """Neighbours that together still make one segment."""
        group: list[Segment] = []
        size = 0
        for segment in segments:
            base = group[0].base_offset if group else segment.base_offset
            too_wide = segment.next_offset - 1 - base > MAX_RELATIVE_OFFSET
            if group and (size + segment.size > self._plan.config.segment_bytes or too_wide):
                yield tuple(group)
                group, size = [], 0
            group.append(segment)
            size += segment.size
        yield tuple(group)

    def _new_segment(self, first: Segment) -> Segment:
        new = Segment(
            first.directory,
            first.base_offset,
            self._plan.config,
            first.created_ms,
            suffix=self._plan.suffix,
            sealed=first.shared,
        )
        file = new.file
        first.storage.truncate(file.fd, 0)
        return new

    def _copy(self, group: tuple[Segment, ...], new: Segment) -> IndexSums:
        end = group[-1].next_offset
        for segment in group:
            for batch in _batches(segment):
                data = self._cleaned(batch, must_stay=batch.next_offset == end)
                if data:
                    newest = newest_time(RecordBatch(data))
                    new.append([data], len(data), batch.last_offset, newest)
        new.replace_aborted(
            AbortedIndex(
                entry for segment in group for entry in segment.aborted if self._is_needed(entry)
            )
        )
        sums = new.seal()
        new.sync()
        for kind in INDEX_SUFFIXES:
            new.storage.sync_file(new.path(kind))
        new.settle(keep=False)
        return sums

    def _cleaned(self, batch: RecordBatch, *, must_stay: bool) -> memoryview:
        """What stays of the batch; nothing if all of it goes.

        Past the mapped part all does: a tombstone there must outlive the values before it, which
        only a map that knows of it makes go.
        """
        if batch.base_offset >= self._mapped_end:
            return batch.data
        if batch.is_control:
            return self._cleaned_marker(batch, must_stay=must_stay)
        must_stay = must_stay or self._plan.producer_ends.get(batch.producer_id) == (
            batch.last_offset
        )
        records = _records(batch)
        aborted = self._aborting(batch)
        if records is None:
            # Unreadable records of a client are kept, not dropped, and so is what decided on them.
            if batch.is_transactional:
                self._open.add(batch.producer_id)
            if aborted is not None:
                self._unreadable.add(aborted)
            return batch.data
        horizon = batch.delete_horizon_ms
        keep = [aborted is None and self._stays(record, horizon) for record in records]
        if batch.is_transactional and any(keep):
            self._open.add(batch.producer_id)
        tombstones = any(k and r.value is None for k, r in zip(keep, records, strict=True))
        if tombstones and horizon is None:
            horizon = self._plan.now_ms + self._plan.config.delete_retention_ms
        if all(keep) and horizon == batch.delete_horizon_ms and (records or must_stay):
            return batch.data
        if not any(keep) and not must_stay:
            return _NOTHING
        return rewrite_batch(batch, keep, [record.timestamp for record in records], horizon)

    def _stays(self, record: Record, horizon: int | None) -> bool:
        if record.key is None or record.offset < self._last_offsets.get(_digest(record.key), 0):
            return False
        return record.value is not None or horizon is None or self._plan.now_ms < horizon

    def _cleaned_marker(self, batch: RecordBatch, *, must_stay: bool) -> memoryview:
        """Keep a marker for delete.retention.ms after its data, and a producer's last one."""
        decides = batch.producer_id in self._open
        self._open.discard(batch.producer_id)
        ends_at = self._plan.producer_ends.get(batch.producer_id)
        if decides or must_stay or (ends_at is not None and ends_at < batch.base_offset):
            return batch.data
        horizon = batch.delete_horizon_ms
        if horizon is None:
            times = [record.timestamp for record in iter_records(batch)]
            fresh = self._plan.now_ms + self._plan.config.delete_retention_ms
            return rewrite_batch(batch, [True] * len(times), times, fresh)
        return batch.data if self._plan.now_ms < horizon else _NOTHING


def _records(batch: RecordBatch) -> list[Record] | None:
    try:
        return list(iter_records(batch))
    except BatchError:
        return None
