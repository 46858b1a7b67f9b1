"""Length-prefixed frames from a byte stream, without I/O and without copies.

Made for `asyncio.BufferedProtocol`: the socket reads straight into `get_buffer()`, and
`buffer_updated(n)` returns the frames that are now whole, as views of that memory.

- A chunk of memory is written once and never reused, so a view stays valid as long as it is
  referenced, and may be patched in place. A new chunk replaces a full one.
- A connection starts with a small chunk and gets larger ones as it sends, so that thousands of
  quiet connections cost little, even when all of them close at once. After a frame that is larger
  than a chunk the next one is received in a chunk of that size and need not be moved.
- A frame that does not fit the current chunk moves to a larger one. A chunk is at most
  `GROWTH` times what has arrived, so a client cannot claim memory with a length prefix alone.
- An invalid size ends the stream: the frames before it are still returned, then `error` is set.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.wire.errors import FrameError, FrameTooLarge, FrameTooShort, NegativeFrameLength

CHUNK_BYTES: Final = 64 * 1024  # one read of a busy socket
MAX_CHUNK_BYTES: Final = 256 * 1024  # one read of a socket with larger frames
FIRST_CHUNK_BYTES: Final = 4 * 1024
CHUNK_GROWTH: Final = 4  # from one chunk to the next
MIN_READ_BYTES: Final = 4 * 1024  # with less room a system call would read too little
GROWTH: Final = 16  # a frame of the usual largest size, 1 MiB, moves once
PREFIX_BYTES: Final = 4
MIN_FRAME_BYTES: Final = 4  # a correlation id, the smallest content of a frame

_PREFIX = struct.Struct(">i")
_NO_CHUNK = memoryview(b"")


class FrameParser:
    """Cuts a stream into frames of at most `max_frame_bytes`, which may change between reads."""

    __slots__ = ("_chunk", "_end", "_next_size", "_start", "_wanted", "error", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.error: FrameError | None = None
        self._chunk = _NO_CHUNK
        self._next_size = FIRST_CHUNK_BYTES
        self._start = 0  # start of the current frame, including its prefix
        self._end = 0  # end of the received bytes in the chunk
        self._wanted = 0  # whole size of that frame, 0 until its prefix is received

    @property
    def pending_bytes(self) -> int:
        """Bytes received of an incomplete frame."""
        return self._end - self._start

    @property
    def announced_bytes(self) -> int:
        """The whole size of the current frame, 0 until its prefix is received."""
        return self._wanted

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Memory for the next read; never empty."""
        capacity = len(self._chunk)
        if self._wanted:
            if self._end == capacity:
                self._move(min(self._wanted, GROWTH * max(self.pending_bytes, MIN_READ_BYTES)))
        elif capacity - self._end < MIN_READ_BYTES and (
            capacity != FIRST_CHUNK_BYTES or self._end > FIRST_CHUNK_BYTES // 2
        ):
            self._move(self._next_size)
            self._next_size = min(CHUNK_BYTES, CHUNK_GROWTH * self._next_size)
        return self._chunk[self._end :]

    def buffer_updated(self, nbytes: int) -> list[memoryview]:
        """The frames that `nbytes` more bytes complete, without their prefixes."""
        self._end += nbytes
        frames = []
        chunk, start, end = self._chunk, self._start, self._end
        while end - start >= PREFIX_BYTES:
            (size,) = _PREFIX.unpack_from(chunk, start)
            if not MIN_FRAME_BYTES <= size <= self.max_frame_bytes:
                self.error = self._impossible(size)
                break
            stop = start + PREFIX_BYTES + size
            if stop > end:
                self._wanted = PREFIX_BYTES + size
                break
            frames.append(chunk[start + PREFIX_BYTES : stop])
            if stop - start > CHUNK_BYTES:
                self._next_size = min(stop - start, MAX_CHUNK_BYTES)
            start = stop
            self._wanted = 0
        self._start = start
        if start == end and len(chunk) > CHUNK_BYTES:
            # An idle connection must not keep the memory of its largest frame.
            self._chunk, self._start, self._end = _NO_CHUNK, 0, 0
        return frames

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """The same for bytes that were read elsewhere; copies them."""
        frames = []
        view = memoryview(data)
        while view and self.error is None:
            buffer = self.get_buffer()
            nbytes = min(len(buffer), len(view))
            buffer[:nbytes] = view[:nbytes]
            frames += self.buffer_updated(nbytes)
            view = view[nbytes:]
        return frames

    def _move(self, capacity: int) -> None:
        """Continue in a new chunk; copies the received part of the current frame."""
        pending = self._chunk[self._start : self._end]
        self._chunk = memoryview(bytearray(capacity))
        self._chunk[: len(pending)] = pending
        self._start, self._end = 0, len(pending)

    def _impossible(self, size: int) -> FrameError:
        least = f"{MIN_FRAME_BYTES} or more"
        if size < 0:
            return NegativeFrameLength(least, size, "frame length")
        if size < MIN_FRAME_BYTES:
            return FrameTooShort(least, size, "frame length")
        return FrameTooLarge(f"at most {self.max_frame_bytes}", size, "frame length")
