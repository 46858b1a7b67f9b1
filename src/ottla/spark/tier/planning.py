"""Which bytes of which objects hold the ranges of a batch. Runs in the driver's source process.

Rules:

- Pieces have exact offsets, so that one whose object is gone can be read from the broker instead.
  They are cut where the segment's index has entries; the batch at a cut is read by both sides.
- Offsets that the tier does not have, before or after the pieces, are left to the live log.
- So is a range that is too small. The store is not asked about a range that starts where the tier
  ended recently, as in a query that keeps up.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.log.index import CorruptIndex, OffsetIndex
from ottla.objects.errors import RemoteNotFound
from ottla.spark.tier.settings import store_of
from ottla.tier.catalogue.segments import MAX_SEGMENT_SIZE, TopicIdPartition
from ottla.tier.reader import OffsetsExpired, RemoteReader, Split
from ottla.tier.reader.sources import Found
from ottla.tier.store.layout import META_SUFFIX, Section, partition_prefix
from ottla.tier.store.ranges import byte_range
from ottla.tier.store.storage_manager import RemoteStorageManager

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.spark.client_settings import Isolation
    from ottla.spark.log.planning import Range
    from ottla.spark.tier.settings import TierSettings
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata
    from ottla.tier.reader import PlannedSegment

PIECE_BYTES: Final = 8 * 1024 * 1024
"""Bytes that are read and decoded at once; a worker holds a few such pieces."""

TASK_BYTES: Final = 256 * 1024 * 1024
"""Most bytes in one task: each task has a cost, and a larger task needs no more memory."""

MIN_TASK_BYTES: Final = 64 * 1024 * 1024
LOOK_AGAIN: Final = 60.0  # seconds until the store is asked again about offsets it did not have
REQUESTS_IN_FLIGHT: Final = 16


class Piece(NamedTuple):
    """Offsets from `first` up to `end`, and the bytes of an object that hold them."""

    topic: str
    topic_id: bytes | None
    partition: int
    first: int
    end: int
    split: Split

    @property
    def size(self) -> int:
        """How many offsets; some may have no record."""
        return self.end - self.first


class Covered(NamedTuple):
    """A range split into pieces of objects and the rest."""

    pieces: list[Piece]
    rest: list[Range]


class Manifests:
    """A source of segments that reads each manifest once."""

    def __init__(self, storage: RemoteStorageManager) -> None:
        self._storage = storage
        self._known: dict[tuple[UUID, int], dict[str, RemoteLogSegmentMetadata]] = {}
        self._turn = asyncio.Semaphore(REQUESTS_IN_FLIGHT)

    async def find(self, topic: str, partition: int, topic_id: UUID | None) -> Found:
        """The manifests of the last `refresh` of this partition."""
        assert topic_id is not None
        tip = TopicIdPartition(topic_id, topic, partition)
        found = self._known.get(tip.identity, {}).values()
        # Of two copies of one range the later one counts, as in the metadata topic.
        return Found(tip, sorted(found, key=lambda one: (one.event_timestamp_ms, one.id.id)))

    async def refresh(self, tip: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        """The segments that are in the store now."""
        prefix = partition_prefix(self._storage.prefix, tip)
        listed = [
            one.key
            async for one in self._storage.store.list(prefix)
            if one.key.endswith(META_SUFFIX)
        ]
        known = self._known.get(tip.identity, {})
        read = await asyncio.gather(*(self._read(key) for key in listed if key not in known))
        known = {key: known[key] for key in listed if key in known}
        known |= {key: found for key, found in read if found is not None}
        self._known[tip.identity] = known
        return list(known.values())

    async def _read(self, key: str) -> tuple[str, RemoteLogSegmentMetadata | None]:
        async with self._turn:
            try:
                return key, (await self._storage.fetch_manifest(key)).metadata
            except RemoteNotFound:  # retention deleted it meanwhile
                return key, None


class TierPlanner:
    """Plans with one store; caches its manifests."""

    def __init__(self, settings: TierSettings, isolation: Isolation) -> None:
        self._settings = settings
        self._isolation = isolation
        self.storage = RemoteStorageManager(store_of(settings), settings.location().prefix, "")
        self.manifests = Manifests(self.storage)
        self.reader = RemoteReader(self.storage, self.manifests)
        self._turn = asyncio.Semaphore(REQUESTS_IN_FLIGHT)
        self._ends: dict[tuple[UUID, int], tuple[int, float]] = {}

    async def cover(self, ranges: Sequence[Range]) -> Covered:
        """All the ranges."""
        found = await asyncio.gather(*(self._cover(one) for one in ranges))
        return Covered(
            [piece for one in found for piece in one.pieces],
            [left for one in found for left in one.rest],
        )

    async def _cover(self, one: Range) -> Covered:
        nothing = Covered([], [one])
        if one.topic_id is None:
            return nothing
        tip = TopicIdPartition(UUID(bytes=one.topic_id), one.topic, one.partition)
        end, seen = self._ends.get(tip.identity, (0, -LOOK_AGAIN))
        if one.first >= end and time.monotonic() - seen < LOOK_AGAIN:
            return nothing
        segments = await self.manifests.refresh(tip)
        end = max((segment.end_offset + 1 for segment in segments), default=0)
        self._ends[tip.identity] = end, time.monotonic()
        if self._settings.mode == "auto" and estimate(segments, one) < self._settings.min_bytes:
            return nothing
        first = max(one.first, min((segment.start_offset for segment in segments), default=end))
        if first >= min(end, one.end):
            return nothing
        try:
            plan = await self.reader.plan(
                *(one.topic, one.partition),
                start_offset=first,
                end_offset=one.end,
                topic_id=tip.topic_id,
                isolation_level=self._isolation,
                split_bytes=MAX_SEGMENT_SIZE,  # one split per object; divided below
            )
        except OffsetsExpired:
            return nothing
        cut = await asyncio.gather(*map(self._cut, plan.segments, plan.splits))
        pieces = [
            Piece(*one[:3], split.first_offset, split.last_offset + 1, split)
            for splits in cut
            for split in splits
        ]
        edges = (one._replace(end=first), one._replace(first=max(plan.end_offset, first)))
        return Covered(pieces, [left for left in edges if left.size > 0])

    async def _cut(self, segment: PlannedSegment, split: Split) -> list[Split]:
        if split.end - split.start <= PIECE_BYTES + PIECE_BYTES // 2:
            return [split]
        async with self._turn:
            sections = await self.storage.fetch_indexes(segment.metadata, (Section.OFFSET,))
        try:
            index = OffsetIndex.decode(bytes(sections.get(Section.OFFSET, b"")), segment.size)
        except CorruptIndex:
            return [split]
        return cut(split, index, segment.metadata.start_offset, segment.size)


def cut(split: Split, index: OffsetIndex, base: int, size: int) -> list[Split]:
    """A split in pieces of about `PIECE_BYTES`, none with an offset of another."""
    found = []
    start, end = byte_range(index, base, split.first_offset, split.last_offset, size)
    split = split._replace(start=max(start, split.start), end=min(end, split.end))
    start = split.start
    while split.end - start > PIECE_BYTES + PIECE_BYTES // 2:
        at = bisect_left(index.positions, start + PIECE_BYTES)
        if at == len(index) or index.positions[at] >= split.end:
            break
        last = base + index.offsets[at]
        if last >= split.last_offset:
            break
        found.append(_part(split, index, base, size, last))
        split = split._replace(first_offset=last + 1)
        start = index.positions[at]
    return [*found, _part(split, index, base, size, split.last_offset)]


def _part(split: Split, index: OffsetIndex, base: int, size: int, last: int) -> Split:
    first = split.first_offset
    start, end = byte_range(index, base, first, last, size)
    # An abort counts where its transaction touches these offsets.
    aborted = tuple(one for one in split.aborted if one[1] <= last and one[2] >= first)
    return split._replace(start=start, end=min(end, split.end), last_offset=last, aborted=aborted)


def estimate(segments: Iterable[RemoteLogSegmentMetadata], one: Range) -> int:
    """About how many bytes of a range are in these segments."""
    total = 0
    for segment in segments:
        shared = min(one.end, segment.end_offset + 1) - max(one.first, segment.start_offset)
        if shared > 0:
            whole = segment.end_offset + 1 - segment.start_offset
            total += segment.segment_size * shared // whole
    return total


def packed(pieces: Sequence[Piece], min_tasks: int | None) -> list[tuple[Piece, ...]]:
    """Pack pieces in order: one task per partition, within the limits of tasks.

    `min_tasks` makes them smaller than any limit.
    """
    sizes = [piece.split.end - piece.split.start for piece in pieces]
    total, partitions = sum(sizes), len({piece[:3] for piece in pieces})
    most = min(TASK_BYTES, max(MIN_TASK_BYTES, total // max(partitions, 1) + PIECE_BYTES))
    most = min(most, total // (min_tasks or 1))
    tasks: list[list[Piece]] = []
    room = 0
    for piece, size in zip(pieces, sizes, strict=True):
        if not tasks or size > room:
            tasks.append([])
            room = most
        tasks[-1].append(piece)
        room -= size
    return [tuple(task) for task in tasks]
