"""The offset checkpoints of a data directory: recovery points, log starts, high watermarks and
cleaner offsets. Everything that is written to these four files is written here.

Rules, kept by `CheckpointBook`:

- The book has the current values; each file is a copy of one of its columns. Changing a value costs
  no I/O.
- At most one write runs at a time. It contains whole columns as they were when it began; requests
  for durability that arrive meanwhile wait for the next one, so many share one write.
- Only files that a request waits for are written.
- A failed write changes nothing in the book: the requests that waited for it fail, and the next
  write of that file contains the same values again.
- A file names partitions by topic and index, not by the topic's id. So a value belongs to a name
  and an owner, the topic's id; values of another owner are dropped. Deleting a topic drops its
  values, and a new topic of that name may create a directory only after the files without the old
  values are durable (`vacant`). Otherwise a crash would give the new log the old log start.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.checkpoints import Checkpoint, write_offsets
from ottla.log.errors import StorageFailure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from concurrent.futures import Executor
    from pathlib import Path

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.cluster.handover import Note
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.storage import Storage

ALL_FILES = frozenset(Checkpoint)

logger = logging.getLogger(__name__)


class Write(NamedTuple):
    """Columns to be written, and how many changes of each they contain."""

    contents: Mapping[Checkpoint, Mapping[TopicPartition, int]]
    changes: Mapping[Checkpoint, int]


class Outcome(NamedTuple):
    """Tickets that a finished write settles."""

    durable: list[int]
    failed: list[int]


class CheckpointBook:
    """What to write next, and which callers wait for it; see the module docstring."""

    def __init__(self, found: Mapping[Checkpoint, Mapping[TopicPartition, int]]) -> None:
        self._columns = {file: dict(found.get(file, {})) for file in Checkpoint}
        self._owners: dict[TopicPartition, bytes] = {}
        self._changes = dict.fromkeys(Checkpoint, 0)
        self._durable = dict.fromkeys(Checkpoint, 0)
        # Names whose old values the files may still have, and the changes that take them away.
        self._leaving: dict[TopicPartition, dict[Checkpoint, int]] = {}
        self._tickets: dict[int, dict[Checkpoint, int]] = {}
        self._numbers = count(1)
        self._writing: Write | None = None

    def names(self) -> set[TopicPartition]:
        """The partitions that have a value in any file."""
        return set().union(*self._columns.values())

    def offset(self, file: Checkpoint, name: TopicPartition) -> int:
        return self._columns[file].get(name, 0)

    def own(self, name: TopicPartition, owner: bytes) -> None:
        """From now on the name is this topic's; values of unknown owner are taken to be its."""
        known = self._owners.get(name)
        if known is not None and known != owner:
            self.forget(name)
        self._owners[name] = owner

    def put(self, file: Checkpoint, name: TopicPartition, owner: bytes, offset: int) -> bool:
        """Whether the value was taken: not if the name belongs to another topic."""
        if self._owners.get(name) != owner:
            return False
        column = self._columns[file]
        if column.get(name, 0) != offset:
            column[name] = offset
            self._changes[file] += 1
        return True

    def forget(self, name: TopicPartition, owner: bytes | None = None) -> None:
        """Drop the values under a name, unless they belong to another topic than `owner`."""
        if owner is not None and self._owners.get(name, owner) != owner:
            return
        self._owners.pop(name, None)
        for file, column in self._columns.items():
            if column.pop(name, None) is not None:
                self._changes[file] += 1
                self._leaving.setdefault(name, {})[file] = self._changes[file]

    def ask(self, files: Collection[Checkpoint]) -> int | None:
        """A ticket for the durability of these columns as they are; None if they are durable."""
        return self._ticket({file: self._changes[file] for file in files})

    def ask_vacant(self, name: TopicPartition) -> int | None:
        """A ticket for files without the old values of this name; None if there are none."""
        return self._ticket(self._leaving.get(name, {}))

    def _ticket(self, needs: Mapping[Checkpoint, int]) -> int | None:
        open_needs = {file: at for file, at in needs.items() if self._durable[file] < at}
        if not open_needs:
            return None
        ticket = next(self._numbers)
        self._tickets[ticket] = open_needs
        return ticket

    def begin(self) -> Write | None:
        """The next write, if one is needed and none is under way."""
        if self._writing is not None or not self._tickets:
            return None
        files = set().union(*self._tickets.values())
        self._writing = Write(
            {file: dict(self._columns[file]) for file in files},
            {file: self._changes[file] for file in files},
        )
        return self._writing

    def finish(self, written: Collection[Checkpoint]) -> Outcome:
        """The write is over, and these of its files are durable."""
        write, self._writing = self._writing, None
        assert write is not None
        for file in written:
            self._durable[file] = write.changes[file]
        self._leaving = {
            name: left
            for name, needs in self._leaving.items()
            if (left := {file: at for file, at in needs.items() if self._durable[file] < at})
        }
        failed = {file: at for file, at in write.changes.items() if file not in written}
        outcome = Outcome([], [])
        for ticket, needs in tuple(self._tickets.items()):
            left = {file: at for file, at in needs.items() if self._durable[file] < at}
            if not left:
                outcome.durable.append(ticket)
                del self._tickets[ticket]
            elif any(at <= failed.get(file, -1) for file, at in left.items()):
                outcome.failed.append(ticket)
                del self._tickets[ticket]
            else:
                self._tickets[ticket] = left
        return outcome


