"""What an append is made of: the batch as it lies in the file, and what is told about it."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ottla.wire.batch import RecordBatch

PATCHED: Final = struct.Struct(">qii")
"""What the log sets in a batch, all that precedes the magic: base offset, length, leader epoch."""
PATCHED_BYTES: Final = PATCHED.size
KEPT_BYTES: Final = 16 * 1024  # a batch that it costs more to copy than to look at its memory


class AppendResult(NamedTuple):
    """What Produce answers for one batch."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class FreshBatches:
    """The bytes that were appended to a log, as they are in its file.

    More than `max_bytes` are not kept: the journal would not take them.
    """

    __slots__ = ("base", "chunks", "lacks_some", "max_bytes", "size")

    def __init__(self, base: int, max_bytes: int) -> None:
        self.base = base
        self.max_bytes = max_bytes
        self.chunks: list[bytes | memoryview] = []
        self.size = 0
        self.lacks_some = False

    def add(self, chunk: bytes | memoryview, size: int) -> None:
        self.size += size
        if self.size > self.max_bytes:
            self.drop()
        elif not self.lacks_some:
            self.chunks.append(chunk)

    def drop(self) -> None:
        self.lacks_some = True
        self.chunks = []


def fills_its_memory(data: memoryview) -> bool:
    """Whether hardly anything else stays in memory with it, such as other frames of a client."""
    whole = data.obj
    return isinstance(whole, bytearray) and 8 * len(data) >= 7 * len(whole)


def stamped(batch: RecordBatch, now_ms: int) -> RecordBatch:
    """A copy of the batch that carries the broker's time."""
    copy = RecordBatch(memoryview(bytearray(batch.data)))
    copy.set_max_timestamp(now_ms, log_append_time=True)
    return copy
