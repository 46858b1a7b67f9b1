"""The segments of one log: which there are, how one begins, is replaced and leaves.

Beside them are the snapshots of producers, one where each segment begins, which also vouch for the
indexes of the segment before. Nothing here decides: the log says what rolls, goes or is replaced,
and takes itself offline when a call raises OSError.

Threads: as in `ottla.log.partition`. The tuple `all` is replaced, never changed; a thread that
holds the old tuple can go on reading while segments are added and removed.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.log.producer_state import CorruptSnapshot, snapshot_sums, with_sums
from ottla.log.recovery import SWAP
from ottla.log.retention import SegmentBin
from ottla.log.segment import INDEX_SUFFIXES, LOG, SNAPSHOT, Segment, segment_name

if TYPE_CHECKING:
    from ottla.log.compaction import CompactedGroup
    from ottla.log.config import LogConfig
    from ottla.log.index import IndexSums
    from ottla.log.producer_state import ProducerStates
    from ottla.log.sealed import Sealed
    from ottla.log.storage import Directory, Entry

_by_base = attrgetter("base_offset")


class Segments:
    """Oldest first; the last one grows."""

    __slots__ = ("_bin", "_sealed", "_synced", "active", "all", "changes", "files", "size_bytes")

    def __init__(self, files: Directory, loaded: tuple[Segment, ...], sealed: Sealed) -> None:
        self.files = files
        self.all = loaded
        self.active = loaded[-1]
        self.size_bytes = sum(segment.size for segment in loaded)
        self.changes = (
            1  # grows with every file created or renamed, which needs a sync of the directory
        )
        self._synced = 0
        self._bin = SegmentBin()
        self._sealed = sealed

    @property
    def has_new_files(self) -> bool:
        """Whether the directory has changed since its last sync."""
        return self.changes != self._synced

    @property
    def is_purged(self) -> bool:
        """Whether no file waits to be unlinked."""
        return not self._bin

    # Coming

    def roll(self, end: int, config: LogConfig, now_ms: int, producers: ProducerStates) -> None:
        """Begin a new segment at the end. Nothing is synced here."""
        sealed = self.active
        self._put_snapshot(end, producers, sealed.seal())
        self.active = Segment(self.files, end, config, now_ms, sealed=self._sealed)
        self.all = (*self.all, self.active)
        sealed.settle(keep=True)
        self.changes += 1

    def finish(self, end: int, producers: ProducerStates) -> None:
        """Write the state of the last segment that is only in memory."""
        sums: IndexSums | None = self.active.write_indexes()
        if not self.active.size:
            # The snapshot that is here already speaks for the segment before.
            sums = self._sums_at(end)
        self._put_snapshot(end, producers, sums)
        self.changes += 1

    # Going

    def drop(self, gone: tuple[Segment, ...], purge_at_ms: int, last_lease: int) -> None:
        """Let the oldest go. Their files are unlinked by `purge`, their snapshots at once."""
        self.all = self.all[len(gone) :]
        self.size_bytes -= sum(segment.size for segment in gone)
        for segment in gone:
            self._bin.discard(segment, purge_at_ms, last_lease)
            self._drop_snapshot(segment.base_offset)
        self.changes += len(gone)

    def replace(self, compacted: CompactedGroup, purge_at_ms: int, last_lease: int) -> bool:
        """Put a compacted segment in the place of those it was made from.

        Only renames, in an order that a crash may cut anywhere: up to the first one the old
        segments count, from then on the new one. False, and nothing done, if one of the old
        segments has gone meanwhile.
        """
        old, new = compacted.old, compacted.new
        first = bisect_left(self.all, old[0].base_offset, key=_by_base)
        last = first + len(old)
        if self.all[first:last] != old:
            new.unlink()
            new.close()
            return False
        swap = self.files / segment_name(new.base_offset, LOG + SWAP)
        self.files.storage.rename(new.path(LOG), swap)  # without it the old segments stay
        for segment in old:
            self._bin.discard(segment, purge_at_ms, last_lease)
            if segment.base_offset != new.base_offset:
                self._drop_snapshot(segment.base_offset)
        new.move(INDEX_SUFFIXES, "")
        new.suffix = SWAP
        new.rename("")
        self._vouch(self.all[last].base_offset, compacted.sums)
        self.all = (*self.all[:first], new, *self.all[last:])
        self.size_bytes += new.size - sum(segment.size for segment in old)
        self.changes += 1
        return True

    def purge(self, now_ms: int, oldest_lease: int) -> int:
        """Unlink unused segments whose delay has passed; return how many. Blocks."""
        return self._bin.purge(now_ms, oldest_lease)

    def close(self) -> None:
        """Give every descriptor back."""
        for segment in self.all:
            segment.close()
        self._bin.clear()
        self.files.close()

    # Durability

    def sync(self, synced: int, *, renamed: bool) -> None:
        """Sync records past an offset, and the directory if its files changed. Blocks."""
        changes = self.changes
        for segment in reversed(self.all):
            if segment.next_offset <= synced:
                break
            segment.sync()
        self.files.sync_files()
        if renamed or changes != self._synced:
            self.files.storage.fsync_dir(self.files)
            self._synced = changes

    # Snapshots

    def _snapshot(self, offset: int) -> Entry:
        return self.files / segment_name(offset, SNAPSHOT)

    def _put_snapshot(self, offset: int, producers: ProducerStates, sums: IndexSums | None) -> None:
        self.files.put(self._snapshot(offset), producers.encode(sums))

    def _drop_snapshot(self, offset: int) -> None:
        self.files.storage.unlink(self._snapshot(offset))

    def _sums_at(self, offset: int) -> IndexSums | None:
        try:
            return snapshot_sums(self.files.storage.read_file(self._snapshot(offset)))
        except (FileNotFoundError, CorruptSnapshot):
            return None

    def _vouch(self, offset: int, sums: IndexSums) -> None:
        """The segment that ends at an offset has other indexes now."""
        snapshot = self._snapshot(offset)
        with suppress(FileNotFoundError, CorruptSnapshot):
            self.files.put(snapshot, with_sums(self.files.storage.read_file(snapshot), sums))
