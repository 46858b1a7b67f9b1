"""Managers on an event log, and waiting for them to have read it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ottla.tier.catalogue import (
    KafkaMetadataEventLog,
    KafkaMetadataEventLogConfig,
    TopicBasedRemoteLogMetadataManager,
    metadata_partition_for,
)
from tests.support.tiering import TIP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from ottla.tier.catalogue import MetadataEventLog

COUNT: Final = 3
HOME: Final = metadata_partition_for(*TIP.identity, COUNT)
"""The metadata partition of the partition that the tests are about."""
PATIENCE: Final = 30.0


async def open_topic(bootstrap: str, topic: str, **settings: Any) -> KafkaMetadataEventLog:
    """A metadata topic of any name."""
    chosen = {"partition_count": COUNT, "replication_factor": 1, "fetch_max_wait_ms": 50}
    config = KafkaMetadataEventLogConfig(bootstrap, topic, **{**chosen, **settings})
    return await KafkaMetadataEventLog.open(config)


class Managers:
    """Each in a directory of its own, unless one is named."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self.path = path
        self._stack = stack
        self._made = 0

    async def start(
        self,
        event_log: MetadataEventLog,
        *,
        directory: str | None = None,
        cluster: str = "cluster",
        assign: Iterable[int] | None = range(COUNT),
        **settings: Any,
    ) -> TopicBasedRemoteLogMetadataManager:
        """One that has read everything, of all partitions or of these."""
        self._made += 1
        path = self.path / (directory or str(self._made))
        manager = await TopicBasedRemoteLogMetadataManager.start(
            event_log, path, cluster, **settings
        )
        self._stack.push_async_callback(manager.close)
        if assign is not None:
            await manager.reconcile_assignment(assign)
            await until(lambda: set(manager.lags().values()) <= {0})
        return manager


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.005)
