"""One segment: a `.log` file of batches back to back, and the indexes over it.

A segment is named by its base offset, padded to 20 digits. Only the last segment of a log grows.
`size` and `next_offset` describe the bytes that were written without error; readers, also those in
other threads, never look past them.

A segment that grows, or is being loaded, holds its own descriptor and indexes. Once it is sealed it
settles: from then on it keeps a few numbers, and the rest is loaded through `ottla.log.sealed`
while it is used. Reloaded indexes are compared with their checksums, and the file with the one that
was sealed, because another file may have its name by then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from ottla.log.errors import MayNotBeAtHand, NotAtHand
from ottla.log.index import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    AbortedIndex,
    CorruptIndex,
    IndexSums,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
    encode_aborted,
)
from ottla.log.mapped import MIN_VIEW_BYTES, views, windows
from ottla.log.sealed import Sealed, shared
from ottla.log.storage import File, without
from ottla.wire.batch import (
    HEADER_SIZE,
    MAGIC,
    MIN_BATCH_LENGTH,
    RecordBatch,
)
from ottla.wire.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ottla.log.config import LogConfig
    from ottla.log.index import AbortedTransaction
    from ottla.log.storage import Buffer, Directory, Entry

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
INDEX_SUFFIXES: Final = (INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_SUFFIXES: Final = (LOG, *INDEX_SUFFIXES)

MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF  # index entries hold offsets as int32 from the base
_SEARCH_CHUNK: Final = 8192  # an index interval and the batch after it, in most logs
_SCAN_CHUNK: Final = 1 << 16
# To go from header to header costs a system call for each batch, as much as copying some KiB.
HOP_BYTES: Final = 8192
_MAX_CURSORS: Final = 64  # readers of one segment whose next position is remembered

_DERIVED: Final = (  # what `reset` forgets and the headers tell again
    "_offsets",
    "_times",
    "next_offset",
    "first_timestamp",
    "max_timestamp",
    "max_timestamp_offset",
    "_last_indexed",
)
NO_SUMS: Final = IndexSums(0, 0, 0)


class CorruptSegment(Exception):
    """The file of a segment is damaged; the message names it."""


def newest_time(header: RecordBatch) -> int:
    """The largest timestamp of the batch's records; one that compaction has emptied has none."""
    return header.max_timestamp if header.record_count else NO_TIMESTAMP


def segment_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / segment_name(base_offset, suffix)


class FoundBatches(NamedTuple):
    """Batches that lie back to back from a position of a segment on, to be read or not.

    To be used in the same turn: the segment may leave the log.
    """

    segment: Segment
    file: File
    start: int
    headers: list[RecordBatch]


