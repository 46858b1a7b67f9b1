"""The compactor of a node: one log at a time, the dirtiest first.

- Only open logs are looked at. A closed one that has something to compact is opened by retention.
- Planning and installing happen in the event loop, where the log lives; reading and writing happen
  in a worker thread in between, so appends never wait. All of it under one lease of the log.
- If the log was closed, deleted or replaced meanwhile, the result is dropped: it belongs only to
  that open log, not to a later one in the same directory.
- A log that cannot be compacted (damage, a full disk) is retried later, each time after twice as
  long; the others continue. The first failure is logged, and all are counted.
- How far a log has been compacted is checkpointed; losing that only means compacting it again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.checkpoints import Checkpoint
from ottla.log.compaction import plan_compaction, run_compaction, worth_compacting
from ottla.log.errors import LogClosed
from ottla.log.life import Life

if TYPE_CHECKING:
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.log.compaction import CompactionPlan, CompactionResult
    from ottla.log.partition import PartitionLog

FIRST_RETRY_SECONDS: Final = 60.0  # of a log that failed: a full disk may have room by then
LAST_RETRY_SECONDS: Final = 3600.0  # damage stays; each try reads the log up to it
LOGS_A_TURN: Final = 100  # logs checked before the event loop serves others

logger = logging.getLogger(__name__)


class SetAside(NamedTuple):
    """A log that could not be compacted."""

    failures: int
    retry_at: float  # monotonic


class Cleaner:
    """Compacts the open logs of a node."""

    def __init__(self, data: Data, partitions: Partitions, workers: Workers, clock: Clock) -> None:
        self._data = data
        self._partitions = partitions
        self._workers = workers
        self._clock = clock
        self._set_aside: dict[int, SetAside] = {}  # by incarnation: a reopened log starts over
        self.failures = 0

    @property
    def uncleanable(self) -> int:
        """How many open logs are set aside."""
        return len(self._set_aside)

    async def compact_dirtiest(self) -> bool:
        """Compact one log; whether there was one that needed it."""
        partition = await self._dirtiest()
        if partition is None:
            return False
        log = partition.log
        try:
            with log.lease():
                await self._compact(partition)
        except LogClosed:
            pass  # deleted, moved or stopped meanwhile
        except Exception as error:  # noqa: BLE001 (a failure must not stop the others)
            self._failed(partition, error)
        else:
            self._set_aside.pop(log.incarnation, None)
        return True

    async def _dirtiest(self) -> HostedPartition | None:
        now_ms, now = self._clock.wall_ms(), self._clock.monotonic()
        chosen: tuple[float, HostedPartition] | None = None
        seen = set()
        for count, partition in enumerate(self._partitions, 1):
            log = partition.log
            seen.add(log.incarnation)
            waits = self._set_aside.get(log.incarnation)
            if (
                log.config.compacts
                and log.online
                and log.life is Life.OPEN
                and (waits is None or waits.retry_at <= now)
            ):
                worth = worth_compacting(log, self._first_dirty(partition), now_ms)
                if worth is not None and (chosen is None or worth > chosen[0]):
                    chosen = worth, partition
            if count % LOGS_A_TURN == 0:
                await asyncio.sleep(0)
        self._set_aside = {key: one for key, one in self._set_aside.items() if key in seen}
        return None if chosen is None else chosen[1]

    def _first_dirty(self, partition: HostedPartition) -> int:
        return self._data.checkpoints.offset(Checkpoint.CLEANER, partition.name)

    async def _compact(self, partition: HostedPartition) -> None:
        log = partition.log
        now_ms = self._clock.wall_ms()
        plan = plan_compaction(log, self._first_dirty(partition), now_ms)
        if plan is None:
            return  # retention deleted it first
        result = await self._workers.run(partial(_compaction, log, plan))
        for number, group in enumerate(result.groups):
            # Later groups may rely on what earlier ones drop, such as aborted records.
            if log.life is not Life.OPEN or not log.install(group, now_ms):
                await self._workers.run(partial(result.discard, number))
                return
            await asyncio.sleep(0)
        if log.life is not Life.OPEN:
            return
        self._data.checkpoints.put(Checkpoint.CLEANER, partition, result.first_dirty_offset)

    def _failed(self, partition: HostedPartition, error: Exception) -> None:
        self.failures += 1
        before = self._set_aside.get(partition.log.incarnation)
        failures = 1 if before is None else before.failures + 1
        pause = min(FIRST_RETRY_SECONDS * 2 ** (failures - 1), LAST_RETRY_SECONDS)
        self._set_aside[partition.log.incarnation] = SetAside(
            failures, self._clock.monotonic() + pause
        )
        if before is None:
            logger.error(
                "%r cannot be compacted; trying again in %d s: %s",
                partition,
                pause,
                error,
                exc_info=error,
            )


def _compaction(log: PartitionLog, plan: CompactionPlan) -> CompactionResult:
    """Runs in a worker under its own lease: a stop cancels the waiting task, not the work."""
    with log.lease():
        try:
            return run_compaction(plan)
        except OSError as error:
            if log.life is Life.OPEN:
                raise
            # The directory of a deleted topic is removed later anyway.
            raise LogClosed(f"{log.directory.name} was deleted while it was compacted") from error
