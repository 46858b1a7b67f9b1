"""Retention over all logs of a node, in small turns of the event loop.

- An open log lets go of a few segments a turn; their files are removed by a worker, later.
- The log starts of a round are made durable together.
- A closed log stays closed while it has nothing to give. What decides that (its oldest segment's
  time, its size, whether it has segments that compaction has not seen) cannot change while nobody
  opens it, so a worker reads it from the file names and the oldest segment once, and it is
  remembered. Only when something is due is the log opened.
- A partition that was never written has no files and is not looked at.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.errors import ApiError
from ottla.log.checkpoints import Checkpoint
from ottla.log.errors import LogError
from ottla.log.index import TIME_ENTRY_SIZE, TimeIndex
from ottla.log.segment import LOG, TIME_INDEX, newest_time, segment_path
from ottla.wire.batch import HEADER_SIZE, RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.partitions import HostedPartition, Partitions
    from ottla.broker.running.services import Lazy
    from ottla.broker.tiering.tiering import Tiering
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.config import LogConfig
    from ottla.log.partition import PartitionLog

TURN_SECONDS: Final = 0.005  # of the event loop, then others have theirs
SEGMENTS_A_TURN: Final = 8  # each costs a few renames
CLOSED_AT_ONCE: Final = 64  # directories that one worker lists before others have their turn

logger = logging.getLogger(__name__)


class ClosedLog(NamedTuple):
    """What the files of a cleanly closed log say about what may leave it."""

    total: int
    first_size: int
    oldest_ms: int
    """At most the time of the newest record of the first segment: retention.ms counts from it."""
    second_base: int
    """Where the first segment ends; -1 if there is no other."""
    last_sealed: int
    """The base of the last segment that does not grow any more, -1 if there is none."""

    def is_due(self, config: LogConfig, *, log_start: int, first_dirty: int, now_ms: int) -> bool:
        """Whether opening it could lead to anything."""
        if config.compacts and self.last_sealed >= first_dirty:
            return True
        if not self.total:
            return False
        if 0 <= self.second_base <= log_start:
            return True
        return config.deletes and (
            0 <= config.retention_bytes <= self.total - self.first_size
            or 0 <= config.retention_ms < now_ms - self.oldest_ms
        )


def look_at(directory: Path) -> ClosedLog:
    """Read it from disk. Blocks."""
    with os.scandir(directory) as entries:
        sizes = {
            int(entry.name.removesuffix(LOG)): entry.stat().st_size
            for entry in entries
            if entry.name.endswith(LOG)
        }
    bases = sorted(sizes)
    if not bases:
        return ClosedLog(0, 0, 0, -1, -1)
    return ClosedLog(
        sum(sizes.values()),
        sizes[bases[0]],
        _oldest_ms(directory, bases[0]),
        bases[1] if len(bases) > 1 else -1,
        bases[-2] if len(bases) > 1 else -1,
    )


def _oldest_ms(directory: Path, base: int) -> int:
    """The last time in the index, or that of the first batch where the index is behind it."""
    times = -1
    path = segment_path(directory, base, TIME_INDEX)
    if path.exists():
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size // TIME_ENTRY_SIZE - 1) * TIME_ENTRY_SIZE)
            times = max(TimeIndex.decode(file.read(TIME_ENTRY_SIZE)).timestamps, default=-1)
    log = segment_path(directory, base, LOG)
    with log.open("rb") as file:
        header = file.read(HEADER_SIZE)
    if len(header) == HEADER_SIZE:
        times = max(times, newest_time(RecordBatch(memoryview(header))))
    # Without any time a segment is as old as its file.
    return times if times >= 0 else log.stat().st_mtime_ns // 1_000_000


class Retention:
    """Knows what closed logs have to give, and runs rounds."""

    def __init__(
        self,
        data: Data,
        partitions: Partitions,
        workers: Workers,
        tiering: Lazy[Tiering],
        clock: Clock,
    ) -> None:
        self._data = data
        self._partitions = partitions
        self._workers = workers
        self._tiering = tiering
        self._clock = clock
        self._closed: dict[TopicPartition, ClosedLog] = {}

    async def run(self) -> None:
        """Drop what is too old or too much, and the files of what was dropped before."""
        now_ms = self._clock.wall_ms()
        await self._open_due(now_ms)
        moved = []
        logs = []
        loop = asyncio.get_running_loop()
        began = loop.time()
        for hosted in self._partitions:
            logs.append(hosted.log)
            try:
                if await self._retain(hosted, now_ms):
                    moved.append(hosted)
            except (ApiError, LogError) as error:
                if not hosted.gone:
                    logger.warning("retention of %r: %s", hosted, error)
            if loop.time() - began > TURN_SECONDS:
                await asyncio.sleep(0)
                began = loop.time()
        try:
            await self._data.checkpoints.log_starts_durable(moved)
        except LogError as error:
            logger.warning("log starts after retention: %s", error)
        await self._workers.run(partial(_purge, logs, now_ms))
        await self._partitions.purge()

    async def _retain(self, hosted: HostedPartition, now_ms: int) -> bool:
        """Whether the log starts later now."""
        log = hosted.log
        if log.config.remote_storage_enable and not log.config.remote_log_copy_disable:
            # What is local is then a matter of what is remote; nobody knows without the tier.
            if self._tiering.made is not None:
                self._tiering.made.retain_locally(hosted, now_ms)
            return False
        moved = False
        while log.apply_retention(now_ms, limit=SEGMENTS_A_TURN):
            moved = True
            hosted.wake()
            await asyncio.sleep(0)
        return moved

    # -- closed logs ------------------------------------------------------------------------------

    async def _open_due(self, now_ms: int) -> None:
        names = [
            name
            for name in self._data.all_on_disk()
            if name not in self._partitions.open_names and self._data.is_trusted(name)
        ]
        closed = set(names)
        self._closed = {name: known for name, known in self._closed.items() if name in closed}
        for start in range(0, len(names), CLOSED_AT_ONCE):
            batch = names[start : start + CLOSED_AT_ONCE]
            unknown = [name for name in batch if name not in self._closed]
            if unknown:
                found = await self._workers.run(partial(self._look, unknown))
                # What was opened meanwhile may have changed since.
                self._closed |= {
                    name: one for name, one in found.items() if self._data.is_trusted(name)
                }
            due = [name for name in batch if self._is_due(name, now_ms)]
            opening = self._partitions.opening(due)
            if opening is not None:
                await opening
            else:
                await asyncio.sleep(0)

    def _look(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, ClosedLog]:
        """In a worker thread."""
        found = {}
        for name in names:
            try:
                found[name] = look_at(self._data.path_of(name))
            except (OSError, ValueError) as error:
                logger.warning("retention cannot look at %s-%d: %s", *name, error)
        return found

    def _is_due(self, name: TopicPartition, now_ms: int) -> bool:
        known = self._closed.get(name)
        if known is None:
            return False
        config = self._partitions.log_config(name.topic)
        offset = self._data.checkpoints.offset
        return known.is_due(
            config,
            log_start=offset(Checkpoint.LOG_START, name),
            first_dirty=offset(Checkpoint.CLEANER, name),
            now_ms=now_ms,
        )


def _purge(logs: Sequence[PartitionLog], now_ms: int) -> None:
    """In a worker thread: remove the files of segments that went long enough ago."""
    for log in logs:
        try:
            log.purge(now_ms)
        except LogError as error:
            logger.debug("files of %s: %s", log.directory.name, error)
