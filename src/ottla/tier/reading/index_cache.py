"""The indexes of remote segments on local disk, so that a read costs the store one request.

- `<start>_<segment id>` with `.index`, `.timeindex` and `.txnindex`; a segment without aborted
  transactions has an empty last one. Files are written as `.tmp` and renamed, so that a set of
  three is whole; at a start what is not goes.
- Bounded by the bytes of the files, least recently used first, and by idle time.
- Many readers that miss the same segment wait for one download.
- A file that cannot be an index is fetched once more. If the store's copy is damaged too, offset
  and time index are made from the `.log`; transactions that are lost are `CorruptRemoteData`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.checkpoints import CorruptCheckpoint, decode_id, encode_id
from ottla.log.index import (
    AbortedTransaction,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
)
from ottla.log.segment import INDEX, TIME_INDEX, TXN_INDEX
from ottla.tier.errors import CorruptRemoteData
from ottla.tier.reading.index_rebuild import rebuild_indexes
from ottla.tier.store.layout import Section
from ottla.tier.store.storage_manager import Sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from uuid import UUID

    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata
    from ottla.tier.store.storage_manager import RemoteStorageManager

DIRECTORY_NAME: Final = "remote-log-index-cache"
MAX_DECODED: Final = 32  # segments whose indexes are also kept decoded: those being read now
_TMP: Final = ".tmp"
_DELETED: Final = ".deleted"
_KINDS: Final = {
    Section.OFFSET: INDEX,
    Section.TIMESTAMP: TIME_INDEX,
    Section.TRANSACTION: TXN_INDEX,
}


class SegmentIndexes(NamedTuple):
    """All three, decoded."""

    offsets: OffsetIndex
    times: TimeIndex
    aborted: list[AbortedTransaction]


@dataclass(slots=True)
class _Entry:
    stem: str
    size: int
    used_ms: int


class RemoteIndexCache:
    """For one event loop. `load` comes first."""

    def __init__(
        self,
        directory: Path,
        storage: RemoteStorageManager,
        *,
        max_bytes: int,
        ttl_ms: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self.hits = 0
        self.misses = 0
        self.rebuilt = 0
        self.size = 0
        self._directory = directory
        self._storage = storage
        self._max_bytes = max_bytes
        self._ttl_ms = ttl_ms
        self._clock_ms = clock_ms
        self._entries: OrderedDict[UUID, _Entry] = OrderedDict()
        self._decoded: OrderedDict[UUID, SegmentIndexes] = OrderedDict()
        self._flights: dict[UUID, asyncio.Task[SegmentIndexes]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def load(self) -> None:
        """Load complete entries of an earlier run, and delete the others."""
        for segment, entry in await asyncio.to_thread(_whole_sets, self._directory):
            entry.used_ms = self._clock_ms()
            self._admit(segment, entry)
        await self._shrink()

    def resize(self, max_bytes: int) -> None:
        """A new limit; it holds from the next download on."""
        self._max_bytes = max_bytes

    async def get(self, metadata: RemoteLogSegmentMetadata) -> SegmentIndexes:
        """The indexes of a finished segment, from memory, disk or the store."""
        segment = metadata.id.id
        decoded = self._decoded.get(segment)
        if decoded is not None:
            self.hits += 1
            self._decoded.move_to_end(segment)
            self._touch(segment)
            return decoded
        flight = self._flights.get(segment)
        if flight is None:
            flight = asyncio.create_task(self._obtain(metadata))
            self._flights[segment] = flight
            flight.add_done_callback(lambda done: self._land(segment, done))
        # A reader that gives up must not take the others' download with it.
        return await asyncio.shield(flight)

    async def evict(self, segments: Iterable[UUID]) -> None:
        """Forget segments that are being deleted."""
        stems = [self._drop(segment) for segment in segments if segment in self._entries]
        await asyncio.to_thread(_remove, self._directory, stems)

    async def expire(self) -> int:
        """Drop entries that were idle for the time to live; returns their number."""
        limit = self._clock_ms() - self._ttl_ms
        idle = [segment for segment, entry in self._entries.items() if entry.used_ms < limit]
        await self.evict(idle)
        return len(idle)

    def _land(self, segment: UUID, done: asyncio.Task[SegmentIndexes]) -> None:
        self._flights.pop(segment, None)
        if not done.cancelled():
            done.exception()  # callers that waited have it; there may be none

    async def _obtain(self, metadata: RemoteLogSegmentMetadata) -> SegmentIndexes:
        segment = metadata.id.id
        entry = self._entries.get(segment)
        if entry is not None:
            try:
                found = await asyncio.to_thread(_read, self._directory, entry.stem, metadata)
            except (CorruptIndex, FileNotFoundError):
                await self.evict([segment])
            else:
                self.hits += 1
                self._touch(segment)
                self._remember(segment, found)
                return found
        self.misses += 1
        return await self._download(metadata)

    async def _download(self, metadata: RemoteLogSegmentMetadata) -> SegmentIndexes:
        segment = metadata.id.id
        stem = f"{metadata.start_offset}_{encode_id(segment)}"
        content = await self._content(metadata)
        try:
            found = _decode(content, metadata)
        except CorruptIndex as error:
            raise CorruptRemoteData(f"indexes of {metadata.id}: {error}") from error
        await asyncio.to_thread(_write, self._directory, stem, content)
        size = sum(map(len, content.values()))
        self._admit(segment, _Entry(stem, size, self._clock_ms()))
        self._remember(segment, found)
        await self._shrink()
        return found

    async def _content(self, metadata: RemoteLogSegmentMetadata) -> dict[str, bytes]:
        """The three files: as they were stored, or as good as can be made of a damaged store."""
        for _ in range(2):
            sections = await self._sections(metadata)
            content = {kind: bytes(sections.sound.get(one, b"")) for one, kind in _KINDS.items()}
            if not sections.damaged & _KINDS.keys():
                return content
        if Section.TRANSACTION in sections.damaged:
            raise CorruptRemoteData(f"the aborted transactions of {metadata.id} are lost")
        self.rebuilt += 1
        offsets, times = await rebuild_indexes(self._storage, metadata)
        return content | {INDEX: offsets.encode(), TIME_INDEX: times.encode()}

    async def _sections(self, metadata: RemoteLogSegmentMetadata) -> Sections:
        try:
            return await self._storage.fetch_meta(metadata)
        except CorruptRemoteData:
            # Without a manifest nothing can be trusted; a segment without aborts has none to lose.
            lost = {Section.OFFSET, Section.TIMESTAMP}
            if not metadata.txn_index_empty:
                lost.add(Section.TRANSACTION)
            return Sections({}, frozenset(lost))

    def _admit(self, segment: UUID, entry: _Entry) -> None:
        self._entries[segment] = entry
        self.size += entry.size

    def _touch(self, segment: UUID) -> None:
        entry = self._entries.get(segment)
        if entry is not None:
            entry.used_ms = self._clock_ms()
            self._entries.move_to_end(segment)

    def _remember(self, segment: UUID, found: SegmentIndexes) -> None:
        self._decoded[segment] = found
        if len(self._decoded) > MAX_DECODED:
            self._decoded.popitem(last=False)

    def _drop(self, segment: UUID) -> str:
        entry = self._entries.pop(segment)
        self._decoded.pop(segment, None)
        self.size -= entry.size
        return entry.stem

    async def _shrink(self) -> None:
        stems = []
        while self.size > self._max_bytes and self._entries:
            stems.append(self._drop(next(iter(self._entries))))
        if stems:
            await asyncio.to_thread(_remove, self._directory, stems)


def _decode(content: dict[str, bytes], metadata: RemoteLogSegmentMetadata) -> SegmentIndexes:
    return SegmentIndexes(
        OffsetIndex.decode(content[INDEX], metadata.segment_size),
        TimeIndex.decode(content[TIME_INDEX]),
        decode_aborted(content[TXN_INDEX]),
    )


def _read(directory: Path, stem: str, metadata: RemoteLogSegmentMetadata) -> SegmentIndexes:
    content = {kind: (directory / (stem + kind)).read_bytes() for kind in _KINDS.values()}
    return _decode(content, metadata)


def _write(directory: Path, stem: str, content: dict[str, bytes]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for kind, data in content.items():
        (directory / (stem + kind + _TMP)).write_bytes(data)
    for kind in content:
        (directory / (stem + kind + _TMP)).replace(directory / (stem + kind))


def _remove(directory: Path, stems: list[str]) -> None:
    for stem in stems:
        for kind in _KINDS.values():
            (directory / (stem + kind)).unlink(missing_ok=True)


def _whole_sets(directory: Path) -> list[tuple[UUID, _Entry]]:
    """Segments with all three files; every other file of ours is removed."""
    directory.mkdir(parents=True, exist_ok=True)
    sets: dict[str, dict[str, int]] = {}
    for path in sorted(directory.iterdir()):
        if path.name.endswith((_TMP, _DELETED)):
            path.unlink(missing_ok=True)
        elif path.suffix in _KINDS.values():
            sets.setdefault(path.stem, {})[path.suffix] = path.stat().st_size
    found = []
    for stem, sizes in sets.items():
        try:
            segment = decode_id(stem.partition("_")[2])
        except CorruptCheckpoint:
            continue
        if len(sizes) == len(_KINDS):
            found.append((segment, _Entry(stem, sum(sizes.values()), 0)))
        else:
            _remove(directory, [stem])
    return found
