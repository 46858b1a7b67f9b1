"""Reading a `.ss` file from disk: forward in chunks, seeking by beacons, following its growth.

Synchronous; the backend calls it from a thread. Readers of one file share its descriptor. A file
that ends inside a frame is read again from that frame's start when more is asked for: a writer that
repairs a torn tail replaces those bytes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.streams.errors import ConnectError, FormatError, SeekOutOfRange, TruncatedFile
from ottla.streams.ss.decoder import Decoder
from ottla.streams.ss.format import EOS, HEADER_SIZE, Marker, decode_header
from ottla.streams.ss.sharing import open_shared
from ottla.streams.ss.survey import CHUNK, Survey, find_end
from ottla.streams.types import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.ss.sharing import Identity
    from ottla.streams.types import Message


class SsReader:
    """One reader at one place in one file."""

    def __init__(self, path: str):
        self.path = path
        try:
            self._file = open_shared(path)
        except OSError as error:
            raise ConnectError(f"cannot open {path}: {error.strerror}") from error
        try:
            self.header = decode_header(self.pread(0, HEADER_SIZE))
        except FormatError:
            self._file.close()
            raise
        self.ended = False
        self._decoder = Decoder(self.header.interval)
        self._held: list[Message] = []
        self._until: Callable[[Message], bool] | None = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def identity(self) -> Identity:
        """Which file it is, whatever its name."""
        return self._file.identity

    def survey(self) -> Survey:
        """The file as it is now."""
        return Survey(self.pread, os.fstat(self._file.descriptor).st_size, self.header.interval)

    def read(self, limit: int) -> list[Message]:
        """The next messages; an empty list at the current end."""
        while not self.ended:
            messages = self._held or self._decoder.take(limit)
            self._held = messages[limit:]
            messages = self._visible(messages[:limit])
            if messages:
                return messages
            if self._held or self.ended:
                continue
            data = self.pread(self._decoder.fed, CHUNK)
            if not data:
                return []
            self._decoder.feed(data)
        return []

    def _visible(self, messages: list[Message]) -> list[Message]:
        """What users see: nothing internal, behind an end mark, or before a seek's target."""
        if self._decoder.saw_internal:
            seen: list[Message] = []
            for message in messages:
                if message.stream != INTERNAL:
                    seen.append(message)
                elif message.payload == EOS:
                    self.ended = True
                    break
            messages = seen
        if self._until is not None:
            for index, message in enumerate(messages):
                if self._until(message):
                    self._until = None
                    return messages[index:]
            return []
        return messages

    def wait_again(self) -> None:
        """At the end of what is there: forget the part of a frame, it may come differently."""
        if not self._decoder.clean:
            offset = self._decoder.offset
            if os.fstat(self._file.descriptor).st_size < offset:
                raise FormatError(
                    "the file was truncated below the position of the reader", offset=offset
                )
            self._decoder = Decoder(self.header.interval, offset)

    def check_whole(self) -> None:
        """`TruncatedFile` if the file ends inside a frame."""
        if not self._decoder.clean:
            raise TruncatedFile("the file ends inside a frame", offset=self._decoder.offset)

    def gone(self) -> bool:
        """Whether the path no longer leads to this file."""
        try:
            there = Path(self.path).stat()
        except FileNotFoundError:
            return True
        return (there.st_dev, there.st_ino) != self.identity

    @property
    def offset(self) -> int:
        """Where in the file the next message is read."""
        return self._decoder.offset

    def to_offset(self, offset: int) -> None:
        """Go to a place that `offset` gave."""
        self._go(Decoder(self.header.interval, offset), None)

    def to_start(self) -> None:
        """Go to the first message."""
        self._go(Decoder(self.header.interval), None)

    def to_end(self) -> None:
        """Go behind the last whole message; an end mark is no message and is not passed."""
        self._go(Decoder(self.header.interval, find_end(self.survey()).offset), None)

    def to_seq(self, key: str | None, shard: int, seq: int, *, wait: bool) -> None:
        """Go to the first message of this shard (of anything, without a key) with seq or later."""
        self._seek(
            key,
            shard,
            lambda marker: marker.seq < seq,
            lambda message: message.seq >= seq,
            wait=wait,
        )

    def to_time(self, key: str | None, shard: int, timestamp_ns: int, *, wait: bool) -> None:
        """Go to the first message of this shard strictly later than a time, in milliseconds."""
        limit_ms = timestamp_ns // 1_000_000
        self._seek(
            key,
            shard,
            lambda marker: marker.timestamp_ms <= limit_ms,
            lambda message: message.timestamp_ns // 1_000_000 > limit_ms,
            wait=wait,
        )

    def _seek(
        self,
        key: str | None,
        shard: int,
        is_before: Callable[[Marker], bool],
        is_it: Callable[[Message], bool],
        *,
        wait: bool,
    ) -> None:
        survey = self.survey()
        index = 0 if key is None else survey.last_before(key.encode(), shard, is_before)

        def until(message: Message) -> bool:
            mine = key is None or (message.stream == key and message.shard == shard)
            return mine and is_it(message)

        for offset, message in survey.scan(survey.decoder(index)):
            if until(message) and message.stream != INTERNAL:
                self._go(Decoder(self.header.interval, offset), None)
                return
        if not wait:
            raise SeekOutOfRange(
                "there is nothing at that place yet; the position is unchanged", stream=key
            )
        self._go(Decoder(self.header.interval, find_end(survey).offset), until)

    def _go(self, decoder: Decoder, until: Callable[[Message], bool] | None) -> None:
        self._decoder = decoder
        self._until = until
        self._held = []
        self.ended = False

    def pread(self, offset: int, size: int) -> bytes:
        """Bytes of the file."""
        return os.pread(self._file.descriptor, size, offset)
