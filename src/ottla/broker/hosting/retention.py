"""Retention of all logs of a node, in short turns of the event loop.

- An open log drops a few segments per turn; a worker removes their files later.
- The log starts of a round are made durable together.
- A closed log stays closed. Whether it has something to delete depends on the time of its oldest
  segment, its size and the part not compacted yet. These cannot change while it is closed, so a
  worker reads them once from the file names and the oldest segment, and they are cached. When
  segments are due, a worker removes their files; if the files do not give enough information, it
  opens the log for itself. A closed log has no readers, so file.delete.delay.ms does not apply.
- For compaction a log is opened. The first round that finds it compacted, and not looked up since,
  closes it again. Tiered logs stay open.
- A partition that was never written has no files and is skipped.
- Records that a table has not taken yet are kept (`table_hold`); such a log is opened when
  something in it is due.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.errors import ApiError
from ottla.log.checkpoints import Checkpoint
from ottla.log.closed import look_at
from ottla.log.compaction import worth_compacting
from ottla.log.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.hosting.table_hold import TableHold
    from ottla.broker.running.services import Lazy
    from ottla.broker.tiering.tiering import Tiering
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.closed import ClosedLog
    from ottla.log.partition import PartitionLog

TURN_SECONDS: Final = 0.005  # of the event loop, then others have theirs
SEGMENTS_A_TURN: Final = 8  # each costs a few renames
CLOSED_AT_ONCE: Final = 64  # directories that one worker lists before other work has its turn
# Logs from which one worker deletes segments, and which cannot be opened meanwhile: a few hundred
# milliseconds with a hundred segments each. They share a sync.
SHRUNK_AT_ONCE: Final = 32

logger = logging.getLogger(__name__)


class Retention:
    """Knows what closed logs have to give, and runs rounds."""

    def __init__(
        self,
        data: Data,
        partitions: Partitions,
        workers: Workers,
        tiering: Lazy[Tiering],
        table_hold: Lazy[TableHold],
        clock: Clock,
    ) -> None:
        self._data = data
        self._partitions = partitions
        self._workers = workers
        self._tiering = tiering
        self._table_hold = table_hold
        self._clock = clock
        self._closed: dict[TopicPartition, ClosedLog] = {}

    async def run(self) -> None:
        """Delete old and surplus segments, and files of earlier deletions."""
        now_ms = self._clock.wall_ms()
        if self._partitions.have_tables:
            await (await self._table_hold.ready()).look()
        await self._visit_closed(now_ms)
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
        self._partitions.leave(one for one in self._partitions if self._is_done(one, now_ms))
        await self._partitions.purge()

    def _is_done(self, hosted: HostedPartition, now_ms: int) -> bool:
        """Whether it was opened for compaction alone, and that is over."""
        log = hosted.log
        return (
            hosted.is_visit
            and not log.config.remote_storage_enable  # the tier goes on with it
            and worth_compacting(log, self._first_dirty(hosted.name), now_ms) is None
        )

    async def _retain(self, hosted: HostedPartition, now_ms: int) -> bool:
        """Whether the log starts later now."""
        log = hosted.log
        if log.config.remote_storage_enable and not log.config.remote_log_copy_disable:
            # Local deletion then depends on the remote segments, which only the tier knows.
            if self._tiering.made is not None:
                self._tiering.made.retain_locally(hosted, now_ms)
            return False
        hold = None
        if log.config.ottla_table_enable:
            hold = (await self._table_hold.ready()).of(hosted.name, log.config)
        moved = False
        while log.apply_retention(now_ms, limit=SEGMENTS_A_TURN, hold=hold):
            moved = True
            hosted.wake()
            await asyncio.sleep(0)
        return moved

    # -- closed logs ------------------------------------------------------------------------------

    async def _visit_closed(self, now_ms: int) -> None:
        names = [
            name
            for name in sorted(self._data.all_on_disk())
            if name not in self._partitions.open_names and self._data.is_trusted(name)
        ]
        closed = set(names)
        self._closed = {name: known for name, known in self._closed.items() if name in closed}
        shrinking: list[TopicPartition] = []
        for start in range(0, len(names), CLOSED_AT_ONCE):
            batch = names[start : start + CLOSED_AT_ONCE]
            unknown = {name: self._first_dirty(name) for name in batch if name not in self._closed}
            if unknown:
                found = await self._workers.run(partial(self._look, unknown))
                # A log that was opened meanwhile may have changed.
                self._closed |= {
                    name: one for name, one in found.items() if self._data.is_trusted(name)
                }
            wanted = [name for name in batch if self._is_wanted_open(name, now_ms)]
            opening = self._partitions.visiting(wanted)
            if opening is not None:
                await opening
            shrinking += [name for name in batch if self._may_shrink(name, now_ms)]
            while len(shrinking) >= SHRUNK_AT_ONCE:
                await self._shrink(shrinking[:SHRUNK_AT_ONCE], now_ms)
                del shrinking[:SHRUNK_AT_ONCE]
            await asyncio.sleep(0)
        if shrinking:
            await self._shrink(shrinking, now_ms)

    def _look(self, names: Mapping[TopicPartition, int]) -> dict[TopicPartition, ClosedLog]:
        """In a worker thread; by how far each has been compacted."""
        found = {}
        for name, first_dirty in names.items():
            try:
                found[name] = look_at(self._data.path_of(name), first_dirty)
            except (OSError, ValueError) as error:
                logger.warning("retention cannot look at %s-%d: %s", *name, error)
        return found

    def _first_dirty(self, name: TopicPartition) -> int:
        return self._data.checkpoints.offset(Checkpoint.CLEANER, name)

    def _is_wanted_open(self, name: TopicPartition, now_ms: int) -> bool:
        """Whether the cleaner or the tier have something to do in it, or a table is asked first."""
        known = self._closed.get(name)
        if known is None:
            return False
        config = self._partitions.log_config(name.topic)
        if known.may_be_compacted(config, now_ms):
            return True
        is_elsewhere = config.remote_storage_enable or config.ottla_table_enable
        return is_elsewhere and self._has_expired(name, now_ms)

    def _may_shrink(self, name: TopicPartition, now_ms: int) -> bool:
        """Whether a worker should apply retention to it."""
        if name in self._partitions.open_names:
            return False
        config = self._partitions.log_config(name.topic)
        is_elsewhere = config.remote_storage_enable or config.ottla_table_enable
        return not is_elsewhere and self._has_expired(name, now_ms)

    def _has_expired(self, name: TopicPartition, now_ms: int) -> bool:
        known = self._closed.get(name)
        return known is not None and known.may_shrink(
            self._partitions.log_config(name.topic),
            log_start=self._data.checkpoints.offset(Checkpoint.LOG_START, name),
            now_ms=now_ms,
        )

    async def _shrink(self, names: Sequence[TopicPartition], now_ms: int) -> None:
        for name in names:
            del self._closed[name]
        self._closed |= await self._partitions.shrink(names, now_ms)


def _purge(logs: Sequence[PartitionLog], now_ms: int) -> None:
    """In a worker thread: remove the files of segments that went long enough ago."""
    for log in logs:
        try:
            log.purge(now_ms)
        except LogError as error:
            logger.debug("files of %s: %s", log.directory.name, error)
