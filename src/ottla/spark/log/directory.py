"""The log directory of a broker as a source: `<topic>-<partition>/<base offset>.log`, no broker.

Files are only read, up to the last complete batch. A log begins at the offset in the directory's
checkpoint, or with its first file. The directory may grow meanwhile; records that a broker deletes
before the query has read them are data loss.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.view import NO_LEADER, Partition, Topic, TopicPartition
from ottla.log.checkpoints import Checkpoint, decode_offsets
from ottla.log.directory import KRAFT_LOG, parse_partition_name
from ottla.log.index import CorruptIndex, OffsetIndex
from ottla.log.segment import INDEX, LOG
from ottla.spark.cluster import is_selected
from ottla.spark.errors import BadOption
from ottla.spark.offsets import EARLIEST, LATEST
from ottla.spark.tier.planning import Covered, Piece, cut
from ottla.tier.reader import Split
from ottla.wire.batch import HEADER_SIZE, MAGIC, MIN_BATCH_LENGTH, RecordBatch
from ottla.wire.records import iter_records
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.spark.log.planning import Range
    from ottla.spark.offsets import Offsets
    from ottla.spark.options import Selection
    from ottla.spark.tier.settings import TierSettings

INDEX_INTERVAL: Final = 64 * 1024
_SEGMENT: Final = re.compile(r"\d{20}\.log")


class LogDirectory:
    """Has the methods of a cluster and a planner; not thread-safe."""

    def __init__(self, settings: TierSettings) -> None:
        self._root = Path(settings.location().bucket)
        self._logs: dict[TopicPartition, dict[int, _Segment]] = {}

    def topics(self, selection: Selection) -> dict[str, Topic]:
        """The topics of a query that have a log here."""
        if not self._root.is_dir():
            raise BadOption(
                f"path: {self._root} does not exist; give the data directory of a broker"
            )
        numbers: dict[str, list[int]] = {}
        for path in self._root.iterdir():
            place = parse_partition_name(path.name)
            if place is not None and path.name != KRAFT_LOG and path.is_dir():
                numbers.setdefault(place.topic, []).append(place.partition)
        found = {}
        for name, listed in sorted(numbers.items()):
            partitions = tuple(Partition(one, NO_LEADER, -1, (), (), ()) for one in sorted(listed))
            topic = Topic(name, ZERO_UUID, name.startswith("__"), partitions)
            if is_selected(topic, selection):
                found[name] = topic
        return found

    def offsets(self, at: Mapping[TopicPartition, int]) -> Offsets:
        """The offset at a time in milliseconds, or at an end (-1, -2); -1 where there is none."""
        return {place: self._offset(place, when) for place, when in at.items()}

    def wait_for_more(self, known: Offsets, within: float) -> bool:
        """Files do not notify readers, so there is nothing to wait for."""
        time.sleep(within)
        return True

    def committed(self, group: str) -> Offsets:
        """Groups are kept by brokers."""
        raise BadOption(f"startingOffsets=group:{group} needs a broker: leave store=segments out")

    def commit(self, group: str, offsets: Offsets) -> None:
        """Groups are kept by brokers."""
        raise BadOption(f"offsetsGroup={group} needs a broker: leave store=segments out")

    def close(self) -> None:
        """Does nothing: no file stays open."""

    async def cover(self, ranges: Sequence[Range]) -> Covered:
        """Pieces of files with these offsets; earlier offsets are left over."""
        pieces: list[Piece] = []
        rest: list[Range] = []
        for one in ranges:
            place = TopicPartition(one.topic, one.partition)
            segments = self._segments(place)
            begins = self._log_start(place, segments)
            if one.first < begins:
                rest.append(one._replace(end=min(begins, one.end)))
            reached = max(one.first, begins)
            for at, segment in enumerate(segments):
                is_last = at + 1 == len(segments)
                end = segment.next_offset if is_last else segments[at + 1].base
                first, last = max(reached, segment.base), min(one.end, end) - 1
                if first <= last:
                    segment.prepare()
                    pieces += _pieces(one, segment, first, last)
        return Covered(pieces, rest)

    def _offset(self, place: TopicPartition, when: int) -> int:
        segments = self._segments(place)
        first = self._log_start(place, segments)
        if when == EARLIEST:
            return first
        if when == LATEST:
            return max(first, segments[-1].next_offset) if segments else first
        for segment in segments:
            for offset, timestamp in segment.times(when):
                if timestamp >= when and offset >= first:
                    return offset
        return -1

    def _log_start(self, place: TopicPartition, segments: Sequence[_Segment]) -> int:
        try:
            known = decode_offsets((self._root / Checkpoint.LOG_START.value).read_bytes())
        except FileNotFoundError:
            known = {}
        named = {TopicPartition(*found): offset for found, offset in known.items()}
        return max(named.get(place, 0), segments[0].base if segments else 0)

    def _segments(self, place: TopicPartition) -> list[_Segment]:
        """The files of a log in order, the last one read to where it ends now."""
        known = self._logs.get(place, {})
        directory = self._root / str(place)
        bases = sorted(
            int(one.name.removesuffix(LOG))
            for one in directory.iterdir()
            if _SEGMENT.fullmatch(one.name)
        )
        self._logs[place] = {
            base: known.get(base) or _Segment(directory / f"{base:020d}{LOG}", base)
            for base in bases
        }
        found = list(self._logs[place].values())
        # The previously last file may have grown before the next one started.
        for one in found[-2:]:
            one.walk()
        return found


class _Segment:
    """A file, its index, and how far it is known to hold whole batches."""

    def __init__(self, path: Path, base: int) -> None:
        self.path = path
        self.base = base
        size = path.stat().st_size
        try:
            self.index = OffsetIndex.decode(path.with_suffix(INDEX).read_bytes(), size)
        except (CorruptIndex, FileNotFoundError):  # of a running broker: not truncated yet
            self.index = OffsetIndex()
        # Entries of batches that a crash has cut point past the end.
        while self.index.positions and not any(self._headers(self.index.positions[-1])):
            self.index.positions.pop()
            self.index.offsets.pop()
        self.end = self.index.positions[-1] if self.index.positions else 0
        self.next_offset = base
        self._size = size

    @property
    def size(self) -> int:
        """Bytes that may be read."""
        return max(self.end, self._size)

    def prepare(self) -> None:
        """Build a missing index, so that the file can be read in pieces."""
        if not self.index.positions and not self.end:
            self.walk()

    def walk(self) -> None:
        """Scan new bytes up to the last complete batch."""
        indexed = self.index.positions[-1] if self.index.positions else 0
        for position, header in self._headers(self.end):
            if position - indexed >= INDEX_INTERVAL:
                self.index.append(header.last_offset - self.base, position)
                indexed = position
            self.next_offset = header.next_offset
            self.end = position + header.size
        self._size = self.end

    def times(self, at: int) -> Iterator[tuple[int, int]]:
        """(offset, timestamp) of the records in batches that have one at a time or later."""
        for position, header in self._headers(0):
            if header.max_timestamp >= at and not header.is_control:
                with self.path.open("rb") as file:
                    data = os.pread(file.fileno(), header.size, position)
                for record in iter_records(RecordBatch(memoryview(data))):
                    yield record.offset, record.timestamp

    def _headers(self, position: int) -> Iterator[tuple[int, RecordBatch]]:
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while position + HEADER_SIZE <= size:
                header = RecordBatch(memoryview(os.pread(file.fileno(), HEADER_SIZE, position)))
                if header.magic != MAGIC or header.batch_length < MIN_BATCH_LENGTH:
                    return
                if position + header.size > size:
                    return
                yield position, header
                position += header.size


def _pieces(one: Range, segment: _Segment, first: int, last: int) -> list[Piece]:
    # Compaction leaves gaps at both ends, so neither end is checked.
    whole = Split(
        *(one.topic, one.partition, f"{segment.path.parent.name}/{segment.path.name}", None),
        *(0, segment.size, first, last),
        is_first=False,
        is_last=False,
    )
    return [
        Piece(*one[:3], split.first_offset, split.last_offset + 1, split)
        for split in cut(whole, segment.index, segment.base, segment.size)
    ]
