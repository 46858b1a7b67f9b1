"""The compactor of a node: one log at a time, the dirtiest first.

Planning and installing happen in the event loop, where the log lives; reading and writing happen
in a worker thread in between, so appends never wait. How far a log has been compacted is
checkpointed, and losing that only means compacting it again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.log.checkpoints import Checkpoint
from ottla.log.compaction import dirty_ratio, plan_compaction, run_compaction
from ottla.log.life import Life

if TYPE_CHECKING:
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.partitions import HostedPartition, Partitions
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.log.compaction import CompactionPlan


async def compact_dirtiest(
    data: Data, partitions: Partitions, workers: Workers, clock: Clock
) -> bool:
    """Compact one log; whether there was one that needed it."""
    now_ms = clock.wall_ms()
    chosen: tuple[float, HostedPartition, CompactionPlan] | None = None
    for partition in partitions:
        if not (partition.log.config.compacts and partition.log.online):
            continue
        first_dirty = data.checkpoints.offset(Checkpoint.CLEANER, partition.name)
        plan = plan_compaction(partition.log, first_dirty, now_ms)
        if plan is not None:
            ratio = dirty_ratio(plan.segments, first_dirty)
            if chosen is None or ratio > chosen[0]:
                chosen = ratio, partition, plan
    if chosen is None:
        return False
    _, partition, plan = chosen
    log = partition.log
    with log.lease():
        result = await workers.run(partial(run_compaction, plan))
        if log.life is not Life.OPEN:
            await workers.run(result.discard)
            return True
        for group in result.groups:
            log.install(group, now_ms)
    data.checkpoints.put(Checkpoint.CLEANER, partition, result.first_dirty_offset)
    return True
