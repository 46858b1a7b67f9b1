"""One segment: a `.log` file of batches back to back, and the indexes over it.

A segment is named by its base offset, padded to 20 digits. Only the last segment of a log grows.
`size` and `next_offset` describe the bytes that were written without error; readers, also those in
other threads, never look past them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

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
from ottla.log.storage import File
from ottla.wire.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    RecordBatch,
)
from ottla.wire.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ottla.log.config import LogConfig
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
_MAX_CURSORS: Final = 64  # readers of one segment whose next position is remembered

_DERIVED: Final = (  # what `reset` forgets and the headers tell again
    "offset_index",
    "time_index",
    "next_offset",
    "first_timestamp",
    "max_timestamp",
    "max_timestamp_offset",
    "_last_indexed",
)
_OFFSET_AND_LENGTH = struct.Struct(">qi")


class CorruptSegment(Exception):
    """The batches of a segment that was closed cleanly do not fill its file."""


def newest_time(header: RecordBatch) -> int:
    """The largest timestamp of the batch's records; one that compaction has emptied has none."""
    return header.max_timestamp if header.record_count else NO_TIMESTAMP


def segment_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / segment_name(base_offset, suffix)


class Segment:
    """Bookkeeping of one segment; the partition decides when it grows, rolls and goes."""

    def __init__(
        self,
        directory: Directory,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        suffix: str = "",
    ) -> None:
        self.storage = directory.storage
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.suffix = suffix
        self.sealed = False
        self.file = File(self.storage, self.path(LOG), create=True)
        self._interval = config.index_interval_bytes
        self.aborted = AbortedIndex()
        self.reset()

    def reset(self) -> None:
        """Forget every batch; the file stays as it is."""
        self.size = 0
        self.next_offset = self.base_offset
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.offset_index = OffsetIndex()
        self.time_index = TimeIndex()
        self._last_indexed = 0
        self._cursors: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<Segment {self.base_offset}..{self.next_offset} bytes {self.size}>"

    def path(self, kind: str) -> Entry:
        return self.directory / segment_name(self.base_offset, kind + self.suffix)

    # Growing

    def write(self, chunks: Sequence[Buffer]) -> None:
        """Write after the last byte. `add` then makes the batches visible, one by one."""
        self.storage.write_all(self.file.fd, chunks, self.size)

    def add(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Count the batch of `size` bytes that lies at the end of the segment."""
        position = self.size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        elif position - self._last_indexed > self._interval:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.time_index.maybe_append(
                self.max_timestamp, self.max_timestamp_offset - self.base_offset
            )
            self._last_indexed = position
        self.next_offset = last_offset + 1
        self.size = position + size

    def must_roll(
        self,
        config: LogConfig,
        staged: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
    ) -> bool:
        """Whether a batch belongs in a new segment, after `staged` bytes not yet written."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        used = self.size + staged
        if used and used + size > config.segment_bytes:
            return True
        if self.size == 0:
            return False
        return (
            self.waited_ms(max_timestamp, now_ms) > config.segment_ms
            or len(self.offset_index) >= config.segment_index_bytes // OFFSET_ENTRY_SIZE
            or len(self.time_index) >= config.segment_index_bytes // TIME_ENTRY_SIZE - 1
        )

    def waited_ms(self, timestamp: int, now_ms: int) -> int:
        """Age by record time when the records have one, else by the clock."""
        if self.first_timestamp >= 0 and timestamp >= 0:
            return timestamp - self.first_timestamp
        return now_ms - self.created_ms

    def seal(self) -> IndexSums:
        """End the time index with the largest timestamp; no batch is added any more."""
        self._end_time_index()
        self.sealed = True
        return self.write_indexes()

    def _end_time_index(self) -> None:
        self.time_index.maybe_append(
            self.max_timestamp, self.max_timestamp_offset - self.base_offset
        )

    def write_indexes(self) -> IndexSums:
        """The directory remembers that they are not durable yet."""
        put = self.directory.put
        offsets, times, aborted = self._encoded()
        put(self.path(INDEX), offsets)
        put(self.path(TIME_INDEX), times)
        if aborted:
            put(self.path(TXN_INDEX), aborted)
        else:
            self.storage.unlink(self.path(TXN_INDEX))
        return IndexSums(crc32c(offsets), crc32c(times), crc32c(aborted))

    def sums(self) -> IndexSums:
        """Of the indexes as they are in memory."""
        return IndexSums(*map(crc32c, self._encoded()))

    def _encoded(self) -> tuple[bytes, bytes, bytes]:
        return self.offset_index.encode(), self.time_index.encode(), encode_aborted(self.aborted)

    def sync(self) -> None:
        """Blocks until the batches are durable."""
        self.storage.fdatasync(self.file.fd)

    def cut(self) -> None:
        """Cut the file after the last counted batch, durably: what is written there next must
        never be mixed with the old bytes. Blocks."""
        self.storage.truncate(self.file.fd, self.size)
        self.storage.fdatasync(self.file.fd)

    # Reading

    def headers(
        self, position: int = 0, *, chunk_size: int = _SCAN_CHUNK
    ) -> Iterator[tuple[int, RecordBatch]]:
        """The batches from `position` on, headers only: their `data` ends after 61 bytes."""
        end = self.size
        chunk = memoryview(b"")
        chunk_start = position
        while position < end:
            start = position - chunk_start
            if start + HEADER_SIZE > len(chunk):
                size = min(chunk_size, end - position)
                chunk = memoryview(self.storage.pread(self.file.fd, size, position))
                chunk_start, start = position, 0
                if len(chunk) < HEADER_SIZE:
                    raise CorruptSegment(f"{len(chunk)} bytes left at position {position}")
            header = RecordBatch(chunk[start : start + HEADER_SIZE])
            if header.magic != MAGIC or header.batch_length < MIN_BATCH_LENGTH:
                raise CorruptSegment(f"no batch at position {position}")
            yield position, header
            position += header.size

    def batch_at(self, position: int, header: RecordBatch) -> RecordBatch:
        """The whole batch of a header that `headers` gave."""
        return RecordBatch(memoryview(self.storage.pread(self.file.fd, header.size, position)))

    def locate(self, offset: int) -> int | None:
        """Position of the first batch that ends at or after `offset`."""
        position = self._cursors.get(offset)
        if position is None:
            position = self._indexed_position(offset)
        for found, header in self.headers(position, chunk_size=_SEARCH_CHUNK):
            if header.last_offset >= offset:
                return found
        return None

    def _indexed_position(self, offset: int) -> int:
        index = self.offset_index
        entry = index.last_at_or_below(offset - self.base_offset)
        if entry < 0:
            return 0
        if not self._entry_holds(index, entry):
            rebuilt = self._rebuilt()
            index = rebuilt.offset_index
            entry = index.last_at_or_below(offset - self.base_offset)
            if self.size == rebuilt.size:
                self.offset_index = index
        return index.positions[entry] if entry >= 0 else 0

    def _entry_holds(self, index: OffsetIndex, entry: int) -> bool:
        """Whether the batch that an entry names is there: bit rot must not mislead a reader."""
        try:
            _, header = next(self.headers(index.positions[entry], chunk_size=HEADER_SIZE))
        except (CorruptSegment, StopIteration):
            return False
        return header.last_offset - self.base_offset == index.offsets[entry]

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool
    ) -> tuple[bytes | memoryview, bool]:
        """Whole batches from the one that holds `offset`, all of them below `upper_bound`.

        The flag says that the segment was read to its end, so that the next one may follow.
        """
        end = self.size
        start = self.locate(offset)
        if start is None:
            return b"", True
        data = self.storage.pread(self.file.fd, min(max_bytes, end - start), start)
        size = self._whole_batches(data, start, end, upper_bound)
        if size == 0 and at_least_one:
            _, first = next(self.headers(start, chunk_size=HEADER_SIZE))
            if first.base_offset < upper_bound:
                data = self.storage.pread(self.file.fd, first.size, start)
                size = first.size
        whole = data if size == len(data) else memoryview(data)[:size]
        return whole, start + size == end

    def _whole_batches(self, data: bytes, start: int, end: int, upper_bound: int) -> int:
        """How many bytes of `data` are batches that end in it and start below the bound."""
        if start + len(data) == end and upper_bound >= self.next_offset:
            return len(data)
        index = self.offset_index
        entry = min(
            bisect_right(index.positions, start + len(data)),
            bisect_left(index.offsets, min(upper_bound - self.base_offset, MAX_RELATIVE_OFFSET)),
        )
        position = max(0, index.positions[entry - 1] - start) if entry else 0
        while position + LENGTH_OVERHEAD <= len(data):
            base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, position)
            following = position + length + LENGTH_OVERHEAD
            if base_offset >= upper_bound or following > len(data):
                self._remember(base_offset, start + position)
                break
            position = following
        return position

    def _remember(self, offset: int, position: int) -> None:
        """A reader that goes on from here needs no search."""
        if len(self._cursors) >= _MAX_CURSORS:
            self._cursors.clear()
        self._cursors[offset] = position

    # Loading

    def load(self, *, sealed: bool, sums: IndexSums | None) -> bool:
        """Trust a file that was closed cleanly or synced: read its indexes, scan its last stretch.

        Offset and time index are rebuilt if they are missing, are not those that `sums` were taken
        of, or cannot be right; CorruptSegment if the batches themselves do not add up. False if the
        aborted transactions are not known: only a replay of the segment finds them.
        """
        size = self.storage.size(self.file.fd)
        self.sealed = sealed
        known = self._load_aborted(sums)
        try:
            self._load_indexes(size, sums)
        except (CorruptIndex, CorruptSegment, FileNotFoundError):
            self.size = size
            self._take(self._rebuilt())
            if sealed:
                self.seal()
        return known

    def _load_aborted(self, sums: IndexSums | None) -> bool:
        try:
            data = self.storage.read_file(self.path(TXN_INDEX))
        except FileNotFoundError:
            data = b""
        self.aborted = AbortedIndex()
        if sums is not None and crc32c(data) != sums.aborted:
            return False
        try:
            self.aborted = AbortedIndex(decode_aborted(data))
        except CorruptIndex:
            return False
        return True

    def _load_indexes(self, size: int, sums: IndexSums | None) -> None:
        offsets = self.storage.read_file(self.path(INDEX))
        times = self.storage.read_file(self.path(TIME_INDEX))
        if sums is not None and (crc32c(offsets), crc32c(times)) != sums[:2]:
            raise CorruptIndex("these are not the indexes that were written")
        self.reset()
        self.offset_index = OffsetIndex.decode(offsets, size)
        self.time_index = TimeIndex.decode(times)
        self.size = size
        for _, first in self.headers(chunk_size=HEADER_SIZE):
            self.first_timestamp = newest_time(first)
            break
        if self.time_index:
            self.max_timestamp = self.time_index.timestamps[-1]
            self.max_timestamp_offset = self.base_offset + self.time_index.offsets[-1]
        self._last_indexed = self.offset_index.positions[-1] if self.offset_index else 0
        if self.offset_index and not self._entry_holds(self.offset_index, -1):
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
        timeless = self.first_timestamp >= 0 and not self.time_index
        if self.sealed and timeless:
            raise CorruptIndex("time entries are missing")
        if end != size or self.max_timestamp_offset >= self.next_offset:
            raise CorruptSegment(f"batches end at {end}, the file at {size}")

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
            raise CorruptSegment("the last batch does not end with the file")
        return copied

    def _take(self, other: Segment) -> None:
        """Become what `_rebuilt` gave."""
        for name in _DERIVED:
            setattr(self, name, getattr(other, name))

    # Going away

    def rename(self, suffix: str) -> None:
        """Give every file of the segment another suffix; open descriptors stay valid."""
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
