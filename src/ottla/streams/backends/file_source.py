"""A consumer's way into a `.ss` file: start, follow, seek, resume."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from ottla.offsets import StaleOffset
from ottla.streams.base import Source
from ottla.streams.dispatch import Member
from ottla.streams.errors import NoStoredPosition, PositionOutOfRange, StreamEnded
from ottla.streams.ss.reader import SsReader
from ottla.streams.ss.sharing import reading_thread
from ottla.streams.ss.survey import find_end, last_marker
from ottla.streams.ss.watch import Watch
from ottla.streams.types import BEGINNING, END, WILDCARD, At, Reset, ShardKey, to_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from typing import TypeVar

    from ottla.streams.backends.file_group import FileGroup
    from ottla.streams.base import Host
    from ottla.streams.positions import StoredPositions
    from ottla.streams.ss.sharing import SharedThread
    from ottla.streams.types import ConsumerOptions, FileOptions, Message, SeqPos

    T = TypeVar("T")


class FileSource(Source):
    """Sources of one file share a descriptor and a thread; those of a group also the reader."""

    def __init__(
        self,
        path: str,
        streams: Sequence[str],
        options: ConsumerOptions,
        file: FileOptions,
        stored: StoredPositions | None,
        group: FileGroup | None,
    ):
        self._path = path
        self._real_path = os.path.realpath(path)
        self._streams = tuple(streams)
        self._wanted = None if WILDCARD in streams else frozenset(streams)
        self._options = options
        self._file = file
        self._stored = stored
        self._group = group
        self._member: Member | None = None
        self._detached = False
        self._reader: SsReader | None = None
        self._watch: Watch | None = None
        self._thread: SharedThread | None = None
        self._shards: frozenset[ShardKey] = frozenset()
        self._skip_below: dict[ShardKey, int] = {}
        self._next: dict[ShardKey, int] = {}
        self._interrupted = False

    @property
    def native(self) -> object:
        return self._reader

    @property
    def group(self) -> str | None:
        return self._options.group if self._member is not None else None

    @property
    def no_commit(self) -> str | None:
        if self._detached:
            return "a seek took this consumer out of its group; it has no position to commit"
        return None

    async def open(self, host: Host) -> None:
        self._thread = reading_thread(self._real_path)
        if self._group is not None:
            await self._join(self._group)
            self._follow(self._the_reader())
            return
        self._reader = await self._run(lambda: SsReader(self._path))
        self._follow(self._reader)
        if self._stored is not None:
            await self._resume(self._reader, self._stored)
        else:
            await self._run(self._reset(self._reader, self._options.reset))

    def _follow(self, reader: SsReader) -> None:
        """Wait for this file to grow."""
        file = self._file
        self._watch = Watch(self._path, reader.identity, file.max_poll, told=file.watch)

    async def _join(self, group: FileGroup) -> None:
        async with group.lock:
            if group.reader is None:
                reader = await self._run(lambda: SsReader(self._path))
                await self._run(self._reset(reader, self._options.reset))
                group.reader = reader
                group.start = (self._options.reset, self._file.follow)
            self._reader = group.reader
            self._member = Member(self._streams)
            group.join(self._member, self.interrupt)

    @staticmethod
    def _reset(reader: SsReader, reset: Reset) -> Callable[[], None]:
        return reader.to_end if reset is Reset.LATEST else reader.to_start

    # ---- resuming from a store

    async def _resume(self, reader: SsReader, stored: StoredPositions) -> None:
        stored.epoch = str(reader.header.created_ms)
        known = await stored.store.list_all(stored.consumer)
        shards = {
            ShardKey(key.stream, key.shard)
            for key in known
            if self._wanted is None or key.stream in self._wanted
        }
        shards |= {ShardKey(stream, 0) for stream in self._wanted or ()}
        try:
            loaded = await stored.load(sorted(shards))
        except StaleOffset:
            if self._file.on_stale == "raise":
                raise
            stored.epoch = None
            await stored.load(sorted(shards))
            stored.epoch = str(reader.header.created_ms)
            stored.restart(shards)
            start = BEGINNING if self._file.on_stale == "earliest" else END
            await self._run(lambda: self._go(reader, start, wait=True))
            return
        positions = {shard: at for shard, at in loaded.items() if at is not None}
        if not positions:
            if self._options.reset is Reset.NONE:
                raise NoStoredPosition(f"nothing is stored for {stored.consumer}")
            start = self._options.start_position
            await self._run(lambda: self._go(reader, start, wait=True))
            return
        await self._run(lambda: self._check_range(reader, positions))
        await self._run(lambda: self._to_earliest(reader, positions))
        self._skip_below = positions

    def _check_range(self, reader: SsReader, positions: dict[ShardKey, int]) -> None:
        """Apply `on_out_of_range` to positions beyond the end; the end itself is normal."""
        survey = reader.survey()
        markers = find_end(survey).markers
        policy = self._options.on_out_of_range
        for shard, position in list(positions.items()):
            key = shard.stream.encode()
            marker = markers.get((key, shard.shard)) or last_marker(survey, key, shard.shard)
            end = 0 if marker is None else marker.seq + 1
            if position <= max(end, 1) or policy == "wait":
                continue
            if policy == "raise":
                raise PositionOutOfRange(
                    f"the stored position {position} lies beyond the end {end}; "
                    "set on_out_of_range to wait, earliest or latest",
                    stream=shard.stream,
                    shard=shard.shard,
                )
            positions[shard] = 0 if policy == "earliest" else end

    def _to_earliest(self, reader: SsReader, positions: dict[ShardKey, int]) -> None:
        """Go to the first unprocessed message of all shards."""
        streams = {shard.stream for shard in positions}
        everything = self._wanted is not None and streams >= self._wanted
        if not everything and self._options.start_position == BEGINNING:
            reader.to_start()
            return
        offsets = []
        for shard, position in positions.items():
            reader.to_seq(shard.stream, shard.shard, position, wait=True)
            offsets.append(reader.offset)
        reader.to_offset(min(offsets))

    # ---- reading

    async def fetch(self, max_messages: int, wait: float) -> list[Message]:
        deadline = time.monotonic() + wait
        while True:
            messages = self._mine(await self._read(max_messages))
            if messages:
                self._watched().news()
                return messages
            reader = self._the_reader()
            if await self._at_end(reader):
                raise StreamEnded(f"{self._path} has ended", stream=self._streams[0])
            left = deadline - time.monotonic()
            if left <= 0 or self._interrupted:
                self._interrupted = False
                return []
            await self._watched().wait(left)

    async def _read(self, limit: int) -> list[Message]:
        reader = self._the_reader()

        async def read(count: int) -> list[Message]:
            return await self._run(lambda: reader.read(count))

        if self._group is not None and self._member is not None:
            return await self._group.read(self._member, limit, read)
        return await read(limit)

    async def _at_end(self, reader: SsReader) -> bool:
        """Nothing more is there now: whether that is for good."""
        if self._member is not None and self._member.queue:
            return False
        if reader.ended:
            return True
        if not self._file.follow:
            reader.check_whole()
            return True
        gone = await self._run(reader.gone)
        if not gone:
            await self._run(reader.wait_again)
        return gone

    def _mine(self, messages: list[Message]) -> list[Message]:
        if self._wanted is not None:
            wanted = self._wanted
            messages = [m for m in messages if m.stream in wanted]
        if self._shards:
            messages = [m for m in messages if (m.stream, m.shard) in self._shards]
        if self._skip_below:
            skip = self._skip_below
            messages = [m for m in messages if m.seq >= skip.get(ShardKey(m.stream, m.shard), 0)]
        self._next.update({ShardKey(m.stream, m.shard): m.seq + 1 for m in messages})
        return messages

    def interrupt(self) -> None:
        self._interrupted = True
        if self._watch is not None:
            self._watch.wake()

    # ---- moving

    async def seek(self, to: datetime, shards: frozenset[ShardKey]) -> None:
        key, shard = self._first(shards)

        def go(reader: SsReader) -> None:
            reader.to_time(key, shard, to_ns(to), wait=self._file.follow)

        await self._move(go, shards)

    async def rewind(self, to: SeqPos, shards: frozenset[ShardKey]) -> None:
        def go(reader: SsReader) -> None:
            self._go(reader, to, wait=self._file.follow, shards=shards)

        await self._move(go, shards)

    def _go(
        self,
        reader: SsReader,
        to: SeqPos,
        *,
        wait: bool,
        shards: frozenset[ShardKey] = frozenset(),
    ) -> None:
        if to == BEGINNING:
            reader.to_start()
        elif to == END:
            reader.to_end()
        else:
            key, shard = self._first(shards)
            reader.to_seq(key, shard, At(to.seq).seq, wait=wait)

    async def _move(self, go: Callable[[SsReader], None], shards: frozenset[ShardKey]) -> None:
        reader = self._the_reader()
        if self._group is not None:
            reader = await self._run(lambda: SsReader(self._path))
            try:
                await self._run(lambda: go(reader))
            except BaseException:
                reader.close()
                raise
            await self._leave()
            self._detached = True
            self._reader = reader
        else:
            await self._run(lambda: go(reader))
        self._shards = shards
        self._skip_below = {}
        self._next.clear()

    def _first(self, shards: frozenset[ShardKey]) -> tuple[str | None, int]:
        """The shard that a place is looked up in: the first of the first subscribed stream."""
        stream = self._streams[0]
        if stream == WILDCARD:
            return None, 0
        return stream, min((s.shard for s in shards if s.stream == stream), default=0)

    async def lag(self, positions: Mapping[ShardKey, int]) -> dict[ShardKey, int | None]:
        reader = self._the_reader()
        markers = (await self._run(lambda: find_end(reader.survey()))).markers
        found: dict[ShardKey, int | None] = {}
        for (key, shard), marker in markers.items():
            name = ShardKey(key.decode(), shard)
            if self._wanted is None or name.stream in self._wanted:
                position = positions.get(name, self._next.get(name, self._skip_below.get(name)))
                found[name] = None if position is None else max(0, marker.seq + 1 - position)
        return found

    async def give_back(self, messages: Sequence[Message]) -> None:
        if self._group is not None and self._member is not None:
            self._member.queue.extendleft(reversed(messages))

    async def _leave(self) -> None:
        if self._group is not None and self._member is not None:
            last = self._group.leave(self._member)
            if last is not None:
                await self._run(last.close)
        self._group = self._member = None

    async def close(self) -> None:
        if self._member is not None:
            await self._leave()
        elif self._reader is not None:
            await self._run(self._reader.close)
        if self._watch is not None:
            self._watch.close()
        if self._thread is not None:
            thread, self._thread = self._thread, None
            thread.release()

    async def _run(self, action: Callable[[], T]) -> T:
        assert self._thread is not None, "open() comes first"
        return await asyncio.get_running_loop().run_in_executor(self._thread.executor, action)

    def _the_reader(self) -> SsReader:
        assert self._reader is not None, "open() comes first"
        return self._reader

    def _watched(self) -> Watch:
        assert self._watch is not None, "open() comes first"
        return self._watch
