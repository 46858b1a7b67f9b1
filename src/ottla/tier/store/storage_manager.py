"""RemoteStorageManager: writes, reads and deletes the objects of segments.

- A copy writes `.log`, then creates `.meta`; until `.meta` exists the segment is not visible.
  Copying the same segment id again is harmless, copying another one under the same id is refused.
- Reads of the log are ranges of the object as it was written; fewer bytes than the catalogue
  records is `CorruptRemoteData`, never a short answer.
- A deletion removes `.meta` first and may be repeated.
- The log is read once: what goes to the store goes into the CRC.
- Memory: pieces of the log in flight (see `store_cloud`) and one `.meta`.
"""

from __future__ import annotations

import asyncio
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from ottla.log.errors import LogError
from ottla.log.storage import Entry
from ottla.objects.errors import RemoteNotFound, RemoteStorageError
from ottla.objects.files import WorkerFile
from ottla.objects.store import PIECE_BYTES, AlreadyExists
from ottla.tier.errors import CorruptRemoteData
from ottla.tier.store.layout import (
    LOG_SUFFIX,
    META_SUFFIX,
    TAIL_BYTES,
    CustomMetadata,
    Manifest,
    Section,
    decode_meta,
    encode_meta,
    segment_key,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ottla.objects.store import ObjectStore
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata

    Pace = Callable[[int], Awaitable[None]]
    Lease = Callable[[], AbstractContextManager[object]]


async def at_once(_: int) -> None:
    """No limit on the speed of uploads."""


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """The files of a segment that is not written to any more; indexes hold no unused room.

    A log that may be deleted meanwhile names them as entries of its open directory, and gives a
    lease: each worker takes one for as long as it opens files, because a copy that is cancelled
    does not end its worker.
    """

    log: Path | Entry
    offset_index: Path | Entry
    time_index: Path | Entry
    producer_snapshot: Path | Entry
    leader_epochs: bytes
    transaction_index: Path | Entry | None = None
    lease: Lease = nullcontext


class Sections(NamedTuple):
    """The sections of a `.meta`, and the damaged ones."""

    sound: Mapping[Section, memoryview]
    damaged: frozenset[Section]


class RemoteStorageManager:
    """Writes, reads and deletes segments in one store, below one prefix."""

    def __init__(
        self, store: ObjectStore, prefix: str, cluster_id: str, *, pace: Pace = at_once
    ) -> None:
        """`pace` is awaited before each piece of a log is uploaded, with its size."""
        self.store = store
        self.prefix = prefix
        self.cluster_id = cluster_id
        self._pace = pace

    def key(self, metadata: RemoteLogSegmentMetadata, suffix: str = LOG_SUFFIX) -> str:
        return segment_key(self.prefix, metadata, suffix)

    async def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes:
        """Copy a segment; returns the custom metadata for the catalogue."""
        log_crc = await self.copy_log(metadata, data)
        return await self.copy_meta(metadata, data, log_crc)

    async def copy_log(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> int:
        """The first half of a copy: `.log`, and its CRC."""
        with closing(LogPieces(data.log, self._pace, data.lease)) as reading:
            try:
                await self.store.put_pieces(self.key(metadata), reading)
            except Exception:
                # Whatever a store makes of it: the file is at fault, not the store.
                if reading.failure is not None:
                    raise reading.failure from None
                raise
        if reading.size != metadata.segment_size:
            raise RemoteStorageError(
                f"{data.log} has {reading.size} bytes, its metadata says {metadata.segment_size}"
            )
        return reading.crc

    async def copy_meta(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, log_crc: int
    ) -> bytes:
        """The second half: `.meta`, which makes the copy visible."""
        sections = await asyncio.to_thread(_sections, data)
        content, custom = encode_meta(metadata, self.cluster_id, log_crc, sections)
        key = self.key(metadata, META_SUFFIX)
        try:
            await self.store.put_new(key, content)
        except AlreadyExists:
            # An earlier attempt that got no answer, if it is the same in every byte.
            if await self.store.get_tail(key, len(content) + 1) != content:
                raise
        return custom.encode()

    async def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start: int,
        end: int | None = None,
        *,
        etag: str | None = None,
    ) -> memoryview:
        """Bytes `start` to `end`, both inclusive, of the segment file; `end` is clipped to it."""
        last = metadata.segment_size - 1
        stop = (last if end is None else min(end, last)) + 1
        if not 0 <= start < stop:
            raise ValueError(f"bytes {start}..{end} of {metadata.segment_size} are no range")
        found = await self.store.get_range(self.key(metadata), start, stop, etag=etag)
        if len(found) != stop - start:
            raise CorruptRemoteData(
                f"{self.key(metadata)} ends at {start + len(found)}, not at {stop} or later"
            )
        return found

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, section: Section) -> memoryview:
        """One section of `.meta`; `RemoteNotFound` if the segment has none of that kind."""
        found = await self.fetch_indexes(metadata, (section,))
        if section not in found:
            raise RemoteNotFound(f"{self.key(metadata, META_SUFFIX)} has no {section.value}")
        return found[section]

    async def fetch_indexes(
        self,
        metadata: RemoteLogSegmentMetadata,
        sections: tuple[Section, ...] = (Section.OFFSET, Section.TIMESTAMP, Section.TRANSACTION),
    ) -> Mapping[Section, memoryview]:
        """Sections in one request, by kind; those that are absent or empty are left out."""
        custom = CustomMetadata.decode(metadata.custom_metadata)
        if custom is None:
            custom = (await self.fetch_manifest(self.key(metadata, META_SUFFIX))).custom
        places = {one: custom.places[one] for one in sections if custom.places[one].length}
        if not places:
            return {}
        key = self.key(metadata, META_SUFFIX)
        start = min(place.position for place in places.values())
        end = max(place.end for place in places.values())
        data = await self.store.get_range(key, start, end)
        if len(data) != end - start:
            raise CorruptRemoteData(f"{key} ends at {start + len(data)}, not at {end} or later")
        return {
            one: data[place.position - start : place.end - start] for one, place in places.items()
        }

    async def fetch_meta(self, metadata: RemoteLogSegmentMetadata) -> Sections:
        """Every section, in one request, each checked against its CRC in the manifest."""
        key = self.key(metadata, META_SUFFIX)
        custom = CustomMetadata.decode(metadata.custom_metadata)
        size = (await self.store.head(key)).size if custom is None else custom.meta_size
        data = await self.store.get_range(key, 0, size)
        manifest = decode_meta(data, size, key)
        found = {}
        for section in manifest.crcs:
            place = manifest.custom.places[section]
            found[section] = data[place.position : place.end]
        damaged = [one for one, crc in manifest.crcs.items() if crc32c(found[one]) != crc]
        sound = {one: content for one, content in found.items() if one not in damaged}
        return Sections(sound, frozenset(damaged))

    async def fetch_manifest(self, key: str) -> Manifest:
        """The manifest of a `.meta` by its key."""
        tail = await self.store.get_tail(key, TAIL_BYTES)
        size = len(tail)
        if size == TAIL_BYTES:
            size = (await self.store.head(key)).size
        return decode_meta(tail, size, key)

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete both objects; missing ones are ignored."""
        await self.store.delete(self.key(metadata, META_SUFFIX))
        await self.store.delete(self.key(metadata))


class LogPieces:
    """The pieces of a segment file, each when it may go; then its size and CRC-32C."""

    def __init__(
        self, path: Path | Entry, pace: Pace = at_once, lease: Lease = nullcontext
    ) -> None:
        self.size = self.crc = 0
        self.failure: RemoteStorageError | LogError | None = None
        self._path = path
        self._pace = pace
        self._file = WorkerFile(partial(_opened, path, lease))

    def __aiter__(self) -> LogPieces:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await asyncio.to_thread(self._read)
        except LogError as error:
            self.failure = error
            raise
        except OSError as error:
            self.failure = RemoteStorageError(f"cannot read {self._path}: {error}")
            raise self.failure from error
        if not piece:
            raise StopAsyncIteration
        await self._pace(len(piece))
        return piece

    def _read(self) -> bytes:
        return self._file.use(self._next)

    def _next(self, file: FileIO) -> bytes:
        piece = file.read(PIECE_BYTES)
        self.crc = crc32c(piece, self.crc)
        self.size += len(piece)
        return piece

    def close(self) -> None:
        """Give the file back, at the end of the read that is under way if there is one."""
        self._file.close()


def _opened(path: Path | Entry, lease: Lease) -> FileIO:
    with lease():
        return path.open_for_reading() if isinstance(path, Entry) else FileIO(path)


def _sections(data: LogSegmentData) -> dict[Section, bytes]:
    """In a worker."""
    with data.lease():
        found = {
            Section.OFFSET: data.offset_index.read_bytes(),
            Section.TIMESTAMP: data.time_index.read_bytes(),
            Section.LEADER_EPOCH: data.leader_epochs,
            Section.PRODUCER_SNAPSHOT: data.producer_snapshot.read_bytes(),
        }
        if data.transaction_index is not None:
            found[Section.TRANSACTION] = data.transaction_index.read_bytes()
        return found