class Checkpoints:
    """The book, and a worker thread that writes it down."""

    def __init__(
        self,
        storage: Storage,
        directory: Path,
        found: Mapping[Checkpoint, Mapping[TopicPartition, int]],
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._book = CheckpointBook(found)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._writer: asyncio.Task[None] | None = None
        self._executor: Executor | None = None

    def start(self, executor: Executor) -> None:
        """From now on values can be made durable."""
        self._executor = executor

    # -- values -----------------------------------------------------------------------------------

    def offset(self, file: Checkpoint, name: TopicPartition) -> int:
        return self._book.offset(file, name)

    def own(self, name: TopicPartition, owner: bytes) -> None:
        self._book.own(name, owner)

    def forget(self, name: TopicPartition, owner: bytes | None = None) -> None:
        self._book.forget(name, owner)

    def keep_only(self, names: Collection[TopicPartition]) -> None:
        """Drop the values of partitions that are not in the directory."""
        for name in self._book.names() - set(names):
            self._book.forget(name)

    def put(self, file: Checkpoint, partition: HostedPartition, offset: int) -> bool:
        return self._book.put(file, partition.name, partition.topic_id, offset)

    def note(self, partition: HostedPartition) -> None:
        """Take over how far a log is."""
        log = partition.log
        self.put(Checkpoint.RECOVERY_POINT, partition, log.recovery_point)
        self.put(Checkpoint.HIGH_WATERMARK, partition, log.high_watermark)
        self.put(Checkpoint.LOG_START, partition, log.log_start_offset)

    def adopt(self, name: TopicPartition, note: Note) -> None:
        """Take over the values that another node had."""
        owner = note.topic_id.bytes
        self._book.own(name, owner)
        self._book.put(Checkpoint.RECOVERY_POINT, name, owner, note.recovery_point)
        self._book.put(Checkpoint.HIGH_WATERMARK, name, owner, note.high_watermark)
        self._book.put(Checkpoint.LOG_START, name, owner, note.log_start_offset)
        self._book.put(Checkpoint.CLEANER, name, owner, note.first_dirty)

    # -- durability -------------------------------------------------------------------------------

    async def log_starts_durable(self, partitions: Iterable[HostedPartition]) -> None:
        """Wait until the log starts are durable; raises StorageFailure."""
        for partition in partitions:
            self.put(Checkpoint.LOG_START, partition, partition.log.log_start_offset)
        await self._settled(self._book.ask((Checkpoint.LOG_START,)))

    async def durable(self) -> None:
        """Return when all values are on disk; StorageFailure if a file could not be written."""
        await self._settled(self._book.ask(ALL_FILES))

    async def vacant(self, name: TopicPartition) -> None:
        """Return when no file has values of an older topic of this name."""
        await self._settled(self._book.ask_vacant(name))

    async def _settled(self, ticket: int | None) -> None:
        if ticket is None:
            return
        future = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        if self._writer is None:
            # It begins after this turn of the loop, so that all requests of the turn share the
            # write.
            self._writer = asyncio.create_task(self._write())
        await future

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while (write := self._book.begin()) is not None:
                assert self._executor is not None
                written, error = await loop.run_in_executor(self._executor, self._replace, write)
                outcome = self._book.finish(written)
                self._answer(outcome.durable, None)
                self._answer(outcome.failed, error)
        finally:
            self._writer = None

    def _answer(self, tickets: Iterable[int], error: Exception | None) -> None:
        for ticket in tickets:
            future = self._waiting.pop(ticket)
            if future.done():  # cancelled
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(StorageFailure(f"checkpoint not written: {error}"))

    def _replace(self, write: Write) -> tuple[list[Checkpoint], Exception | None]:
        """In a worker thread: which files are durable, and why the others are not."""
        written = []
        failure: Exception | None = None
        for file, column in write.contents.items():
            try:
                write_offsets(self._storage, self._directory, file, column)
                written.append(file)
            except Exception as error:
                logger.exception("%s could not be written", file.value)
                failure = error
        return written, failure
