"""Inspect, check and repair a whole `.ss` file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.streams.errors import FormatError
from ottla.streams.ss.decoder import Decoder
from ottla.streams.ss.format import EOS, Header
from ottla.streams.ss.reader import SsReader
from ottla.streams.ss.survey import CHUNK, advance, find_end
from ottla.streams.ss.writer import lock
from ottla.streams.types import INTERNAL, timestamp_text

if TYPE_CHECKING:
    from ottla.streams.ss.format import Beacon, Marker
    from ottla.streams.types import Message


class ShardSummary(NamedTuple):
    """One shard of a file."""

    stream: str
    shard: int
    messages: int
    bytes: int
    first: int
    last: int
    until: str


class Inspection(NamedTuple):
    """A whole file. `problem` is None if all of it is sound; `notes` are no damage."""

    header: Header
    size: int
    beacons: int
    messages: int
    ended: bool
    shards: list[ShardSummary]
    problem: str | None
    notes: list[str]

    @property
    def created(self) -> str:
        """When the file was made."""
        return timestamp_text(self.header.created_ms * 1_000_000)


class _Walk:
    """Counts frames and holds each beacon's running checksums against those of the frames."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], list[int]] = {}
        self.markers: dict[tuple[bytes, int], Marker] = {}
        self.beacons: list[tuple[int, Beacon]] = []
        self.notes: list[str] = []
        self.messages = 0
        self.ended = False

    def message(self, message: Message) -> None:
        advance(self.markers, message)
        if message.stream == INTERNAL:
            self.ended = message.payload == EOS
            return
        self.ended = False
        self.messages += 1
        counted = self.counts.setdefault((message.stream, message.shard), [0, 0, message.seq])
        counted[0] += 1
        counted[1] += len(message.payload)

    def check(self, offset: int) -> None:
        """Compare the beacons before this offset, whose frames have all been seen."""
        while self.beacons and self.beacons[0][0] < offset:
            at, beacon = self.beacons.pop(0)
            for marker in beacon.markers:
                seen = self.markers.get((marker.key, marker.shard))
                if seen is not None and seen.seq == marker.seq and seen.running != marker.running:
                    self.notes.append(
                        f"the beacon at byte {at} has running checksum {marker.running:04X} for "
                        f"{marker.key.decode()}, the frames give {seen.running:04X} "
                        "(a writer that reopened the file restarted the checksum)"
                    )


def inspect_file(path: str) -> Inspection:
    """Read all of a file; damage is reported, not raised."""
    reader = SsReader(path)
    try:
        survey = reader.survey()
        walk = _Walk()
        decoder = Decoder(
            survey.interval, on_beacon=lambda at, beacon: walk.beacons.append((at, beacon))
        )
        problem: str | None = None
        try:
            while data := reader.pread(decoder.fed, CHUNK):
                decoder.feed(data)
                while found := decoder.take(1):
                    walk.message(found[0])
                    walk.check(decoder.offset)
            if not decoder.clean:
                problem = f"at byte {decoder.offset}: the file ends inside a frame or beacon"
        except FormatError as error:
            problem = str(error)
        shards = [
            ShardSummary(stream, shard, count, size, first, marker.seq, _time(marker))
            for (stream, shard), (count, size, first) in sorted(walk.counts.items())
            for marker in (walk.markers[stream.encode(), shard],)
        ]
        return Inspection(
            reader.header,
            survey.size,
            survey.beacons,
            walk.messages,
            walk.ended,
            shards,
            problem,
            walk.notes,
        )
    finally:
        reader.close()


def repair_file(path: str) -> int:
    """Cut a torn or damaged tail off and sync; returns how many bytes went. An end mark stays."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        lock(fd, path)
        reader = SsReader(path)
        try:
            end = find_end(reader.survey())
        finally:
            reader.close()
        if end.reason is None:
            return 0
        size = os.fstat(fd).st_size
        os.ftruncate(fd, end.offset)
        os.fsync(fd)
        return size - end.offset
    finally:
        os.close(fd)


def _time(marker: Marker) -> str:
    return timestamp_text(marker.timestamp_ms * 1_000_000)
