"""The bytes of a `.ss` file to messages, many at a time. Pure: chunks in, messages out.

A decoder is fed from some offset on and hands out whole frames; what is cut waits for more. Feeding
from a beacon on, the rest of the frame that the beacon cuts is skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ottla.streams.errors import ChecksumError, FormatError
from ottla.streams.ss.crc import crc16_little, swap
from ottla.streams.ss.format import (
    CR,
    FRAME_HEAD,
    FRAME_OVERHEAD,
    HEADER_SIZE,
    INTERNAL_KEY,
    decode_beacon,
)
from ottla.streams.types import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.ss.format import Beacon

_COMPACT_AT = 1 << 20
"""Parsed bytes are dropped from the buffer when this many have gathered."""


class Decoder:
    """Frames from `offset` on, which is the header's end, a frame's start, or a beacon to align at.

    `offset` is always where the next frame starts. `on_beacon` is told each beacon and its offset.
    Without `verify` payloads are neither read nor checked: messages come with an empty payload.
    """

    def __init__(
        self,
        interval: int,
        offset: int = HEADER_SIZE,
        *,
        align: bool = False,
        verify: bool = True,
        on_beacon: Callable[[int, Beacon], None] | None = None,
    ):
        self._interval = interval
        self._fed = offset
        self._raw = b""
        self._skip = 0
        self._align = align
        self._verify = verify
        self._on_beacon = on_beacon
        self._frames = bytearray()
        self._at = 0
        self._keys: dict[bytes, str] = {}
        # Where in the file the pieces of `_frames` come from: sorted pairs of equal length lists.
        self._piece_at = [0]
        self._piece_offset = [offset]

    @property
    def fed(self) -> int:
        """The offset up to which the file was fed."""
        return self._fed + len(self._raw)

    @property
    def offset(self) -> int:
        """Where in the file the next frame starts."""
        return self._file_offset(self._at)

    @property
    def saw_internal(self) -> bool:
        """Whether a frame of the internal stream was among what was taken."""
        return INTERNAL_KEY in self._keys

    @property
    def aligned(self) -> bool:
        """Whether the rest of the frame that the first beacon cut has been skipped."""
        return not (self._align or self._skip)

    @property
    def clean(self) -> bool:
        """Whether everything that was fed belongs to whole frames and beacons."""
        return not self._raw and self.aligned and self._at == len(self._frames)

    def feed(self, data: bytes) -> None:
        """The next bytes of the file; beacons are taken out here."""
        if self._at >= _COMPACT_AT:
            self._compact()
        raw = self._raw + data if self._raw else data
        at, end = 0, len(raw)
        while at < end:
            position = self._fed + at
            if position % self._interval == 0:
                found = decode_beacon(raw, at, position)
                if found is None:
                    break
                beacon, after = found
                if self._align:
                    self._skip, self._align = beacon.remaining, False
                if self._on_beacon is not None:
                    self._on_beacon(position, beacon)
                at = after
                self._piece(self._fed + at)
                continue
            room = self._interval - position % self._interval
            piece = raw[at : at + room]
            at += len(piece)
            if self._skip:
                skipped = min(self._skip, len(piece))
                self._skip -= skipped
                self._piece(position + skipped)
                piece = piece[skipped:]
            self._frames += piece
        self._fed += at
        self._raw = raw[at:]

    def take(self, limit: int) -> list[Message]:
        """Whole frames, at most `limit`; a damaged one raises and stays where it is."""
        taken: list[Message] = []
        frames, at, end = self._frames, self._at, len(self._frames)
        keys, unpack, append, verify = (
            self._keys,
            FRAME_HEAD.unpack_from,
            taken.append,
            self._verify,
        )
        view = memoryview(frames)
        try:
            while len(taken) < limit and end - at > FRAME_OVERHEAD:
                size = frames[at]
                body = at + FRAME_OVERHEAD - 3 + size
                if body > end:
                    break
                shard, seq, timestamp_ms, length = unpack(frames, at + 1 + size)
                tail = body + length
                if tail + 3 > end:
                    break
                payload = bytes(view[body:tail]) if verify else b""
                checksum = crc16_little(payload) if verify else frames[tail] | frames[tail + 1] << 8
                if frames[tail] | frames[tail + 1] << 8 != checksum or frames[tail + 2] != CR:
                    self._damaged(at, tail, checksum)
                key = bytes(view[at + 1 : at + 1 + size])
                stream = keys.get(key)
                if stream is None:
                    stream = self._name(key, at)
                append(Message(stream, shard, seq, timestamp_ms * 1_000_000, payload))
                at = tail + 3
        finally:
            view.release()
            self._at = at
        return taken

    def _damaged(self, at: int, tail: int, checksum: int) -> None:
        if self._frames[tail + 2] != CR:
            raise FormatError("a frame does not end where it says", offset=self._file_offset(at))
        stored = swap(self._frames[tail] | self._frames[tail + 1] << 8)
        raise ChecksumError(
            f"the payload's checksum is {swap(checksum):04X}, the frame says {stored:04X}",
            offset=self._file_offset(at),
        )

    def _name(self, key: bytes, at: int) -> str:
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise FormatError("a stream key is not UTF-8", offset=self._file_offset(at)) from None
        self._keys[key] = name
        return name

    def _piece(self, offset: int) -> None:
        """What comes next in `_frames` lies at this offset of the file."""
        at = len(self._frames)
        if self._piece_at[-1] == at:
            self._piece_offset[-1] = offset
        else:
            self._piece_at.append(at)
            self._piece_offset.append(offset)

    def _file_offset(self, at: int) -> int:
        # A frame that ends exactly at a beacon is followed by what comes after the beacon.
        index = bisect_right(self._piece_at, at) - 1
        return self._piece_offset[index] + at - self._piece_at[index]

    def _compact(self) -> None:
        done = self._at
        index = bisect_right(self._piece_at, done) - 1
        first = self._file_offset(done)
        self._piece_at = [0, *(at - done for at in self._piece_at[index + 1 :])]
        self._piece_offset = [first, *self._piece_offset[index + 1 :]]
        del self._frames[:done]
        self._at = 0
