"""The walk over a segment after a crash: which batches are whole, and where the good ones end.

A batch counts if its magic, length and CRC are right and its offsets come after those before it.
What follows the first batch that does not is a torn write, garbage or zeros, and has to be cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from ottla.log.index import AbortedIndex
from ottla.log.segment import MAX_RELATIVE_OFFSET, newest_time
from ottla.wire.batch import CRC_START, HEADER_SIZE, MAGIC, MIN_BATCH_LENGTH, RecordBatch

if TYPE_CHECKING:
    from ottla.log.segment import Segment

_CHUNK: Final = 1 << 20  # a garbage length must not make recovery read a whole file at once


def recover_segment(segment: Segment) -> bool:
    """Check every batch and rebuild the indexes; False if the file must be cut. Blocks."""
    storage, file = segment.storage, segment.file
    file_size = storage.size(file.fd)
    segment.reset()
    segment.replace_aborted(AbortedIndex())
    chunk = memoryview(b"")
    chunk_start = 0
    while segment.size < file_size:
        start = segment.size - chunk_start
        header = _next_header(segment, chunk[start:], file_size)
        if header is None or header.size > len(chunk) - start:
            chunk_start = segment.size
            size = min(_CHUNK, file_size - chunk_start)
            chunk = memoryview(storage.pread(file.fd, size, chunk_start))
            header = _next_header(segment, chunk, file_size)
        if header is None or not _crc_matches(segment, header):
            break
        segment.add(header.size, header.last_offset, newest_time(header))
    return segment.size == file_size


def _next_header(segment: Segment, data: memoryview, file_size: int) -> RecordBatch | None:
    """The header at the start of `data`, if a batch with it may follow the counted ones."""
    if len(data) < HEADER_SIZE:
        return None
    header = RecordBatch(data)
    sound = (
        header.magic == MAGIC
        and header.batch_length >= MIN_BATCH_LENGTH
        and segment.size + header.size <= file_size
        and header.base_offset >= segment.next_offset
        and header.last_offset_delta >= 0
        and header.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
    )
    return header if sound else None


def _crc_matches(segment: Segment, header: RecordBatch) -> bool:
    """A batch larger than the chunk is read on piece by piece."""
    file = segment.file
    crc = crc32c(header.data[CRC_START : header.size])
    done = min(len(header.data), header.size)
    while done < header.size:
        size = min(_CHUNK, header.size - done)
        rest = segment.storage.pread(file.fd, size, segment.size + done)
        crc = crc32c(rest, crc)
        done += size
    return crc == header.crc
