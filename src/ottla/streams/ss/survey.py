"""Finding places in a `.ss` file: by sequence, by time, and its true end.

Works on `read(offset, size) -> bytes`, so it does not care where the bytes are. Beacons are
bisected by the marker of the shard that is looked for; those without it are undecided and their
neighbours asked instead. The rest is a scan from one beacon on.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ottla.streams.errors import FormatError
from ottla.streams.ss.crc import INITIAL, crc16
from ottla.streams.ss.decoder import Decoder
from ottla.streams.ss.format import EOS, HEADER_SIZE, Marker, decode_beacon
from ottla.streams.types import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.streams.ss.format import Beacon
    from ottla.streams.types import Message

    ReadAt = Callable[[int, int], bytes]

CHUNK = 256 * 1024
"""Bytes per read: large enough to cost little per message, small enough to wait for."""

_BEACON_READ = 72 * 1024
"""No beacon is larger: 255 markers of 282 bytes, and its own 7."""


class Survey:
    """A file of `size` bytes as it is now."""

    def __init__(self, read: ReadAt, size: int, interval: int):
        self._read = read
        self.size = size
        self.interval = interval

    @property
    def beacons(self) -> int:
        """How many beacons there may be; the last may be torn."""
        return max(0, (self.size - 1) // self.interval)

    def beacon(self, index: int) -> Beacon | None:
        """The beacon with this number, from 1; None if it is torn."""
        offset = index * self.interval
        found = decode_beacon(self._read(offset, min(_BEACON_READ, self.interval)), 0, offset)
        return None if found is None else found[0]

    def decoder(self, index: int, *, verify: bool = True) -> Decoder:
        """A decoder that starts after this beacon; 0 is the start of the file."""
        if index == 0:
            return Decoder(self.interval, HEADER_SIZE, verify=verify)
        return Decoder(self.interval, index * self.interval, align=True, verify=verify)

    def scan(self, decoder: Decoder) -> Iterator[tuple[int, Message]]:
        """Each message from there on with the offset of its frame, up to what is whole."""
        while True:
            while True:
                offset = decoder.offset
                found = decoder.take(1)
                if not found:
                    break
                yield offset, found[0]
            data = self._read(decoder.fed, min(CHUNK, self.size - decoder.fed))
            if not data:
                return
            decoder.feed(data)

    def last_before(self, key: bytes, shard: int, is_before: Callable[[Marker], bool]) -> int:
        """The last beacon whose marker of this shard is before what is looked for; 0 if none."""
        low, high = 0, self.beacons + 1
        while high - low > 1:
            middle = (low + high) // 2
            for index in chain(range(middle, high), range(middle - 1, low, -1)):
                marker = self._marker(index, key, shard)
                if marker is not None:
                    break
            else:
                return low
            if is_before(marker):
                low = index
            else:
                high = index
        return low

    def _marker(self, index: int, key: bytes, shard: int) -> Marker | None:
        beacon = self.beacon(index)
        if beacon is None:
            return None
        return next((m for m in beacon.markers if m.key == key and m.shard == shard), None)


class End(NamedTuple):
    """The end of a file for appending, and the last sequences of its shards.

    `offset` is before a torn or damaged tail and before an end mark. `reason` says what is there.
    `markers` are the shards of the last whole beacon and of all frames after it.
    """

    offset: int
    markers: dict[tuple[bytes, int], Marker]
    reason: str | None
    ended: bool


def find_end(survey: Survey) -> End:
    """Scan from the last beacon whose frame is whole."""
    for index in range(survey.beacons, -1, -1):
        try:
            beacon = survey.beacon(index) if index else None
        except FormatError:
            continue
        if index and beacon is None:
            continue
        decoder = survey.decoder(index)
        markers = {(m.key, m.shard): m for m in beacon.markers} if beacon is not None else {}
        end = _scan_end(survey, decoder, markers)
        if decoder.aligned:
            return end
    raise FormatError("the file has no readable part")


def _scan_end(survey: Survey, decoder: Decoder, markers: dict[tuple[bytes, int], Marker]) -> End:
    reason: str | None = None
    end_mark: int | None = None
    try:
        for offset, message in survey.scan(decoder):
            if message.stream == INTERNAL and message.payload == EOS:
                end_mark = offset
                continue
            end_mark = None
            advance(markers, message)
    except FormatError as error:
        reason = str(error)
    else:
        if not decoder.clean:
            reason = f"at byte {decoder.offset}: the file ends inside a frame or beacon"
    offset = decoder.offset if end_mark is None else end_mark
    return End(offset, markers, reason, end_mark is not None)


def advance(markers: dict[tuple[bytes, int], Marker], message: Message) -> None:
    """Move the marker of a message's shard on, as a writer would have."""
    key = (message.stream.encode(), message.shard)
    known = markers.get(key)
    checksum = crc16(message.payload).to_bytes(2, "big")
    time_ms = message.timestamp_ns // 1_000_000
    if known is None:
        markers[key] = Marker(*key, message.seq, time_ms, crc16(checksum, INITIAL))
    else:
        markers[key] = Marker(
            *key,
            max(known.seq, message.seq),
            max(known.timestamp_ms, time_ms),
            crc16(checksum, known.running),
        )


def last_marker(survey: Survey, key: bytes, shard: int) -> Marker | None:
    """How far a shard has come that the last beacon does not tell of; reads back, then forward."""
    start, marker = 0, None
    for index in range(survey.beacons, 0, -1):
        beacon = survey.beacon(index)
        if beacon is None:
            continue
        marker = next((m for m in beacon.markers if m.key == key and m.shard == shard), None)
        if marker is not None:
            start = index
            break
    name = key.decode()
    if marker is None:
        # Most likely a new stream: look at the heads of frames only before reading them all.
        heads = survey.scan(survey.decoder(0, verify=False))
        if not any(message.stream == name and message.shard == shard for _, message in heads):
            return None
    known = {} if marker is None else {(key, shard): marker}
    decoder = survey.decoder(start)
    for _, message in survey.scan(decoder):
        if message.stream == name and message.shard == shard:
            advance(known, message)
    return known.get((key, shard))
