"""What may leave a closed log, found out from its files and taken without opening it.

Retention must not open an idle log to find that nothing is due, nor to delete expired segments. The
names of the files give the offsets of a segment; its index, with its checksums, gives the time of
its newest record. Two things need an open log: deleting the last segment (another one has to begin
where it ends), and damaged files.

Only for logs that were closed cleanly, so everything in them is committed. The log must not be
opened while a call runs. Every call blocks.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from ottla.log.index import TIME_ENTRY_SIZE, CorruptIndex, TimeIndex
from ottla.log.producer_state import CorruptSnapshot, snapshot_sums
from ottla.log.retention import is_over, last_timestamp
from ottla.log.segment import (
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    newest_time,
    segment_name,
    segment_path,
)
from ottla.log.storage import Directory
from ottla.wire.batch import HEADER_SIZE, RecordBatch

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.config import LogConfig
    from ottla.log.partition import PartitionLog
    from ottla.log.storage import Storage


class ClosedLog(NamedTuple):
    """What retention can delete from a closed log, judged by its files."""

    total: int
    first_size: int
    oldest_ms: int
    """At most the time of the newest record of the first segment: retention.ms counts from it."""
    second_base: int
    """End of the first segment; -1 if it is the only one."""
    dirty: float
    """How much of the closed segments compaction has not seen."""

    def may_shrink(self, config: LogConfig, *, log_start: int, now_ms: int) -> bool:
        """Whether retention may take anything."""
        if not self.total:
            return False
        return 0 <= self.second_base <= log_start or is_over(
            config, left=self.total - self.first_size, age_ms=now_ms - self.oldest_ms
        )

    def may_be_compacted(self, config: LogConfig, now_ms: int) -> bool:
        """Whether it is dirty enough; how old that is only an open log knows."""
        lag = config.max_compaction_lag_ms
        return (
            config.compacts
            and self.dirty > 0
            and (self.dirty >= config.min_cleanable_dirty_ratio or lag < now_ms)
        )


def look_at(directory: Path, first_dirty: int = 0) -> ClosedLog:
    """By the names, and the oldest segment."""
    sizes = _sizes(directory)
    return _seen(sizes, _oldest_ms(directory, min(sizes)) if sizes else 0, first_dirty)


def look_into(log: PartitionLog, first_dirty: int) -> ClosedLog:
    """The same of a log that is open: exact."""
    sizes = {segment.base_offset: segment.size for segment in log.segments}
    return _seen(sizes, last_timestamp(log.segments[0]), first_dirty)


def _seen(sizes: dict[int, int], oldest_ms: int, first_dirty: int) -> ClosedLog:
    bases = sorted(sizes)
    if not bases:
        return ClosedLog(0, 0, 0, -1, 0.0)
    sealed = sum(sizes[base] for base in bases[:-1])
    dirty = sum(sizes[base] for base, end in pairwise(bases) if end > first_dirty)
    return ClosedLog(
        sum(sizes.values()),
        sizes[bases[0]],
        oldest_ms,
        bases[1] if len(bases) > 1 else -1,
        dirty / sealed if sealed else 0.0,
    )


def _sizes(directory: Path) -> dict[int, int]:
    """Of the segments, by their bases."""
    with os.scandir(directory) as entries:
        return {
            int(entry.name.removesuffix(LOG)): entry.stat().st_size
            for entry in entries
            if entry.name.endswith(LOG)
        }


def _oldest_ms(directory: Path, base: int) -> int:
    """The last time in the index, or that of the first batch where the index is behind it."""
    times = -1
    path = segment_path(directory, base, TIME_INDEX)
    if path.exists():
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size // TIME_ENTRY_SIZE - 1) * TIME_ENTRY_SIZE)
            times = max(TimeIndex.decode(file.read(TIME_ENTRY_SIZE)).timestamps, default=-1)
    log = segment_path(directory, base, LOG)
    with log.open("rb") as file:
        header = file.read(HEADER_SIZE)
    if len(header) == HEADER_SIZE:
        times = max(times, newest_time(RecordBatch(memoryview(header))))
    # Without any time a segment is as old as its file.
    return times if times >= 0 else log.stat().st_mtime_ns // 1_000_000


def drop_expired(
    storage: Storage, path: Path, config: LogConfig, *, log_start: int, now_ms: int
) -> int:
    """Remove the segments that retention takes, but never the last; how many."""
    sizes = _sizes(path)
    left = sum(sizes.values())
    gone = 0
    directory = Directory(storage, path)
    try:
        names = set(storage.listdir(directory))
        for base, end in pairwise(sorted(sizes)):
            left -= sizes[base]
            if end > log_start and not _is_over(directory, base, end, config, left, now_ms):
                break
            # The batches first: an index without them is a leftover that goes when it is opened.
            for kind in (*SEGMENT_SUFFIXES, SNAPSHOT):
                if (name := segment_name(base, kind)) in names:
                    storage.unlink(directory / name)
            gone += 1
    finally:
        directory.close()
    return gone


def _is_over(
    directory: Directory, base: int, end: int, config: LogConfig, left: int, now_ms: int
) -> bool:
    if is_over(config, left=left, age_ms=-1):
        return True
    if not config.deletes or config.retention_ms < 0:
        return False
    newest = _newest_ms(directory, base, end)
    return newest is not None and is_over(config, left=left, age_ms=now_ms - newest)


def _newest_ms(directory: Directory, base: int, end: int) -> int | None:
    """Time of the newest record in a sealed segment; None if the files do not show it."""
    try:
        data = directory.storage.read_file(directory / segment_name(base, TIME_INDEX))
        times = TimeIndex.decode(data).timestamps
        sums = snapshot_sums(directory.storage.read_file(directory / segment_name(end, SNAPSHOT)))
    except (FileNotFoundError, CorruptIndex, CorruptSnapshot):
        return None
    if not times or sums is None or crc32c(data) != sums.times:
        return None
    return times[-1]
