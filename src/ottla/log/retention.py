"""Which segments may go, and the way out for those that do.

The oldest segments go while one of these holds: the log start has passed them, their newest record
is older than retention.ms, or the log without them still has retention.bytes. Nothing at or past
the high watermark goes, and an empty active segment has nothing to give. A `Hold` keeps what time
and size would take.

A segment is deleted in two steps: its files are renamed to `.<number>.deleted`, which takes it out
of the log; after file.delete.delay.ms they are unlinked, but not while a reader holds the segment.
The number distinguishes segments of one name that compaction has replaced twice.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.recovery import DELETED
from ottla.log.segment import LOG, Segment

if TYPE_CHECKING:
    from ottla.log.config import LogConfig


class Hold(NamedTuple):
    """Records from `offset` on wait for somebody, for as long as there are `size` bytes of them."""

    offset: int
    size: int

    def keeps(self, end: int, left: int) -> bool:
        """Whether a segment stays that ends there and begins the last `left` bytes of the log."""
        return end > self.offset and left <= self.size


def expired_segments(
    segments: tuple[Segment, ...],
    config: LogConfig,
    *,
    total: int,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    hold: Hold | None = None,
) -> int:
    """How many segments may go, counted from the oldest; all of them have `total` bytes."""
    for number, segment in enumerate(segments):
        is_active = number + 1 == len(segments)
        if segment.next_offset > high_watermark or (is_active and segment.size == 0):
            return number
        passed = not is_active and segments[number + 1].base_offset <= log_start_offset
        is_held = hold is not None and hold.keeps(segment.next_offset, total)
        total -= segment.size
        if not passed and (is_held or not _is_over(segment, total, config, now_ms)):
            return number
    return len(segments)


def _is_over(segment: Segment, left: int, config: LogConfig, now_ms: int) -> bool:
    if is_over(config, left=left, age_ms=-1):
        return True
    if not config.deletes or config.retention_ms < 0:
        return False  # the time may be the file's, which has to be looked up
    return is_over(config, left=left, age_ms=now_ms - last_timestamp(segment))


def is_over(config: LogConfig, *, left: int, age_ms: int) -> bool:
    """Whether size or time ask for a segment to go, after which `left` bytes are left."""
    return config.deletes and (
        0 <= config.retention_bytes <= left or 0 <= config.retention_ms < age_ms
    )


def last_timestamp(segment: Segment) -> int:
    """The largest record time; segments without any are as old as their file."""
    if segment.max_timestamp >= 0:
        return segment.max_timestamp
    return segment.storage.mtime_ms(segment.path(LOG))


_discards = count(1)


class _Discarded(NamedTuple):
    segment: Segment
    purge_at_ms: int
    last_lease: int
    """Given before it left the log: until that one and those before it are back, it may be read."""


class SegmentBin:
    """Segments on their way out. `discard` belongs to the log's thread, `purge` to any."""

    def __init__(self) -> None:
        self._discarded: list[_Discarded] = []
        self._last_ms = 0

    def __len__(self) -> int:
        return len(self._discarded)

    def discard(self, segment: Segment, purge_at_ms: int, last_lease: int) -> None:
        """Rename the files out of the log's sight."""
        segment.rename(f".{next(_discards)}{DELETED}")
        # In the order of their time, also when the setting or the clock went back.
        self._last_ms = max(self._last_ms, purge_at_ms)
        self._discarded.append(_Discarded(segment, self._last_ms, last_lease))

    def clear(self) -> None:
        """Forget the files; opening the log again removes them from the disk."""
        for discarded in self._discarded:
            discarded.segment.close()
        self._discarded.clear()

    def purge(self, now_ms: int, oldest_lease: int) -> int:
        """Unlink segments whose delay has passed; return how many. Blocks."""
        purged = 0
        while self._discarded:
            segment, purge_at_ms, last_lease = self._discarded[0]
            if purge_at_ms > now_ms or last_lease >= oldest_lease:
                break
            segment.unlink()
            segment.close()
            del self._discarded[0]
            purged += 1
        return purged
