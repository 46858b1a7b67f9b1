"""The bytes of a `.ss` file to messages, many at a time. Pure: chunks in, messages out.

A decoder is fed from some offset on and returns whole frames; an incomplete frame waits for more
bytes. If fed from a beacon on, it skips the rest of the frame that the beacon interrupts.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ottla.streams.errors import ChecksumError, FormatError
from ottla.streams.ss.crc import crc16, crc16_spans, kernel, swap
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
    from collections.abc import Callable, Iterable

    from ottla.streams.ss.format import Beacon

_REST = tuple(Message._field_defaults.values())  # what a frame does not hold

_COMPACT_AT = 1 << 20
"""Parsed bytes are dropped from the buffer when this many have gathered."""


class Decoder:
    """Frames from `offset` on, which is the header's end, a frame's start, or a beacon to align at.

    `offset` is always the start of the next frame. `on_beacon` is called with each beacon and its
    offset. Without `verify` payloads are neither read nor checked: messages have an empty payload.
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
        """Whole frames, at most `limit`; one that is damaged raises when it is the first."""
        taken: list[Message] = []
        starts: list[int] = []
        tails: list[int] = []
        frames, at, end = self._frames, self._at, len(self._frames)
        keys, unpack, append, verify, new = (
            self._keys,
            FRAME_HEAD.unpack_from,
            taken.append,
            self._verify,
            tuple.__new__,
        )
        with memoryview(frames) as view:
            while len(taken) < limit and end - at > FRAME_OVERHEAD:
                size = frames[at]
                body = at + FRAME_OVERHEAD - 3 + size
                if body > end:
                    break
                shard, seq, timestamp_ms, length = unpack(frames, at + 1 + size)
                tail = body + length
                if tail + 3 > end:
                    break
                key = bytes(view[at + 1 : at + 1 + size])
                stream = keys.get(key)
                if stream is None:
                    stream = keys[key] = key.decode(errors="replace")
                payload = bytes(view[body:tail]) if verify else b""
                # All fields by position: Message(...) would fill in defaults for each message.
                append(
                    new(Message, (stream, shard, seq, timestamp_ms * 1_000_000, payload, *_REST))
                )
                starts.append(body)
                tails.append(tail)
                at = tail + 3
        sound = self._sound(starts, tails)
        if sound:
            self._at = tails[sound - 1] + 3
        elif taken:
            self._damaged(starts[0], tails[0])
        return taken[:sound]

    def _sound(self, starts: list[int], tails: list[int]) -> int:
        """How many of these frames are sound, up to the first that is not."""
        frames = self._frames
        if self._verify and (compiled := kernel(len(frames))) is not None:
            return compiled.sound(frames, starts, tails)
        sums: Iterable[int] = (
            crc16_spans(frames, starts, tails)
            if self._verify
            else (frames[tail] | frames[tail + 1] << 8 for tail in tails)
        )
        for index, (tail, checksum) in enumerate(zip(tails, sums, strict=True)):
            if frames[tail] | frames[tail + 1] << 8 != checksum or frames[tail + 2] != CR:
                return index
        return len(tails)

    def _damaged(self, start: int, tail: int) -> None:
        offset = self._file_offset(self._at)
        if self._frames[tail + 2] != CR:
            raise FormatError("a frame has a wrong length", offset=offset)
        stored = swap(self._frames[tail] | self._frames[tail + 1] << 8)
        found = crc16(bytes(self._frames[start:tail]))
        raise ChecksumError(
            f"the payload's checksum is {found:04X}, the frame says {stored:04X}", offset=offset
        )

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
