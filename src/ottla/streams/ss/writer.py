"""Writing a `.ss` file: one writer per path and process, shared by producers, locked for others.

Synchronous; called from one thread of its own. Opening repairs: a torn or damaged tail and an end
mark are cut off and the cut is synced before anything is written. A write that fails is cut off
again, so that the file is valid whenever this code is not inside a system call.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.clock import SYSTEM
from ottla.streams.errors import (
    ConnectError,
    DeliveryError,
    FileBusy,
    FileLimitExceeded,
    InvalidBeaconInterval,
    StreamError,
    TruncatedFile,
)
from ottla.streams.ss.crc import crc16_each
from ottla.streams.ss.encoder import Encoder, Entry
from ottla.streams.ss.format import HEADER_SIZE, MAX_SHARD, WRITE_UNIT, Header, decode_header
from ottla.streams.ss.frames import stretch
from ottla.streams.ss.survey import Survey, find_end, last_marker
from ottla.streams.types import Create, Receipt, Receipts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.streams.types import FileOptions, Outgoing

_log = logging.getLogger("ottla.streams")


class Run(NamedTuple):
    """Messages of one shard and, if one is given, one time."""

    stream: str
    shard: int | None
    timestamp_ns: int | None
    payloads: list[bytes]


_HEAD = attrgetter("stream", "shard", "timestamp_ns")


def runs(messages: Iterable[Outgoing]) -> list[Run]:
    """The same messages in the same order."""
    return [Run(*head, [one.payload for one in run]) for head, run in groupby(messages, _HEAD)]


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
    """Appends to a file as its only writer."""

    def __init__(self, path: str, options: FileOptions):
        check_interval(options.beacon_interval)
        self.path = path
        self._options = options
        flags = os.O_RDWR | os.O_CLOEXEC | _FLAGS[options.create]
        try:
            self._fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            directory = os.path.dirname(path) or "."  # noqa: PTH120 (paths are texts here)
            if not os.path.isdir(directory):  # noqa: PTH112
                raise ConnectError(
                    f"{path}: there is no directory {directory}; create it first"
                ) from None
            raise ConnectError(
                f"{path} does not exist; connect(url, FileOptions(create='if_missing')) creates it"
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
        self._end = end.offset
        encoder.beacon_if_due()
        self._put(encoder.take())
        return encoder

    def _begin(self) -> Encoder:
        self._interval = self._options.beacon_interval
        header = Header(Path(self.path).name, SYSTEM.wall_ms(), self._interval)
        encoder = Encoder(self._interval, HEADER_SIZE, limit=self._options.file_size_limit)
        encoder.beacon_if_due()
        self._end = 0
        self._put(b"".join((header.encode(), encoder.take())))
        return encoder

    def append(
        self, runs: Iterable[Run], *, stop_at_failure: bool = False
    ) -> list[Receipts | StreamError]:
        """Write messages in order; runs of them get their receipts, the others the reason.

        With `stop_at_failure` the first failure is the last result.
        """
        now = SYSTEM.wall_ns()
        results: list[Receipts | StreamError] = []
        with self._all_or_nothing():
            for stream, shard, given_ns, payloads in runs:
                time_ms = (now if given_ns is None else given_ns) // 1_000_000
                if time_ms < 0 or (shard or 0) > MAX_SHARD:
                    results += [_unfit(stream, shard)] * (1 if stop_at_failure else len(payloads))
                else:
                    key = stream.encode()
                    first = Entry(key, shard or 0, self._next_seq(key, shard or 0), time_ms, b"")
                    results += self._append_run(stream, first, payloads, stop=stop_at_failure)
                if stop_at_failure and isinstance(results[-1], StreamError):
                    break
        return results

    def _append_run(
        self, stream: str, entry: Entry, payloads: list[bytes], *, stop: bool
    ) -> Iterator[Receipts | StreamError]:
        """Messages of one shard and one time."""
        time_ns = entry.timestamp_ms * 1_000_000
        count = stretch(entry.key, payloads)
        for at in range(0, len(payloads), count):
            part = payloads[at : at + count]
            if self._encoder.add_run(entry, part):
                yield Receipts(Receipt(stream, entry.shard, entry.seq, time_ns), len(part))
                entry = entry._replace(seq=entry.seq + len(part))
            else:
                for payload, checksum in zip(part, crc16_each(part), strict=True):
                    try:
                        self._encoder.add(entry._replace(payload=payload), checksum)
                    except FileLimitExceeded as error:
                        yield error
                        if stop:
                            self._put(self._encoder.take())
                            return
                    else:
                        yield Receipts(Receipt(stream, entry.shard, entry.seq, time_ns), 1)
                        entry = entry._replace(seq=entry.seq + 1)
            self._put(self._encoder.take())

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
            with self._all_or_nothing():
                self._encoder.eos(SYSTEM.wall_ms())
                self._put(self._encoder.take())
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file and release its lock."""
        os.close(self._fd)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Truncate the file again if the block fails."""
        start = self._end
        try:
            yield
        except BaseException:
            os.ftruncate(self._fd, start)
            self._encoder = self._prepare()
            raise

    def _put(self, data: bytes | memoryview) -> None:
        """Write at the end of the file."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, self._end)
            view, self._end = view[written:], self._end + written

    def _survey(self) -> Survey:
        size = os.fstat(self._fd).st_size
        return Survey(lambda offset, count: os.pread(self._fd, count, offset), size, self._interval)


def _unfit(stream: str, shard: int | None) -> DeliveryError:
    return DeliveryError(
        f"a .ss file holds times from 1970 on and shards up to {MAX_SHARD}",
        stream=stream,
        shard=shard,
    )
