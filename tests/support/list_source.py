"""A source over lists, for tests of the consumer shell: no store, no clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from ottla.streams.base import Driver, Operation, Progress, Sink, Source
from ottla.streams.errors import SeekOutOfRange, StreamEnded
from ottla.streams.types import (
    Backend,
    ConnectOptions,
    ConsumerOptions,
    Message,
    Outgoing,
    ProducerOptions,
    Receipt,
    SeqPos,
    ShardKey,
    to_ns,
)
from ottla.streams.url import StreamUrl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ottla.streams.base import Host
    from ottla.streams.delivery import Batch
    from ottla.streams.positions import StoredPositions


def messages(count: int, stream: str = "a", shard: int = 0, first: int = 1) -> list[Message]:
    """Messages with sequences from `first`, one a millisecond, the sequence as payload."""
    return [
        Message(stream, shard, seq, seq * 1_000_000, str(seq).encode())
        for seq in range(first, first + count)
    ]


class ListSource(Source):
    """Delivers `script`, an exception in it is raised; then waits, or ends if `ends`."""

    def __init__(self, script: Sequence[Message], *, ends: bool = False, chunk: int = 100):
        self.script = list(script)
        self.ends = ends
        self.chunk = chunk
        self.at = 0
        self.fetches = 0
        self.commits: list[Progress] = []
        self.fail_commit: Exception | None = None
        self.fail_fetch: Exception | None = None
        self.closed = False
        self.host: Host | None = None
        self._more = asyncio.Event()

    async def open(self, host: Host) -> None:
        self.host = host

    def add(self, more: Sequence[Message]) -> None:
        """Messages arrive."""
        self.script.extend(more)
        self._more.set()

    async def fetch(self, max_messages: int, wait: float) -> list[Message]:
        self.fetches += 1
        if self.fail_fetch is not None:
            raise self.fail_fetch
        if self.at >= len(self.script):
            if self.ends:
                raise StreamEnded("the list is at its end")
            self._more.clear()
            try:
                async with asyncio.timeout(min(wait, 0.02)):
                    await self._more.wait()
            except TimeoutError:
                return []
        await asyncio.sleep(0)
        taken = self.script[self.at : self.at + min(max_messages, self.chunk)]
        self.at += len(taken)
        return taken

    def interrupt(self) -> None:
        self._more.set()

    async def commit(self, progress: Progress) -> None:
        if self.fail_commit is not None:
            raise self.fail_commit
        self.commits.append(progress)

    async def seek(self, to: datetime, shards: frozenset[ShardKey]) -> None:
        self._go(next((i for i, m in enumerate(self.script) if m.timestamp_ns > to_ns(to)), None))

    async def rewind(self, to: SeqPos, shards: frozenset[ShardKey]) -> None:
        await asyncio.sleep(0.01)
        if to.kind == "at":
            self._go(next((i for i, m in enumerate(self.script) if m.seq >= to.seq), None))
        else:
            self.at = 0 if to.kind == "beginning" else len(self.script)

    def _go(self, index: int | None) -> None:
        if index is None:
            raise SeekOutOfRange("nothing there")
        self.at = index

    async def lag(self, positions: Mapping[ShardKey, int]) -> dict[ShardKey, int | None]:
        return {key: self.script[-1].seq + 1 - position for key, position in positions.items()}

    async def close(self) -> None:
        self.closed = True


class ListSink(Sink):
    """Keeps what it is given; can be held back and can refuse."""

    def __init__(self) -> None:
        self.taken: list[Outgoing] = []
        self.refuse: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.ended = False

    async def open(self) -> None:
        pass

    async def write(self, batch: Batch) -> None:
        await self.gate.wait()
        if self.refuse is not None:
            raise self.refuse
        for message, delivery in batch.deliveries():
            self.taken.append(message)
            delivery.resolve(Receipt(message.stream, 0, len(self.taken), 0))

    async def close(self, *, end: bool) -> None:
        self.ended = end


class ListDriver(Driver):
    """Hands out the source and the sink it was given."""

    backend = Backend.FILE
    unsupported: ClassVar[Mapping[Operation, str]] = {}

    def __init__(self, source: ListSource, sink: ListSink | None = None):
        super().__init__(StreamUrl("file", (".",)), ConnectOptions())
        self.the_source = source
        self.the_sink = sink or ListSink()

    async def open(self) -> None:
        pass

    def source(
        self, streams: Sequence[str], options: ConsumerOptions, stored: StoredPositions | None
    ) -> Source:
        return self.the_source

    def sink(self, options: ProducerOptions) -> Sink:
        return self.the_sink

    async def close(self) -> None:
        pass
