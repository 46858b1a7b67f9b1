"""Messages to the bytes of a `.ss` file, cut around beacons. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from ottla.streams.errors import FileLimitExceeded
from ottla.streams.ss.crc import INITIAL, crc16_little, swap, tables
from ottla.streams.ss.format import (
    BEACON_OVERHEAD,
    CR,
    EOS,
    FRAME_HEAD,
    FRAME_OVERHEAD,
    FRAME_TAIL,
    INTERNAL_KEY,
    MARKER_OVERHEAD,
    MAX_PAYLOAD,
    Beacon,
    Marker,
    max_markers,
)
from ottla.streams.ss.frames import Framer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Entry(NamedTuple):
    """The content of a frame."""

    key: bytes
    shard: int
    seq: int
    timestamp_ms: int
    payload: bytes


class _Shard:
    __slots__ = ("prefix", "running", "seq", "timestamp_ms")

    def __init__(self, prefix: bytes, seq: int, timestamp_ms: int, running: int):
        self.prefix = prefix
        self.seq = seq
        self.timestamp_ms = timestamp_ms
        self.running = running


class Encoder:
    """Continues a file at `offset`; `markers` is what is known of its shards.

    `pending` bytes of output wait for `take`. A frame that would take the file past `limit` raises
    and leaves everything as it was.
    """

    def __init__(
        self,
        interval: int,
        offset: int,
        *,
        markers: Iterable[Marker] = (),
        limit: int = 2**63,
    ):
        self.offset = offset
        self._interval = interval
        self._limit = limit
        self._max_markers = max_markers(interval)
        self._emitted = 0
        self._out: list[bytes | memoryview] = []
        self._framer = Framer()
        self._double = tables()[1]
        self._shards: dict[tuple[bytes, int], _Shard] = {}
        for marker in markers:
            self.learn(marker)

    def last_seq(self, key: bytes, shard: int) -> int | None:
        """The highest sequence of a shard; None if the shard is not known here."""
        known = self._shards.get((key, shard))
        return None if known is None else known.seq

    def learn(self, marker: Marker) -> None:
        """How far a shard has come that no marker given at the start told of."""
        self._shards[marker.key, marker.shard] = _Shard(
            bytes((len(marker.key),)) + marker.key,
            marker.seq,
            marker.timestamp_ms,
            swap(marker.running),
        )

    def take(self) -> bytes | memoryview:
        """The bytes since the last call, to be written where the file ends before more is added."""
        taken = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return taken

    def beacon_if_due(self) -> None:
        """Stand a beacon here if the file ends where one belongs (a header, a repaired end)."""
        if self.offset % self._interval == 0:
            self._beacon(0)

    def eos(self, timestamp_ms: int) -> None:
        """Mark the end of the stream."""
        self.add(Entry(INTERNAL_KEY, 0, 0, timestamp_ms, EOS))

    def add(self, entry: Entry, checksum: int | None = None) -> None:
        """Append one frame; its payload's checksum, in little form, if that is known already."""
        key, number, seq, timestamp_ms, payload = entry
        size = len(payload)
        if size > MAX_PAYLOAD:
            raise FileLimitExceeded(f"a payload is at most {MAX_PAYLOAD} bytes, not {size}")
        total = FRAME_OVERHEAD + len(key) + size
        if self._is_near(total) and self._grown(total, key, number) > self._limit:
            raise FileLimitExceeded(
                f"the file would grow past its limit of {self._limit} bytes; "
                "raise file_size_limit or start another file"
            )
        shard = self._shard(entry)
        shard.timestamp_ms = max(shard.timestamp_ms, timestamp_ms)
        if checksum is None:
            checksum = crc16_little(payload)
        self._stand(shard, seq, self._double[shard.running ^ checksum])
        head = shard.prefix + FRAME_HEAD.pack(number, seq, timestamp_ms, size)
        tail = FRAME_TAIL.pack(checksum, CR)
        if self.offset % self._interval + total < self._interval:
            self._out += (head, payload, tail)
            self.offset += total
        else:
            self._cut(head + payload + tail)

    def add_run(self, first: Entry, payloads: Sequence[bytes]) -> bool:
        """Append frames like `first` with sequences that follow. False, and nothing is appended,
        where the limit is near: there `add` decides about each of them."""
        key, number, seq, timestamp_ms, _ = first
        total = (FRAME_OVERHEAD + len(key)) * len(payloads) + sum(map(len, payloads))
        if total > MAX_PAYLOAD or self._is_near(total):
            return False
        shard = self._shard(first)
        frames = self._framer.run(shard.prefix, number, seq, timestamp_ms, payloads, shard.running)
        shard.timestamp_ms = max(shard.timestamp_ms, timestamp_ms)
        at = 0
        while at < total:
            room = self._interval - self.offset % self._interval
            piece = frames.data[at : at + room]
            self._out.append(piece)
            at += len(piece)
            self.offset += len(piece)
            if len(piece) == room:
                cut = bisect_left(frames.ends, at)
                self._stand(shard, seq + cut, frames.running[cut])
                self._beacon(frames.ends[cut] - at)
        self._stand(shard, seq + len(payloads) - 1, frames.running[-1])
        return True

    def _shard(self, entry: Entry) -> _Shard:
        shard = self._shards.get((entry.key, entry.shard))
        if shard is None:
            prefix = bytes((len(entry.key),)) + entry.key
            shard = _Shard(prefix, entry.seq, entry.timestamp_ms, INITIAL)
            self._shards[entry.key, entry.shard] = shard
        return shard

    @staticmethod
    def _stand(shard: _Shard, seq: int, running: int) -> None:
        """So far a shard has come."""
        shard.seq = max(shard.seq, seq)
        shard.running = running

    def _is_near(self, total: int) -> bool:
        """Whether so many bytes may reach the limit: beacons take less than half the file."""
        return self.offset + 2 * total + self._interval > self._limit

    def _cut(self, frame: bytes) -> None:
        at = 0
        while at < len(frame):
            room = self._interval - self.offset % self._interval
            piece = frame[at : at + room]
            self._out.append(piece)
            at += len(piece)
            self.offset += len(piece)
            if len(piece) == room:
                self._beacon(len(frame) - at)

    def _beacon(self, remaining: int) -> None:
        shown = self._rotated(sorted(self._shards))
        self._emitted += len(shown)
        markers = tuple(
            Marker(name, number, shard.seq, shard.timestamp_ms, swap(shard.running))
            for name, number in shown
            for shard in (self._shards[name, number],)
        )
        encoded = Beacon(remaining, markers).encode()
        self._out.append(encoded)
        self.offset += len(encoded)

    def _rotated(self, names: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        if not names:
            return []
        first = self._emitted % len(names)
        return (names[first:] + names[:first])[: self._max_markers]

    def _grown(self, total: int, key: bytes, shard: int) -> int:
        """Where the file could end at most after a frame of this size, beacons and all."""
        keys = sorted((len(k) for k, _ in self._shards.keys() | {(key, shard)}), reverse=True)
        largest = keys[: self._max_markers]
        beacon = BEACON_OVERHEAD + sum(largest) + MARKER_OVERHEAD * len(largest)
        end = self.offset + total
        while True:
            beacons = end // self._interval - self.offset // self._interval
            grown = self.offset + total + beacons * beacon
            if grown == end:
                return end
            end = grown
