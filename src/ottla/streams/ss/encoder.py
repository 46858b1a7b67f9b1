"""Messages to the bytes of a `.ss` file, cut around beacons. Pure."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_pack_head = FRAME_HEAD.pack
_pack_tail = FRAME_TAIL.pack


class Entry(NamedTuple):
    """What a frame holds."""

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
        self._out: list[bytes] = []
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

    def take(self) -> bytes:
        """The bytes since the last call, to be written where the file ends."""
        taken = b"".join(self._out)
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
        # Beacons take less than half the file: far from the limit nothing has to be counted.
        near = self.offset + 2 * total + self._interval > self._limit
        if near and self._grown(total, key, number) > self._limit:
            raise FileLimitExceeded(
                f"the file would grow past its limit of {self._limit} bytes; "
                "raise file_size_limit or start another file"
            )
        shard = self._shards.get((key, number))
        if shard is None:
            shard = _Shard(bytes((len(key),)) + key, seq, timestamp_ms, INITIAL)
            self._shards[key, number] = shard
        shard.seq = max(shard.seq, seq)
        shard.timestamp_ms = max(shard.timestamp_ms, timestamp_ms)
        if checksum is None:
            checksum = crc16_little(payload)
        shard.running = self._double[shard.running ^ checksum]
        head = shard.prefix + FRAME_HEAD.pack(number, seq, timestamp_ms, size)
        tail = FRAME_TAIL.pack(checksum, CR)
        if self.offset % self._interval + total < self._interval:
            self._out += (head, payload, tail)
            self.offset += total
        else:
            self._cut(head + payload + tail)

    def add_many(self, first: Entry, payloads: Sequence[bytes], checksums: Sequence[int]) -> int:
        """Append frames like `first` with sequences that follow, as many as fit before the next
        beacon and the limit. Returns how many; `add` takes the one that did not fit."""
        key, number, seq, timestamp_ms, _ = first
        shard = self._shards.get((key, number))
        if shard is None or not payloads:
            return 0
        room = min(self._interval - self.offset % self._interval, self._limit - self.offset)
        prefix, running, double, out = shard.prefix, shard.running, self._double, self._out
        overhead = FRAME_OVERHEAD + len(key)
        left, count = room, 0
        for payload, checksum in zip(payloads, checksums, strict=True):
            size = len(payload)
            left -= overhead + size
            if left <= 0:
                left += overhead + size
                break
            running = double[running ^ checksum]
            head = _pack_head(number, seq + count, timestamp_ms, size)
            out += (prefix, head, payload, _pack_tail(checksum, CR))
            count += 1
        if count:
            shard.seq = max(shard.seq, seq + count - 1)
            shard.timestamp_ms = max(shard.timestamp_ms, timestamp_ms)
            shard.running = running
            self.offset += room - left
        return count

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
