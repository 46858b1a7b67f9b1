"""Segments in chunks, checked once and kept a while, for readers that go on where they ended.

- A chunk is the bytes between two entries of the offset index, about `CHUNK_BYTES` apart: whole
  batches. They are found and checked once; what a fetch gets is a slice of the chunk.
- Nothing is read ahead for a single read. A reader that continues where an earlier read ended gets
  the chunk around that offset, and the next chunks are requested meanwhile.
- Chunks take up to `max_bytes`, including those being read. A chunk that was read to its end is
  dropped at once, an unused one after `MAX_AGE_MS`; no chunk evicts another one before that. If
  there is no space, nothing is read ahead, and readers read directly.
- A damaged chunk is dropped, and the reader reads directly: it reports the fault, or returns the
  undamaged batches.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.tier.errors import CorruptRemoteData
from ottla.tier.reading.batches import checked
from ottla.tier.store.ranges import ByteRange
from ottla.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar
    from uuid import UUID

    from ottla.log.index import OffsetIndex
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata, TopicIdPartition
    from ottla.tier.reading.batches import Batches, Records, Wanted
    from ottla.tier.reading.index_cache import RemoteIndexCache
    from ottla.tier.store.storage_manager import RemoteStorageManager

    T = TypeVar("T")

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Large enough that a request to the store costs little, small enough for many readers at once."""

MAX_CHUNK_BYTES: Final = 2 * CHUNK_BYTES  # of a sparse index; larger ones are not read ahead
CHUNKS_AHEAD: Final = 2  # one arrives while one is sent; another for a store that is slow at times
MAX_AGE_MS: Final = 30_000
MAX_ENDS: Final = 1024  # of reads, that are remembered: an offset and a partition each


def chunk_at(index: OffsetIndex, size: int, position: int) -> ByteRange:
    """The chunk with the batch at `position`, which is an entry of the index or 0. Pure."""
    number, positions = position // CHUNK_BYTES, index.positions
    start = positions[bisect_left(positions, number * CHUNK_BYTES)] if number else 0
    following = bisect_left(positions, (number + 1) * CHUNK_BYTES)
    return ByteRange(start, positions[following] if following < len(positions) else size)


def places_of(
    index: OffsetIndex, segment: RemoteLogSegmentMetadata, offset: int
) -> list[ByteRange]:
    """The chunks that may hold a batch: it lies between two entries of the index. Pure.

    The later one comes first: a batch that an entry was written for is found by the entry before,
    and a reader that has read a chunk to its end must not be led back into it.
    """
    at = index.last_at_or_below(offset - segment.start_offset)
    positions = [index.positions[at] if at >= 0 else 0, *index.positions[at + 1 : at + 2]]
    places = [chunk_at(index, segment.segment_size, one) for one in reversed(positions)]
    return list(dict.fromkeys(places))


@dataclass(slots=True, eq=False)
class _Chunk:
    place: ByteRange
    task: asyncio.Task[Batches]
    used_ms: int
    is_followed: bool = False

    @property
    def size(self) -> int:
        return self.place.end - self.place.start


