"""The Stdio backend: lines on this process's pipes, one reader and one writer for all of it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from ottla.clock import SYSTEM
from ottla.streams.base import Driver, Operation, Sink, Source
from ottla.streams.dispatch import Member, Roster
from ottla.streams.errors import DeliveryError, FormatError, ProducerEnded, StreamEnded
from ottla.streams.lines import NotOneLine, format_line, parse_line
from ottla.streams.types import BROADCAST, Backend, Message, Receipt, StdioOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import BinaryIO

    from ottla.streams.base import Host
    from ottla.streams.delivery import Batch, Delivery
    from ottla.streams.positions import StoredPositions
    from ottla.streams.types import ConnectOptions, ConsumerOptions, ProducerOptions
    from ottla.streams.url import StreamUrl

_log = logging.getLogger("ottla.streams")

CHUNK = 64 * 1024
_NO_REPLAY = "a pipe cannot be replayed"


class Hub:
    """One pipe in, one pipe out, and the consumers between them."""

    def __init__(self, options: StdioOptions):
        self.options = options
        self.members: dict[Member, StdioSource] = {}
        self.ended = False
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="ottla-stdout")
        self.sent: dict[tuple[str, int], int] = {}
        self._groups: dict[str, Roster] = {}
        self._received: dict[tuple[str, int], int] = {}
        self._rest = b""
        self._reader: threading.Thread | None = None
        self._drained = threading.Event()
        self._drained.set()
        self._warned = False
        self._warned_of_others = False

    def join(self, source: StdioSource) -> None:
        """A consumer comes; the first one starts the reader."""
        self.members[source.member] = source
        if source.group is not None:
            self._groups.setdefault(source.group, Roster()).join(source.member)
        if self._reader is None and not self.options.loopback:
            pipe = self.options.source or sys.stdin.buffer
            loop = asyncio.get_running_loop()
            # A daemon: a read of a pipe that stays open cannot be ended.
            self._reader = threading.Thread(
                target=self._read, args=(pipe, loop), name="ottla-stdin", daemon=True
            )
            self._reader.start()

    def leave(self, source: StdioSource) -> None:
        """Remove a consumer; its queued messages go to the rest of its group."""
        del self.members[source.member]
        if source.group is not None:
            self._groups[source.group].leave(source.member)
        self._wake()

    def _read(self, pipe: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        read = getattr(pipe, "read1", pipe.read)
        while True:
            try:
                data = read(CHUNK)
            except (OSError, ValueError):
                data = b""
            try:
                loop.call_soon_threadsafe(self.feed, data)
            except RuntimeError:
                return
            if not data:
                return
            self._drained.wait()

    def feed(self, data: bytes) -> None:
        """Bytes that were read; none at the end."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if not data:
            lines = [self._rest] if self._rest else []
            self._rest = b""
            self.ended = True
        messages = [message for line in lines if (message := self._message(line)) is not None]
        for raw, run in groupby(messages, lambda message: message.native_id is not None):
            if raw:
                lines_for_all = [message._replace(native_id=None) for message in run]
                for member in self.members:
                    member.queue.extend(lines_for_all)
            else:
                self._dispatch(list(run))
        self._wake()

    def _dispatch(self, messages: list[Message]) -> None:
        read = {stream for member in self.members for stream in member.streams}
        other = next((one for one in messages if one.stream not in read), None)
        if other is not None:
            self._tell_of_other(other.stream)
        for roster in self._groups.values():
            roster.dispatch(messages)
        for member, source in self.members.items():
            if source.group is None:
                member.queue.extend(m for m in messages if m.stream in member.streams)

    def _tell_of_other(self, stream: str) -> None:
        """A line names a stream that nobody reads."""
        said = (
            f"the line is of stream {stream!r} by its header [{stream}], and nobody reads that; "
            "StdioOptions(headers=False), or --plain of a relay, takes lines as they are"
        )
        if self.options.on_bad_line == "raise":
            for source in self.members.values():
                source.fail(FormatError(said))
        elif not self._warned_of_others:
            self._warned_of_others = True
            _log.warning("a line is left out, further ones silently: %s", said)

    def _wake(self) -> None:
        if any(member.is_full for member in self.members):
            self._drained.clear()
        for source in self.members.values():
            source.interrupt()

    def drained(self) -> None:
        """A consumer emptied its queue: reading may continue."""
        if not self._drained.is_set() and not any(member.is_full for member in self.members):
            self._drained.set()

    def _message(self, line: bytes) -> Message | None:
        if not self.options.headers:
            text = line.decode(errors="surrogateescape")
            return self._numbered(text, None, BROADCAST, None, 0, raw=True)
        text = line.removesuffix(b"\r").decode(errors="surrogateescape")
        escaped = self.options.newline == "escape"
        try:
            parsed = parse_line(text, escaped=escaped)
        except FormatError as error:
            if self.options.on_bad_line == "raise":
                for source in self.members.values():
                    source.fail(error)
                return None
            if self.options.on_bad_line == "skip":
                return None
            if not self._warned:
                self._warned = True
                _log.warning("a line is taken as it is, further ones silently: %s", error)
            return self._numbered(text, None, BROADCAST, None, 0, raw=True)
        stream = parsed.stream or BROADCAST
        raw = parsed.stream is None
        return self._numbered(
            parsed.payload, parsed.timestamp_ns, stream, parsed.seq, parsed.shard or 0, raw=raw
        )

    def _numbered(
        self,
        payload: str,
        timestamp_ns: int | None,
        stream: str,
        seq: int | None,
        shard: int,
        *,
        raw: bool,
    ) -> Message:
        if seq is None:
            seq = self._received.get((stream, shard), 0)
        self._received[stream, shard] = seq + 1
        return Message(
            stream,
            shard,
            seq,
            SYSTEM.wall_ns() if timestamp_ns is None else timestamp_ns,
            payload.encode(errors="surrogateescape"),
            native_id="raw" if raw else None,
        )

    def write(self, data: bytes) -> None:
        """On the writer's thread: all of it, now."""
        pipe = self.options.target or sys.stdout.buffer
        pipe.write(data)
        pipe.flush()


