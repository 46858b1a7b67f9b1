"""From a directory to a log: the clean way, and the way after a crash.

After a clean shutdown indexes and the newest producer snapshot are taken as they are; since Kafka's
snapshot has only the last batch of each producer, the ones before it are looked up in the tail of
the log, so that a batch in flight during a restart is known when it is sent again. After a crash
every segment that ends at or past the recovery point is walked batch by batch; the log is cut after
the last good batch, everything behind it is deleted, and indexes, producer state and leader epochs
are rebuilt from the rest. A crash cannot cause damage below the recovery point: such damage raises
CorruptSegment and nothing is changed. Leftovers of interrupted deletes and compactions are removed
first. Every call here blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.checkpoints import Checkpoint, CorruptCheckpoint
from ottla.log.epochs import FILE_NAME as EPOCHS_FILE
from ottla.log.epochs import LeaderEpochs
from ottla.log.index import AbortedIndex
from ottla.log.producer_state import CorruptSnapshot, ProducerStates, snapshot_sums
from ottla.log.segment import (
    INDEX_SUFFIXES,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TXN_INDEX,
    CorruptSegment,
    Segment,
    segment_name,
)
from ottla.log.storage import TMP_SUFFIX
from ottla.log.walk import recover_segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.log.config import LogConfig
    from ottla.log.index import IndexSums
    from ottla.log.sealed import Sealed
    from ottla.log.storage import Directory, Entry
    from ottla.wire.batch import RecordBatch

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
RECALL_BYTES: Final = 1 << 20  # of each tail: far more than a few producers have in flight
_LEFTOVERS: Final = (DELETED, CLEANED, TMP_SUFFIX)


class LoadedLog(NamedTuple):
    """The loaded state of a log directory."""

    segments: tuple[Segment, ...]
    producers: ProducerStates
    epochs: LeaderEpochs


class LogLoader:
    """One load of one partition directory."""

    def __init__(
        self,
        directory: Directory,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        sealed: Sealed,
    ) -> None:
        self._sealed = sealed
        self._storage = directory.storage
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._clean = clean
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._names = set(self._storage.listdir(directory))
        self._recovered: set[int] = set()  # walked: all that is known of them comes from the walk
        self._unknown: set[int] = set()  # those, and others whose aborted transactions are lost

    def load(self) -> LoadedLog:
        self._finish_swaps()
        self._drop_leftovers()
        segments = self._load_segments()
        self._check_end(segments[-1].next_offset)
        epochs = self._load_epochs()
        # The epochs of walked segments come from their batches: those on disk may be older.
        epochs.truncate_end(min([segments[-1].next_offset, *self._recovered]))
        producers = self._replay(segments, epochs)
        return LoadedLog(tuple(segments), producers, epochs)

    # Leftovers

    def _entry(self, base: int, suffix: str) -> Entry:
        return self._directory / segment_name(base, suffix)

    def _bases(self, suffix: str) -> list[int]:
        return sorted(
            int(name.removesuffix(suffix))
            for name in self._names
            if name.endswith(suffix) and name.removesuffix(suffix).isdecimal()
        )

    def _finish_swaps(self) -> None:
        """A `.swap` file is complete: it replaces the segments whose offsets it covers."""
        for base in self._bases(LOG + SWAP):
            swap = self._entry(base, LOG + SWAP)
            end = self._swap_end(base)
            replaced = [old for old in self._bases(LOG) if base < old < end]
            for old in (base, *replaced):  # of the first one only indexes may be left
                self._unlink_segment(old)
            self._storage.rename(swap, self._entry(base, LOG))
            self._names.discard(swap.name)
            self._names.add(segment_name(base, LOG))
            self._storage.fsync_dir(self._directory)

    def _check_end(self, end: int) -> None:
        """Synced records do not vanish by a crash. New ones must not take their offsets."""
        if end < self._recovery_point:
            raise CorruptSegment(
                f"the log ends at {end}, but its records up to {self._recovery_point} were synced;"
                " restore its segments, or accept the loss by removing the partition's line from"
                f" {Checkpoint.RECOVERY_POINT.value} (and correcting the count in its second line)"
            )

    def _swap_end(self, base: int) -> int:
        segment = Segment(self._directory, base, self._config, self._now_ms, suffix=SWAP)
        file = segment.file
        segment.size = self._storage.size(file.fd)
        end = base
        for _, header in segment.headers():
            end = header.next_offset
        segment.close()
        return end

    def _drop_leftovers(self) -> None:
        for name in sorted(self._names):
            if name.endswith(_LEFTOVERS):
                self._unlink(self._directory / name)
        logs = set(self._bases(LOG))
        for kind in INDEX_SUFFIXES:
            for base in self._bases(kind):
                if base not in logs:
                    self._unlink(self._entry(base, kind))

    def _unlink_segment(self, base: int) -> None:
        for kind in SEGMENT_SUFFIXES:
            self._unlink(self._entry(base, kind))

    def _unlink(self, entry: Entry) -> None:
        if entry.name in self._names:
            self._storage.unlink(entry)
            self._names.discard(entry.name)

    # Segments

    def _load_segments(self) -> list[Segment]:
        bases = self._bases(LOG) or [self._log_start_offset]
        segments: list[Segment] = []
        for base, next_base in zip_longest(bases, bases[1:]):
            segment = Segment(
                self._directory, base, self._config, self._now_ms, sealed=self._sealed
            )
            segments.append(segment)
            if not self._load_segment(segment, next_base):
                self._cut_after(base, bases)
                segment.sealed = False
                segment.cut()
                break
            if next_base is not None:
                segment.settle(keep=False)  # no reader needs it yet
        return segments

    def _cut_after(self, last: int, bases: list[int]) -> None:
        """Newest first, so that a crash leaves no gap; durable, so that none comes back."""
        for base in reversed(bases):
            if base > last:
                self._unlink_segment(base)
        self._storage.fsync_dir(self._directory)

    def _load_segment(self, segment: Segment, next_base: int | None) -> bool:
        """Whether the log goes on after this segment."""
        synced = next_base is not None and next_base < self._recovery_point
        if self._clean or synced:
            try:
                self._load_trusted(segment, next_base)
            except CorruptSegment:
                # No crash does this to synced batches. Cutting here would throw away all that
                # comes after; a person has to decide.
                if synced:
                    raise
            else:
                return True
        self._recovered.add(segment.base_offset)
        self._unknown.add(segment.base_offset)
        self._unlink(segment.path(TXN_INDEX))
        whole = recover_segment(segment)
        if next_base is None:
            return whole
        # A lost tail can end exactly between two batches; only compaction leaves such gaps.
        if not whole or (segment.next_offset != next_base and not self._config.compacts):
            return False
        segment.seal()
        return True

    def _load_trusted(self, segment: Segment, next_base: int | None) -> None:
        """Use those indexes of a segment that match the snapshot at its end."""
        end = next_base
        if end is None:
            end = max(self._bases(SNAPSHOT), default=segment.base_offset)
        sums, is_readable = self._sums_at(end)
        known = segment.load(sealed=next_base is not None, sums=sums)
        if next_base is not None and not segment.size:
            self._check_emptied(segment, next_base, sums)
        if segment.size and not (known and is_readable and end >= segment.next_offset):
            self._unknown.add(segment.base_offset)

    def _check_emptied(self, segment: Segment, end: int, sums: IndexSums | None) -> None:
        """A closed segment has batches. Only Kafka's cleaner leaves empty ones, without entries."""
        had_entries = sums is not None and any(sums[:2])
        if had_entries or not self._config.compacts:
            name = segment_name(segment.base_offset, LOG)
            raise CorruptSegment(
                f"{name} is empty, but had the offsets from {segment.base_offset} to {end - 1};"
                " restore the file, or accept the loss by removing it"
            )

    def _sums_at(self, offset: int) -> tuple[IndexSums | None, bool]:
        """The checksums of the segment before an offset, and whether there is a snapshot."""
        try:
            return snapshot_sums(self._storage.read_file(self._entry(offset, SNAPSHOT))), True
        except (FileNotFoundError, CorruptSnapshot):
            return None, False

    # Epochs and producers

    def _load_epochs(self) -> LeaderEpochs:
        try:
            return LeaderEpochs.decode(self._storage.read_file(self._directory / EPOCHS_FILE))
        except (FileNotFoundError, CorruptCheckpoint):
            return LeaderEpochs()

    def _replay(self, segments: list[Segment], epochs: LeaderEpochs) -> ProducerStates:
        """State from the newest usable snapshot, and the batches after it.

        The snapshot must not be newer than the first segment whose aborted transactions are not
        known: they are found by the same replay.
        """
        end = segments[-1].next_offset
        newest = min([end, *self._unknown])
        start, producers = self._newest_snapshot(newest, segments[0].base_offset)
        keep = {segment.base_offset for segment in segments} | {start}
        for base in self._bases(SNAPSHOT):
            if base > newest or base not in keep:
                self._unlink(self._entry(base, SNAPSHOT))
        rebuild_epochs = not epochs.entries
        before: Segment | None = None
        for segment in segments:
            if segment.base_offset > start:
                sums = before.sums if before is not None else None
                self._directory.put(
                    self._entry(segment.base_offset, SNAPSHOT), producers.encode(sums)
                )
            if segment.next_offset > start or rebuild_epochs:
                self._replay_segment(segment, start, producers, epochs)
            before = segment
        if len(producers):
            for segment in segments[-2:]:
                producers.recall(_tail_headers(segment, start))
        return producers

    def _newest_snapshot(self, limit: int, log_base: int) -> tuple[int, ProducerStates]:
        for base in reversed(self._bases(SNAPSHOT)):
            if base <= limit:
                path = self._entry(base, SNAPSHOT)
                try:
                    return base, ProducerStates.decode(self._storage.read_file(path))
                except CorruptSnapshot:
                    self._unlink(path)
        return log_base, ProducerStates()

    def _replay_segment(
        self, segment: Segment, start: int, producers: ProducerStates, epochs: LeaderEpochs
    ) -> None:
        found = []
        for position, header in segment.headers():
            epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id < 0 or header.base_offset < start:
                continue
            batch = segment.batch_at(position, header) if header.is_control else header
            aborted = producers.update(batch, header.base_offset)
            if aborted is not None:
                found.append(aborted)
        if segment.base_offset in self._unknown:
            segment.replace_aborted(AbortedIndex(found))


def _tail_headers(segment: Segment, end_offset: int) -> Iterator[RecordBatch]:
    """The last batches of a segment below an offset, from a place that its index knows."""
    positions = segment.offset_index.positions
    entry = bisect_right(positions, segment.size - RECALL_BYTES)
    for _, header in segment.headers(positions[entry - 1] if entry else 0):
        if header.base_offset >= end_offset:
            return
        yield header
