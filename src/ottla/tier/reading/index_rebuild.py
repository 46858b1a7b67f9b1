"""The offset and time index of a remote segment, made again from its `.log`.

For a segment whose `.meta` is damaged. It costs a read of the whole object, a piece at a time, and
keeps consumers going; what transactions were aborted is in `.meta` alone and cannot be made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.segment import newest_time
from ottla.tier.errors import CorruptRemoteData
from ottla.wire.batch import HEADER_SIZE, MAGIC, MIN_BATCH_LENGTH, RecordBatch

if TYPE_CHECKING:
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata
    from ottla.tier.store.storage_manager import RemoteStorageManager

_PIECE: Final = 4 * 1024 * 1024
_INTERVAL: Final = 4096  # index.interval.bytes; another value makes another index, no worse one


async def rebuild_indexes(
    storage: RemoteStorageManager, metadata: RemoteLogSegmentMetadata
) -> tuple[OffsetIndex, TimeIndex]:
    """Both indexes, by the headers of all batches."""
    offsets, times = OffsetIndex(), TimeIndex()
    base = metadata.start_offset
    newest, newest_offset = -1, base
    last_indexed = position = start = 0
    data = memoryview(b"")
    while position < metadata.segment_size:
        if position + HEADER_SIZE > start + len(data):
            start = position
            data = await storage.fetch_log_segment(metadata, start, start + _PIECE - 1)
        header = _header(data[position - start :], storage.key(metadata), position)
        if newest_time(header) > newest:
            newest, newest_offset = newest_time(header), header.last_offset
        if position - last_indexed > _INTERVAL:
            offsets.append(header.last_offset - base, position)
            times.maybe_append(newest, newest_offset - base)
            last_indexed = position
        position += header.size
    times.maybe_append(newest, newest_offset - base)
    return offsets, times


def _header(data: memoryview, key: str, position: int) -> RecordBatch:
    if len(data) >= HEADER_SIZE:
        header = RecordBatch(data[:HEADER_SIZE])
        if header.magic == MAGIC and header.batch_length >= MIN_BATCH_LENGTH:
            return header
    raise CorruptRemoteData(f"{key} has no batch at {position}")
