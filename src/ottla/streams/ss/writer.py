"""Writing a `.ss` file: one writer per path and process, shared by producers, locked for others.

Synchronous; called from one thread of its own. Opening repairs: a torn or damaged tail and an end
mark are cut off and the cut is synced before anything is written. A write that fails is cut off
again, so that the file is valid whenever this code is not inside a system call.
"""

from __future__ import annotations

import fcntl
import logging
import os
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.clock import SYSTEM
from ottla.streams.errors import (
    ConnectError,
    FileBusy,
    FileLimitExceeded,
    InvalidBeaconInterval,
    StreamError,
    TruncatedFile,
)
from ottla.streams.ss.crc import crc16_each
from ottla.streams.ss.encoder import Encoder, Entry
from ottla.streams.ss.format import HEADER_SIZE, WRITE_UNIT, Header, decode_header
from ottla.streams.ss.survey import Survey, find_end, last_marker
from ottla.streams.types import Create, Receipt, Receipts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.streams.types import FileOptions, Outgoing

_log = logging.getLogger("ottla.streams")

_RUN = attrgetter("stream", "shard", "timestamp_ns")

_FLAGS = {
    Create.NEVER: 0,
    Create.IF_MISSING: os.O_CREAT,
    Create.EXCLUSIVE: os.O_CREAT | os.O_EXCL,
}


def check_interval(interval: int) -> None:
    """Writers take positive multiples of 1024."""
    if interval <= 0 or interval % WRITE_UNIT:
        raise InvalidBeaconInterval(
            f"beacon_interval={interval}: use a positive multiple of {WRITE_UNIT}"
        )


def lock(fd: int, path: str) -> None:
    """Keep other processes from writing, or `FileBusy` if one does."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileBusy(f"{path} is being written by another process") from None


class SsWriter:
    """Appends to a file that nobody else writes."""

    def __init__(self, path: str, options: FileOptions):
        check_interval(options.beacon_interval)
        self.path = path
        self._options = options
        flags = os.O_RDWR | os.O_CLOEXEC | _FLAGS[options.create]
        try:
            self._fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            raise ConnectError(
                f"{path} is not there; FileOptions(create=Create.IF_MISSING) makes it"
            ) from None
        except FileExistsError:
            raise ConnectError(f"{path} is there already and create=EXCLUSIVE") from None
        except OSError as error:
            raise ConnectError(f"cannot open {path} for writing: {error.strerror}") from error
        try:
            lock(self._fd, path)
            self._encoder = self._prepare()
        except BaseException:
            os.close(self._fd)
            raise

    def _prepare(self) -> Encoder:
        size = os.fstat(self._fd).st_size
        if size == 0:
            return self._begin()
        try:
            header = decode_header(os.pread(self._fd, HEADER_SIZE, 0))
        except TruncatedFile:
            _log.warning("%s ends inside its header: it is written again from the start", self.path)
            return self._begin()
        self._interval = header.interval
        if size > self._options.file_size_limit:
            raise FileLimitExceeded(
                f"{self.path} has {size} bytes, more than file_size_limit="
                f"{self._options.file_size_limit}; raise it or start another file"
            )
        end = find_end(self._survey())
        if end.offset != size:
            if end.reason is not None:
                _log.warning("%s: cut off a damaged tail: %s", self.path, end.reason)
            os.ftruncate(self._fd, end.offset)
            os.fsync(self._fd)
        encoder = Encoder(
            header.interval,
            end.offset,
            markers=end.markers.values(),
            limit=self._options.file_size_limit,
        )
        encoder.beacon_if_due()
        self._write(end.offset, encoder.take())
        return encoder

    def _begin(self) -> Encoder:
        self._interval = self._options.beacon_interval
        header = Header(Path(self.path).name, SYSTEM.wall_ms(), self._interval)
        encoder = Encoder(self._interval, HEADER_SIZE, limit=self._options.file_size_limit)
        encoder.beacon_if_due()
        self._write(0, header.encode() + encoder.take())
        return encoder

    def append(self, messages: Sequence[Outgoing]) -> list[Receipts | StreamError]:
        """Write messages in order; runs of them get their receipts, the others the reason."""
        start = self._encoder.offset
        now = SYSTEM.wall_ns()
        results: list[Receipts | StreamError] = []
        for (stream, shard, given_ns), run in groupby(messages, _RUN):
            time_ms = (now if given_ns is None else given_ns) // 1_000_000
            payloads = [message.payload for message in run]
            self._append_run(stream, shard or 0, time_ms, payloads, results)
        self._write(start, self._encoder.take())
        return results

    def _append_run(
        self,
        stream: str,
        shard: int,
        time_ms: int,
        payloads: list[bytes],
        results: list[Receipts | StreamError],
    ) -> None:
        """Messages of one shard and one time: whole stretches between beacons at once."""
        key, time_ns = stream.encode(), time_ms * 1_000_000
        checksums = crc16_each(payloads)
        seq = self._next_seq(key, shard)
        at = 0
        while at < len(payloads):
            entry = Entry(key, shard, seq, time_ms, payloads[at])
            count = self._encoder.add_many(entry, payloads[at:], checksums[at:])
            if not count:
                try:
                    self._encoder.add(entry, checksums[at])
                except FileLimitExceeded as error:
                    results.append(error)
                    at += 1
                    continue
                count = 1
            results.append(Receipts(Receipt(stream, shard, seq, time_ns), count))
            at += count
            seq += count

    def _next_seq(self, key: bytes, shard: int) -> int:
        last = self._encoder.last_seq(key, shard)
        if last is not None:
            return last + 1
        survey = self._survey()
        marker = last_marker(survey, key, shard) if survey.beacons else None
        if marker is None:
            return 1
        self._encoder.learn(marker)
        return marker.seq + 1

    def sync(self, *, eos: bool = False) -> None:
        """Make everything durable, with an end mark if asked."""
        if eos:
            start = self._encoder.offset
            self._encoder.eos(SYSTEM.wall_ms())
            self._write(start, self._encoder.take())
        os.fsync(self._fd)

    def close(self) -> None:
        """Let go of the file and its lock."""
        os.close(self._fd)

    def _write(self, start: int, data: bytes) -> None:
        view, at = memoryview(data), start
        try:
            while view:
                written = os.pwrite(self._fd, view, at)
                view, at = view[written:], at + written
        except OSError:
            os.ftruncate(self._fd, start)
            if start >= HEADER_SIZE:
                self._encoder = self._prepare()
            raise

    def _survey(self) -> Survey:
        size = os.fstat(self._fd).st_size
        return Survey(lambda offset, count: os.pread(self._fd, count, offset), size, self._interval)