class ReadAhead:
    """Belongs to one event loop; `close` cancels running reads."""

    def __init__(
        self,
        storage: RemoteStorageManager,
        indexes: RemoteIndexCache,
        *,
        max_bytes: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self.size = 0
        self._storage = storage
        self._indexes = indexes
        self._max_bytes = max_bytes
        self._clock_ms = clock_ms
        self._chunks: dict[tuple[UUID, int], _Chunk] = {}
        self._ends: OrderedDict[tuple[tuple[UUID, int], int], None] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()

    def resize(self, max_bytes: int) -> None:
        """A new limit; it holds from the next chunk on."""
        self._max_bytes = max_bytes

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # callbacks of tasks that had ended before run in the next turn

    def ended_at(self, tip: TopicIdPartition, offset: int) -> None:
        """Note that a read ended here; a read that starts here continues it."""
        key = (tip.identity, offset)
        self._ends[key] = None
        self._ends.move_to_end(key)
        if len(self._ends) > MAX_ENDS:
            self._ends.popitem(last=False)

    async def read(
        self,
        segment: RemoteLogSegmentMetadata,
        index: OffsetIndex,
        wanted: Wanted,
        following: Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata | None],
    ) -> Records | None:
        """The requested batches from a chunk; None if no chunk has them.

        `following` gives the segment after another one, if it is worth reading ahead. Faults of
        the store are raised.
        """
        goes_on = (segment.id.tip.identity, wanted.offset) in self._ends
        for place in places_of(index, segment, wanted.offset):
            chunk = self._chunks.get((segment.id.id, place.start))
            if chunk is None and goes_on:
                chunk = self._begin(segment, place)
            if chunk is None:
                continue
            if not chunk.is_followed:
                chunk.is_followed = True
                self._start(self._follow(chunk, segment, index, following))
            try:
                # Others may wait for it too.
                found = await asyncio.shield(chunk.task)
            except CorruptRemoteData:
                return None
            first = found.bases[0] if place.start else segment.start_offset
            if first <= wanted.offset <= found.lasts[-1]:
                return self._cut(segment, chunk, found, wanted)
        return None

    def _cut(
        self,
        segment: RemoteLogSegmentMetadata,
        chunk: _Chunk,
        found: Batches,
        wanted: Wanted,
    ) -> Records:
        records = found.cut(wanted)
        chunk.used_ms = self._clock_ms()
        key = (segment.id.id, chunk.place.start)
        if records.next_offset > found.lasts[-1] and self._chunks.get(key) is chunk:
            self._drop(key)
        return records

    async def _follow(
        self,
        chunk: _Chunk,
        segment: RemoteLogSegmentMetadata,
        index: OffsetIndex,
        following: Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata | None],
    ) -> None:
        """Start reading the next chunks, also of the next segment."""
        origin, position = (segment.id.id, chunk.place.start), chunk.place.end
        for _ in range(CHUNKS_AHEAD):
            if position == segment.segment_size:
                further = following(segment)
                if further is None:
                    return
                segment, position = further, 0
                index = (await self._indexes.get(segment)).offsets
            if self._chunks.get(origin) is not chunk:
                return  # its reader is ahead of us
            place = chunk_at(index, segment.segment_size, position)
            key = (segment.id.id, place.start)
            if key not in self._chunks and self._begin(segment, place) is None:
                return
            position = place.end

    def _begin(self, segment: RemoteLogSegmentMetadata, place: ByteRange) -> _Chunk | None:
        size = place.end - place.start
        if self.size + size > self._max_bytes:
            self.expire()
        if size > MAX_CHUNK_BYTES or self.size + size > self._max_bytes:
            return None
        task = self._start(self._load(segment, place))
        key = (segment.id.id, place.start)
        chunk = self._chunks[key] = _Chunk(place, task, self._clock_ms())
        self.size += size

        def ended(done: asyncio.Task[Batches]) -> None:
            if (done.cancelled() or done.exception()) and self._chunks.get(key) is chunk:
                self._drop(key)

        task.add_done_callback(ended)
        return chunk

    async def _load(self, segment: RemoteLogSegmentMetadata, place: ByteRange) -> Batches:
        data = await self._storage.fetch_log_segment(segment, place.start, place.end - 1)
        try:
            return await asyncio.to_thread(checked, data, segment)
        except WireError as error:
            raise CorruptRemoteData(f"{self._storage.key(segment)}: {error}") from error

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # callers that waited have it; there may be none

    def expire(self) -> None:
        """Drop chunks that were unused for long."""
        limit = self._clock_ms() - MAX_AGE_MS
        for key, chunk in list(self._chunks.items()):
            if chunk.used_ms < limit and chunk.task.done():
                self._drop(key)

    def _drop(self, key: tuple[UUID, int]) -> None:
        self.size -= self._chunks.pop(key).size