_process_hub: Hub | None = None


def _hub(options: StdioOptions) -> Hub:
    """The process's own pipes have one hub; given pipes and loopbacks have their own."""
    global _process_hub  # noqa: PLW0603 - a process has one stdin
    if options.loopback or options.source is not None or options.target is not None:
        return Hub(options)
    if _process_hub is None:
        _process_hub = Hub(options)
    return _process_hub


class StdioDriver(Driver):
    """This process's stdin and stdout."""

    backend = Backend.STDIO
    unsupported: ClassVar[Mapping[Operation, str]] = {
        Operation.RESUMABLE: _NO_REPLAY,
        Operation.SHARED: "share groups live in a Kafka-compatible broker",
        Operation.EARLIEST: _NO_REPLAY,
        Operation.OFFSETS: _NO_REPLAY,
        Operation.SEEK: _NO_REPLAY,
        Operation.REWIND: _NO_REPLAY,
        Operation.LAG: "a pipe does not say how much is in it",
        Operation.MESSAGE_KEYS: "a line holds time, stream, sequence, shard and text only",
        Operation.HEADERS: "a line holds time, stream, sequence, shard and text only",
        Operation.NULLS: "a line has a text, perhaps an empty one",
        Operation.BINARY: "lines are UTF-8 text",
        Operation.TRANSACTIONS: "a pipe has no transactions",
    }

    def __init__(self, url: StreamUrl, options: ConnectOptions):
        super().__init__(url, options)
        self._hub = _hub(options.stdio or StdioOptions())
        self._closed = False

    async def open(self) -> None:
        """Nothing to reach."""

    def source(
        self, streams: Sequence[str], options: ConsumerOptions, stored: StoredPositions | None
    ) -> Source:
        """A consumer of lines."""
        return StdioSource(self._hub, streams, options.group)

    def sink(self, options: ProducerOptions) -> Sink:
        """A producer of lines."""
        return StdioSink(self._hub)

    async def close(self) -> None:
        """Consumers and producers are closed already."""


class StdioSource(Source):
    """Messages of the hub for one consumer."""

    def __init__(self, hub: Hub, streams: Sequence[str], group: str | None):
        self.member = Member(streams)
        self._hub = hub
        self._group = group
        self._event = asyncio.Event()
        self._error: FormatError | None = None
        self._joined = False

    @property
    def group(self) -> str | None:
        return self._group

    async def open(self, host: Host) -> None:
        self._hub.join(self)
        self._joined = True

    async def fetch(self, max_messages: int, wait: float) -> list[Message]:
        queue = self.member.queue
        if not queue:
            if self._error is not None:
                raise self._error
            if self._hub.ended:
                raise StreamEnded("stdin has ended")
            self._event.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._event.wait()
            except TimeoutError:
                return []
        taken = [queue.popleft() for _ in range(min(max_messages, len(queue)))]
        self._hub.drained()
        return taken

    def interrupt(self) -> None:
        self._event.set()

    def fail(self, error: FormatError) -> None:
        """Fail because of a bad line."""
        self._error = error
        self._event.set()

    async def give_back(self, messages: Sequence[Message]) -> None:
        self.member.queue.extendleft(reversed(messages))

    async def close(self) -> None:
        if self._joined:
            self._joined = False
            self._hub.leave(self)


class StdioSink(Sink):
    """Lines to stdout, a batch in one write."""

    def __init__(self, hub: Hub):
        self._hub = hub
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def write(self, batch: Batch) -> None:
        if not self._open:
            raise ProducerEnded("the streamer was closed")
        lines: list[bytes] = []
        written: list[tuple[Delivery, Receipt]] = []
        sent = self._hub.sent
        now = SYSTEM.wall_ns()
        for message, delivery in batch.deliveries():
            shard = message.shard or 0
            seq = sent.get((message.stream, shard), 0)
            moment = now if message.timestamp_ns is None else message.timestamp_ns
            receipt = Receipt(message.stream, shard, seq, moment)
            try:
                options = self._hub.options
                lines.append(
                    format_line(
                        receipt,
                        message.payload,
                        escape=options.newline == "escape",
                        header=options.headers,
                    )
                )
            except NotOneLine as error:
                delivery.reject(error)
                continue
            sent[message.stream, shard] = seq + 1
            written.append((delivery, receipt))
        data = b"".join(lines)
        if self._hub.options.loopback:
            if data:
                self._hub.feed(data)
        else:
            try:
                await asyncio.get_running_loop().run_in_executor(
                    self._hub.writer, self._hub.write, data
                )
            except (OSError, ValueError) as error:
                raise DeliveryError(f"stdout is closed: {error}") from None
        for delivery, receipt in written:
            delivery.resolve(receipt)

    async def close(self, *, end: bool) -> None:
        self._open = False
