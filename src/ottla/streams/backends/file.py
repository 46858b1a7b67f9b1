"""The File backend: one `.ss` file, read and written in batches on a thread per open file."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ottla.streams.backends.file_group import FileGroup
from ottla.streams.backends.file_source import FileSource
from ottla.streams.base import Driver, Operation, Sink, Source
from ottla.streams.delivery import held_back
from ottla.streams.errors import (
    ConfigError,
    ConnectError,
    LatestButNotLive,
    NoStoredPosition,
    NoWildcardInGroup,
    SameGroupSameMode,
    StreamError,
)
from ottla.streams.modes import has_wildcard
from ottla.streams.ss.watch import grown
from ottla.streams.ss.writer import Run, SsWriter, check_interval, runs
from ottla.streams.types import Backend, Create, FileOptions, Mode, Reset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from ottla.streams.delivery import Batch
    from ottla.streams.positions import StoredPositions
    from ottla.streams.types import ConsumerOptions, ProducerOptions

    T = TypeVar("T")


class FileDriver(Driver):
    """A path; files are opened by sources and sinks."""

    backend = Backend.FILE
    unsupported: ClassVar[Mapping[Operation, str]] = {
        Operation.SHARED: "share groups live in a Kafka-compatible broker",
        Operation.MESSAGE_KEYS: "a frame holds stream, shard, sequence, time and payload only",
        Operation.HEADERS: "a frame holds stream, shard, sequence, time and payload only",
        Operation.NULLS: "a frame has a payload, perhaps an empty one",
        Operation.TRANSACTIONS: "a file has no transactions; save positions in the sink's database",
    }

    async def open(self) -> None:
        """Check that the file exists, or may be created."""
        options = self.options.file or FileOptions()
        check_interval(options.beacon_interval)
        exists = await asyncio.to_thread(Path(self.url.path).exists)
        if not exists and options.create is Create.NEVER:
            raise ConnectError(
                f"{self.url.path} does not exist; check the path",
                fix='or create it: connect(url, FileOptions(create="if_missing"))',
            )
        if not exists or options.create is Create.EXCLUSIVE:
            handle = _Handle(self.url.path, options)
            await handle.open()
            await handle.close(eos=False)

    def source(
        self, streams: Sequence[str], options: ConsumerOptions, stored: StoredPositions | None
    ) -> Source:
        """A private reader, or a place in a group that shares one."""
        file = options.file or self.options.file or FileOptions()
        if options.mode is Mode.LOAD_BALANCED:
            if stored is not None:
                raise ConfigError(
                    "a file group has no position of its own: members see interleaved messages; "
                    "use mode=RESUMABLE with offsets="
                )
            if has_wildcard(streams):
                raise NoWildcardInGroup("the wildcard subscribes ungrouped consumers only")
        if options.mode is Mode.RESUMABLE and stored is None:
            raise ConfigError("a file keeps no positions: mode=RESUMABLE needs offsets=...")
        if stored is None:
            if options.reset is Reset.NONE:
                raise NoStoredPosition("reset=NONE and no offsets= store to start from")
            if options.reset is Reset.LATEST and not file.follow:
                raise LatestButNotLive(
                    "the end of a file that is not followed has nothing; use reset=EARLIEST"
                )
        group = None
        if options.mode is Mode.LOAD_BALANCED and options.group is not None:
            group = FileGroup.of(self.url.path, options.group)
            if group.start is not None and group.start != (options.reset, file.follow):
                raise SameGroupSameMode(
                    "members of a file group share a reader: use the same reset and follow"
                )
        return FileSource(self.url.path, streams, options, file, stored, group)

    def sink(self, options: ProducerOptions) -> Sink:
        """A share of the process's writer of this file."""
        file = options.file or self.options.file or FileOptions()
        # The connection has made the file, if it was to be made.
        handle = _Handle(self.url.path, replace(file, create=Create.NEVER))
        return FileSink(handle, stop_at_failure=options.stop_at_failure)

    async def close(self) -> None:
        """Nothing is open here."""


class _Handle:
    """A refcounted share of the one writer that a process has per path."""

    _writers: ClassVar[dict[str, tuple[SsWriter, ThreadPoolExecutor]]] = {}
    _users: ClassVar[dict[str, int]] = {}
    _opening: ClassVar[dict[str, asyncio.Lock]] = {}

    def __init__(self, path: str, options: FileOptions):
        self._path = os.path.realpath(path)
        self.options = options

    async def open(self) -> None:
        lock = self._opening.setdefault(self._path, asyncio.Lock())
        async with lock:
            if self._path not in self._writers:
                executor = ThreadPoolExecutor(1, thread_name_prefix="ottla-file-writer")
                loop = asyncio.get_running_loop()
                try:
                    writer = await loop.run_in_executor(
                        executor, SsWriter, self._path, self.options
                    )
                except BaseException:
                    executor.shutdown(wait=False)
                    raise
                self._writers[self._path] = (writer, executor)
                self._users[self._path] = 0
            self._users[self._path] += 1

    async def run(self, action: Callable[[SsWriter], T]) -> T:
        writer, executor = self._writers[self._path]
        return await asyncio.get_running_loop().run_in_executor(executor, action, writer)

    async def close(self, *, eos: bool) -> None:
        async with self._opening[self._path]:
            self._users[self._path] -= 1
            last = self._users[self._path] == 0
            await self.run(lambda writer: writer.sync(eos=eos and last))
            if last:
                await self.run(SsWriter.close)
                _, executor = self._writers.pop(self._path)
                executor.shutdown(wait=False)
                del self._users[self._path], self._opening[self._path]
        grown(self._path)

    def announce(self) -> None:
        grown(self._path)


class FileSink(Sink):
    """Batches to the file's writer; a batch is one write."""

    def __init__(self, handle: _Handle, *, stop_at_failure: bool):
        self._handle = handle
        self._opened = False
        self._stop_at_failure = stop_at_failure

    async def open(self) -> None:
        await self._handle.open()
        self._opened = True

    async def write(self, batch: Batch) -> None:
        stop = self._stop_at_failure
        results = await self._handle.run(
            lambda writer: writer.append(_runs(batch), stop_at_failure=stop)
        )
        self._handle.announce()
        batch.settle_all(results)
        if stop and isinstance(results[-1], StreamError):
            batch.reject_rest(held_back(results[-1]))

    async def close(self, *, end: bool) -> None:
        if self._opened:
            self._opened = False
            await self._handle.close(eos=end and self._handle.options.end_with_eos)


def _runs(batch: Batch) -> list[Run]:
    if batch.is_plain:
        return [Run(batch.stream, batch.shard, batch.timestamp_ns, batch.payloads)]
    return runs(message for message, _ in batch.deliveries())