class Segment:
    """Bookkeeping of one segment; the partition decides when it grows, rolls and goes."""

    __slots__ = (
        "_aborted",
        "_cursors",
        "_identity",
        "_interval",
        "_last_indexed",
        "_moving_to",
        "_offsets",
        "_own",
        "_sums",
        "_times",
        "base_offset",
        "created_ms",
        "directory",
        "first_timestamp",
        "last_abort",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "sealed",
        "shared",
        "size",
        "storage",
        "suffix",
    )

    def __init__(
        self,
        directory: Directory,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        suffix: str = "",
        sealed: Sealed | None = None,
    ) -> None:
        self.storage = directory.storage
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.suffix = self._moving_to = suffix
        self.sealed = False
        self.shared = sealed or shared()
        self._own: File | None = File(self.storage, self.path(LOG), create=True)
        self._identity = -1
        self._interval = config.index_interval_bytes
        self._sums = NO_SUMS
        self._aborted: AbortedIndex | None = AbortedIndex()
        self.last_abort = -1
        """Offset of the last marker that aborts a transaction, -1 if there is none."""
        self.reset()

    def reset(self) -> None:
        """Forget every batch; the file stays as it is."""
        self.size = 0
        self.next_offset = self.base_offset
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self._offsets: OffsetIndex | None = OffsetIndex()
        self._times: TimeIndex | None = TimeIndex()
        self._last_indexed = 0
        self._cursors: dict[int, int] | None = None

    def __repr__(self) -> str:
        return f"<Segment {self.base_offset}..{self.next_offset} bytes {self.size}>"

    def path(self, kind: str) -> Entry:
        return self.directory / segment_name(self.base_offset, kind + self.suffix)

    def _corrupt(self, what: str) -> CorruptSegment:
        path = self.path(LOG)
        return CorruptSegment(f"{path.parent.path.name}/{path.name}: {what}")

    # Files and indexes

    @property
    def file(self) -> File:
        """The file; it stays open while a reference to it is held."""
        own = self._own
        return own if own is not None else self.shared.file(self, self._reopen)

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offsets
        if index is None:
            index = self.shared.indexes.get(self)
        return self._load_offsets() if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        index = self._times
        if index is None:
            index = self.shared.indexes.get((self, TIME_INDEX))
        return self._load_times() if index is None else index

    @property
    def aborted(self) -> AbortedIndex:
        index = self._aborted
        if index is None:
            if self.last_abort < 0:
                return AbortedIndex()
            index = self.shared.indexes.get((self, TXN_INDEX))
        return self._load_aborted() if index is None else index

    def settle(self, *, keep: bool) -> None:
        """Be sealed, loaded or written: let go of the descriptor and the indexes.

        With `keep` they stay until others are used more: it has just been written to.
        """
        if self._own is None:
            return
        self._identity = self.storage.identity(self._own.fd)
        if keep:
            self.shared.files.put(self, self._own, 1)
            for key, index in (
                (self, self._offsets),
                ((self, TIME_INDEX), self._times),
                ((self, TXN_INDEX), self._aborted),
            ):
                if index:
                    self.shared.keep_index(key, index)
        # Readers in other threads check this first, so it is set last.
        self._own = self._offsets = self._times = self._aborted = None

    def close(self) -> None:
        """Close the descriptor; the segment is not used any more."""
        if self._own is not None:
            self._own.close()
        else:
            self.shared.files.drop(self)
            for key in (self, (self, TIME_INDEX), (self, TXN_INDEX)):
                self.shared.indexes.drop(key)
        for window in windows(self, self.size):
            self.shared.maps.drop(window)

    def _names(self, kind: str) -> Iterator[Entry]:
        """Where a file of the segment is; the second one, if it is just being renamed."""
        yield self.path(kind)
        yield self.directory / segment_name(self.base_offset, kind + self._moving_to)

    def _reopen(self) -> File:
        for name in self._names(LOG):
            with suppress(FileNotFoundError):
                file = File(self.storage, name)
                if self.storage.identity(file.fd) == self._identity:
                    return file
        raise self._corrupt("the file was removed or replaced")

    def _written(self, kind: str, crc: int) -> bytes | None:
        """The content of an index file; None if its checksum does not match."""
        if not crc:
            return b""  # without entries there need not be a file
        for name in self._names(kind):
            with suppress(FileNotFoundError):
                data = self.storage.read_file(name)
                if crc32c(data) == crc:
                    return data
        return None

    def _load_offsets(self) -> OffsetIndex:
        data = self._written(INDEX, self._sums.offsets)
        index = self._rebuilt().offset_index if data is None else OffsetIndex.take(data)
        self.shared.keep_index(self, index)
        return index

    def _load_times(self) -> TimeIndex:
        data = self._written(TIME_INDEX, self._sums.times)
        if data is None:
            rebuilt = self._rebuilt()
            rebuilt._note_time()
            index = rebuilt.time_index
        else:
            index = TimeIndex.take(data)
        self.shared.keep_index((self, TIME_INDEX), index)
        return index

    def _load_aborted(self) -> AbortedIndex:
        """Without the producers' state before the segment it cannot be told from the batches."""
        data = self._written(TXN_INDEX, self._sums.aborted)
        if not data:
            raise self._corrupt(
                f"its {TXN_INDEX} does not match its checksum; opening the log rebuilds it"
            )
        index = AbortedIndex(decode_aborted(data))
        self.shared.keep_index((self, TXN_INDEX), index)
        return index

    # Growing

    def append(
        self, chunks: Sequence[Buffer], size: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Write a batch of `size` bytes after the last byte, and count it."""
        file = self._own or self.file
        position = self.size
        written = self.storage.pwritev(file.fd, chunks, position)
        if written != size:
            self.storage.write_all(file.fd, without(chunks, written), position + written)
        self.add(size, last_offset, max_timestamp)

    def add(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Count the batch of `size` bytes that lies at the end of the segment."""
        position = self.size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        elif position - self._last_indexed > self._interval:
            base = self.base_offset
            self.offset_index.append(last_offset - base, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset - base)
            self._last_indexed = position
        self.next_offset = last_offset + 1
        self.size = position + size

    def must_roll(
        self,
        config: LogConfig,
        size: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
    ) -> bool:
        """Whether a batch belongs in a new segment."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        used = self.size
        if used == 0:
            return False
        if used + size > config.segment_bytes:
            return True
        if self.waited_ms(max_timestamp, now_ms) > config.segment_ms:
            return True
        offsets, times = self._offsets, self._times
        assert offsets is not None, "only a segment that grows is asked"
        assert times is not None
        room = config.segment_index_bytes
        return (
            len(offsets.offsets) >= room // OFFSET_ENTRY_SIZE
            or len(times.timestamps) >= room // TIME_ENTRY_SIZE - 1
        )

    def waited_ms(self, timestamp: int, now_ms: int) -> int:
        """Age by record time when the records have one, else by the clock."""
        if self.first_timestamp >= 0 and timestamp >= 0:
            return timestamp - self.first_timestamp
        return now_ms - self.created_ms

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Of a transaction whose marker is in this segment."""
        self.aborted.append(entry)
        self.last_abort = entry.last_offset

    def seal(self) -> IndexSums:
        """End the time index with the largest timestamp; no batch is added any more."""
        self._note_time()
        self.sealed = True
        return self.write_indexes()

    def _note_time(self) -> None:
        self.time_index.maybe_append(
            self.max_timestamp, self.max_timestamp_offset - self.base_offset
        )

    def write_indexes(self) -> IndexSums:
        """The directory remembers that they are not durable yet."""
        offsets, times = self.offset_index.encode(), self.time_index.encode()
        self.directory.put(self.path(INDEX), offsets)
        self.directory.put(self.path(TIME_INDEX), times)
        aborted = self._write_aborted(self.aborted)
        self._sums = IndexSums(crc32c(offsets), crc32c(times), aborted)
        return self._sums

    def _write_aborted(self, aborted: AbortedIndex) -> int:
        """The checksum of the written index."""
        data = encode_aborted(aborted)
        if data:
            self.directory.put(self.path(TXN_INDEX), data)
        else:
            self.storage.unlink(self.path(TXN_INDEX))
        return crc32c(data)

    def replace_aborted(self, aborted: AbortedIndex) -> None:
        """Another list than the one that was loaded: of a segment that grows, or on disk, too."""
        self.last_abort = aborted.last_marker
        if self._aborted is not None:
            self._aborted = aborted
        else:
            self.shared.keep_index((self, TXN_INDEX), aborted)
        if self.sealed:
            self._sums = self._sums._replace(aborted=self._write_aborted(aborted))

    @property
    def sums(self) -> IndexSums:
        """Of the index files of a sealed segment, as they were written."""
        return self._sums

    def sync(self) -> None:
        """Blocks until the batches are durable."""
        file = self.file
        self.storage.fdatasync(file.fd)

    def cut(self) -> None:
        """Cut the file after the last counted batch, durably: the next batch written there must
        never mix with the old bytes. Blocks."""
        file = self.file
        self.storage.truncate(file.fd, self.size)
        self.storage.fdatasync(file.fd)

    # Reading

    def headers(
        self, position: int = 0, *, chunk_size: int = _SCAN_CHUNK, file: File | None = None
    ) -> Iterator[tuple[int, RecordBatch]]:
        """The batches from `position` on, headers only: their `data` ends after 61 bytes."""
        file = file or self.file
        end = self.size
        chunk = memoryview(b"")
        chunk_start = position
        while position < end:
            start = position - chunk_start
            if start + HEADER_SIZE > len(chunk):
                size = min(chunk_size, end - position)
                chunk = memoryview(self.storage.pread(file.fd, size, position))
                chunk_start, start = position, 0
                if len(chunk) < HEADER_SIZE:
                    raise self._corrupt(f"{len(chunk)} bytes left at position {position}")
            header = RecordBatch(chunk[start : start + HEADER_SIZE])
            if header.magic != MAGIC or header.batch_length < MIN_BATCH_LENGTH:
                raise self._corrupt(f"no batch at position {position}")
            yield position, header
            position += header.size

    def batch_at(self, position: int, header: RecordBatch) -> RecordBatch:
        """The whole batch of a header that `headers` gave."""
        file = self.file
        return RecordBatch(memoryview(self.storage.pread(file.fd, header.size, position)))

    def locate(self, offset: int, file: File | None = None) -> int | None:
        """Position of the first batch that ends at or after `offset`."""
        file = file or self.file
        cursors = self._cursors
        position = None if cursors is None else cursors.get(offset)
        if position is None:
            relative = offset - self.base_offset
            position = self._indexed_position(file, lambda index: index.last_at_or_below(relative))
        for found, header in self.headers(position, chunk_size=_SEARCH_CHUNK, file=file):
            if header.last_offset >= offset:
                return found
        return None

    def _indexed_position(self, file: File, find: Callable[[OffsetIndex], int]) -> int:
        """The position of the index entry whose number `find` tells."""
        index = self._offsets
        if index is None:
            index = self.offset_index
        entry = find(index)
        if entry < 0:
            return 0
        if not self._entry_holds(index, entry, file):
            rebuilt = self._rebuilt()
            index = rebuilt.offset_index
            entry = find(index)
            if self._offsets is None:
                self.shared.keep_index(self, index)
            elif self.size == rebuilt.size:
                self._offsets = index
        return index.positions[entry] if entry >= 0 else 0

    def _entry_holds(self, index: OffsetIndex, entry: int, file: File) -> bool:
        """Whether the batch of an index entry exists: bit rot must not mislead a reader."""
        position = index.positions[entry]
        try:
            _, header = next(self.headers(position, chunk_size=HEADER_SIZE, file=file))
        except (CorruptSegment, StopIteration):
            return False
        return header.last_offset - self.base_offset == index.offsets[entry]

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper_bound: int,
        *,
        at_least_one: bool,
        wait: bool = True,
        views: bool = False,
        ahead: int = 0,
    ) -> tuple[Sequence[bytes | memoryview], int, bool]:
        """Whole batches from the one that holds `offset`, all of them below `upper_bound`.

        Their bytes, how many these are, and whether the segment was read to its end, so that the
        next one may follow. Without `wait`, NotAtHand if the disk would be waited for. With `views`
        they may be views of mapped memory (`ottla.log.mapped`). The next `ahead` bytes are brought
        into the page cache in the background.
        """
        # One stretch of headers more: they tell where the last batch ends.
        wanted = max(0, max_bytes) + _SEARCH_CHUNK
        looked = None if wait else self._require_at_hand(offset, wanted)
        # One look-up more than for a segment that grows.
        file = self._own or self.shared.files.get(self) or self.file
        end = self.size
        start = self.locate(offset, file)
        if start is None:
            return (), 0, True
        if start != looked:
            self._require_cached(file, start, min(wanted, end - start), wait=wait)
        stop = self._stop(file, start, min(start + max_bytes, end), end, upper_bound)
        if stop == start and at_least_one:
            _, first = next(self.headers(start, chunk_size=HEADER_SIZE, file=file))
            if first.base_offset < upper_bound:
                stop = start + first.size
                if stop > end:
                    raise self._corrupt(f"the batch at {start} ends at {stop}, the last at {end}")
                self._require_cached(file, start, first.size, wait=wait)
        size = stop - start
        if not size:
            return (), 0, start == end
        found = self.stretch(file, start, stop, views=views)
        if ahead and stop < end:
            self.storage.will_need(file.fd, stop, min(ahead, end - stop))
        return found, size, stop == end

    def stretch(
        self, file: File, start: int, stop: int, *, views: bool
    ) -> Sequence[bytes | memoryview]:
        """The bytes between two positions; `views`: see `read`."""
        size, end = stop - start, self.size
        if views and size >= MIN_VIEW_BYTES:
            mapped = self._views(file, start, stop, end)
            if mapped is not None:
                return mapped
        data = self.storage.pread(file.fd, size, start)
        if len(data) < size:
            raise self._corrupt(f"it ends at {start + len(data)}, batches at {end}")
        return (data,)

    def _views(self, file: File, start: int, stop: int, end: int) -> list[memoryview] | None:
        grows = not self.sealed
        return views(self.shared.maps, self, self.storage, file.fd, start, stop, end, grows=grows)

    def look_up(
        self, offset: int, stop_offset: int, max_bytes: int, upper_bound: int
    ) -> FoundBatches | None:
        """The batches that `read` gives, by their headers, without waiting for the disk.

        The first in any case, and those after it that begin below `stop_offset`, up to the first
        batch of less than `HOP_BYTES`. None if these are too few bytes for views: to read more than
        is needed, and to keep the rest, costs less then.
        """
        wanted = max_bytes + _SEARCH_CHUNK
        looked = self._require_at_hand(offset, wanted)
        file = self._own or self.shared.files.get(self) or self.file
        start = self.locate(offset, file)
        if start is None:
            return None
        end, limit = start, start + max_bytes
        if start != looked:
            self._require_cached(file, start, min(wanted, self.size - start), wait=False)
        headers: list[RecordBatch] = []
        for position, header in self.headers(start, chunk_size=HEADER_SIZE, file=file):
            stop = position + header.size
            if headers and (header.base_offset >= stop_offset or stop > limit):
                break
            if header.base_offset >= upper_bound or header.size < HOP_BYTES:
                break
            if stop > self.size:
                raise self._corrupt(f"the batch at {start} ends at {stop}, the last at {self.size}")
            if stop > limit:
                self._require_cached(file, start, header.size, wait=False)
            headers.append(header)
            end = stop
            if header.next_offset >= stop_offset or end >= limit:
                break
        if end - start < MIN_VIEW_BYTES:
            return None
        self._remember(headers[-1].next_offset, end)
        return FoundBatches(self, file, start, headers)

    @property
    def has_aborted_at_hand(self) -> bool:
        """Whether `aborted` would not wait for the disk."""
        return (
            self._aborted is not None
            or self.last_abort < 0
            or self.shared.indexes.get((self, TXN_INDEX)) is not None
        )

    def _require_at_hand(self, offset: int, wanted: int) -> int | None:
        """NotAtHand unless what `locate` looks at is in memory: file, index and headers.

        If an earlier reader has left the place of `offset`, that is told, and so many bytes from
        there on are in memory.
        """
        file = self._own or self.shared.files.get(self)
        index = self._offsets
        if index is None:
            index = self.shared.indexes.get(self)
        if file is None or index is None:
            raise NotAtHand(f"{self!r} is on disk alone")
        cursors = self._cursors
        place = None if cursors is None else cursors.get(offset)
        if place is not None:
            self._require_cached(file, place, min(wanted, self.size - place), wait=False)
            return place
        entry = index.last_at_or_below(offset - self.base_offset)
        start = index.positions[entry] if entry >= 0 else 0
        self._require_cached(file, start, min(_SEARCH_CHUNK, self.size - start), wait=False)
        return None

    def _require_cached(self, file: File, start: int, size: int, *, wait: bool) -> None:
        if wait:
            return
        cached = self.storage.is_cached(file.fd, start, size)
        if not cached:
            error = MayNotBeAtHand if cached is None else NotAtHand
            raise error(f"bytes {start} to {start + size} of {self!r} are on disk alone")

    def _stop(self, file: File, start: int, limit: int, end: int, upper_bound: int) -> int:
        """Where the last of the batches from `start` on ends that is whole up to `limit`.

        All of them begin below the bound. `end` is that of the segment.
        """
        if limit == end and upper_bound >= self.next_offset:
            return end
        bound = min(upper_bound - self.base_offset, MAX_RELATIVE_OFFSET)

        def last_of(index: OffsetIndex) -> int:
            within = bisect_right(index.positions, limit)
            return min(within, bisect_left(index.offsets, bound)) - 1

        position = max(start, self._indexed_position(file, last_of))
        for found, header in self.headers(position, chunk_size=_SEARCH_CHUNK, file=file):
            if header.base_offset >= upper_bound or found + header.size > limit:
                self._remember(header.base_offset, found)
                return found
        return end

    def _remember(self, offset: int, position: int) -> None:
        """A reader that goes on from here needs no search."""
        cursors = self._cursors
        if cursors is None or len(cursors) >= _MAX_CURSORS:
            cursors = self._cursors = {}
        cursors[offset] = position

    # Loading

    def load(self, *, sealed: bool, sums: IndexSums | None) -> bool:
        """Trust a file that was closed cleanly or synced: read its indexes, scan its last stretch.

        Offset and time index are rebuilt if they are missing, are not those that `sums` were taken
        of, or cannot be right; CorruptSegment if the batches themselves do not add up. False if the
        aborted transactions are not known: only a replay of the segment finds them.
        """
        file = self.file
        size = self.storage.size(file.fd)
        self.sealed = sealed
        known = self._read_aborted(sums)
        try:
            self._read_indexes(size, sums)
        except (CorruptIndex, CorruptSegment, FileNotFoundError):
            self.size = size
            self._take(self._rebuilt())
            if sealed:
                self.seal()
        return known

    def _read_aborted(self, sums: IndexSums | None) -> bool:
        try:
            data = self.storage.read_file(self.path(TXN_INDEX))
        except FileNotFoundError:
            data = b""
        self._aborted = AbortedIndex()
        self.last_abort = -1
        found = crc32c(data)
        self._sums = IndexSums(0, 0, found)
        if sums is not None and found != sums.aborted:
            return False
        try:
            self._aborted = AbortedIndex(decode_aborted(data))
        except CorruptIndex:
            return False
        self.last_abort = self._aborted.last_marker
        return True

    def _read_indexes(self, size: int, sums: IndexSums | None) -> None:
        offsets = self.storage.read_file(self.path(INDEX))
        times = self.storage.read_file(self.path(TIME_INDEX))
        found = IndexSums(crc32c(offsets), crc32c(times), self._sums.aborted)
        if sums is not None and found[:2] != sums[:2]:
            raise CorruptIndex("the indexes do not match their checksums")
        self._sums = found
        self.reset()
        self._offsets = index = OffsetIndex.decode(offsets, size)
        self._times = newest = TimeIndex.decode(times)
        self.size = size
        for _, first in self.headers(chunk_size=HEADER_SIZE):
            self.first_timestamp = newest_time(first)
            break
        if newest:
            self.max_timestamp = newest.timestamps[-1]
            self.max_timestamp_offset = self.base_offset + newest.offsets[-1]
        self._last_indexed = index.positions[-1] if index else 0
        if index and not self._entry_holds(index, -1, self.file):
            raise CorruptIndex("the last offset entry names no batch")
        end = self._last_indexed
        for position, header in self.headers(self._last_indexed):
            if position - self._last_indexed > self._interval:
                raise CorruptIndex("offset entries are missing at the end")
            self.next_offset = header.next_offset
            if newest_time(header) > self.max_timestamp:
                self.max_timestamp = newest_time(header)
                self.max_timestamp_offset = header.last_offset
            end = position + header.size
        timeless = self.first_timestamp >= 0 and not newest
        if self.sealed and timeless:
            raise CorruptIndex("time entries are missing")
        if end != size or self.max_timestamp_offset >= self.next_offset:
            raise self._corrupt(f"batches end at {end}, the file at {size}")

    def _rebuilt(self) -> Segment:
        """This segment with offset and time index derived from the headers. Blocks on reading.

        Another object: a reader in a worker thread must not take the indexes from others.
        """
        size = self.size
        copied = copy(self)
        copied.reset()
        for _, header in self.headers():
            copied.add(header.size, header.last_offset, newest_time(header))
        if copied.size != size:
            raise self._corrupt("the last batch does not end with the file")
        return copied

    def _take(self, other: Segment) -> None:
        """Become what `_rebuilt` gave."""
        for name in _DERIVED:
            setattr(self, name, getattr(other, name))

    # Going away

    def rename(self, suffix: str) -> None:
        """Give every file of the segment another suffix; open descriptors stay valid."""
        self._moving_to = suffix
        self.move(SEGMENT_SUFFIXES, suffix)
        self.suffix = suffix

    def move(self, kinds: tuple[str, ...], suffix: str) -> None:
        """Rename the files of these kinds, as far as they exist."""
        for kind in kinds:
            with suppress(FileNotFoundError):
                target = self.directory / segment_name(self.base_offset, kind + suffix)
                self.storage.rename(self.path(kind), target)

    def unlink(self) -> None:
        for kind in SEGMENT_SUFFIXES:
            self.storage.unlink(self.path(kind))
