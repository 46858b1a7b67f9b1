"""Periodic jobs of a node, each a coroutine that never ends.

A failing job logs the error and tries again in its next round.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from ottla.broker.running.services import Lazy
from ottla.log.sealed import shared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.retention import Retention
    from ottla.broker.running.balancing import Balancing
    from ottla.broker.running.services import Services
    from ottla.broker.serving.connections import Connections

SWEEP_SECONDS: Final = 5.0
SESSION_SWEEP_SECONDS: Final = 60.0  # a request would find out at once that its session has ended
# How late a node notices a change of which it was not told, such as that of a command that added a
# user. Siblings tell each other: a datagram is dropped only where others wait to be read.
METADATA_POLL_SECONDS: Final = 1.0
DEAF_POLL_SECONDS: Final = 0.25  # the same where siblings cannot tell each other
PURGE_CHECK_SECONDS: Final = 1.0  # the grain of file.delete.delay.ms of deleted topics
FLUSH_CHECK_SECONDS: Final = 1.0  # the grain of flush.ms
BALANCE_CHECK_SECONDS: Final = 1.0  # how late a node that is to be drained begins
UNREAD_MAP_SECONDS: Final = 10.0  # to map 64 MiB again costs as much as reading some 20 KiB of them
MAPS_A_TURN: Final = 8  # some milliseconds of the event loop, if each has been read to its end
PARTITIONS_A_TURN: Final = 1000  # a few milliseconds of the event loop
# A frame that has begun must make progress; a client that sends a byte now and then does not
# count as one that works.
HALF_FRAME_SECONDS: Final = 30.0
MIN_FRAME_RATE: Final = 1024.0  # bytes a second
SHORTEST_BACKOFF: Final = 0.01  # of the compactor: it looks at every log, and others have a turn

logger = logging.getLogger(__name__)


class Jobs:
    """The background tasks of one node."""

    def __init__(
        self,
        services: Services,
        connections: Connections,
        poll: Callable[[], Awaitable[object]] | None,
        *,
        has_siblings: bool = False,
    ) -> None:
        """`poll` looks for what other nodes, or commands, changed."""
        self._services = services
        self._config = services.cluster.config
        self._settings = services.settings
        self._clock = services.clock
        self._data = services.data
        self._partitions = services.partitions
        self._workers = services.workers
        self._persister = services.persister
        self._retention = Lazy(partial(_retention, services), services.workers, "hosting.retention")
        self._cleaner = services.cleaner
        self._has_siblings = has_siblings
        self.is_deaf = False
        self._balancing = Lazy(partial(_balancing, services), services.workers, "running.balancing")
        self._connections = connections
        self._durability = services.durability
        self._poll_store = poll
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when settings change; there is another one then."""
        self._tasks: list[asyncio.Task[None]] = []
        self._offline: WeakSet[HostedPartition] = WeakSet()

    def start(self) -> None:
        config = self._config
        seconds: dict[Callable[[], Coroutine[Any, Any, None]], float] = {
            self._retain: config.get_int("log.retention.check.interval.ms") / 1000,
            self._checkpoint: config.get_int("log.flush.offset.checkpoint.interval.ms") / 1000,
            self._expire_producers: config.get_int("producer.id.expiration.check.interval.ms")
            / 1000,
            self._flush: FLUSH_CHECK_SECONDS,
            self._purge: PURGE_CHECK_SECONDS,
            self._sweep: SWEEP_SECONDS,
            self._report: SWEEP_SECONDS,
            self._let_go_of_maps: UNREAD_MAP_SECONDS,
            self._prune_share_state: config.get_int(
                "share.coordinator.state.topic.prune.interval.ms"
            )
            / 1000,
        }
        if self._poll_store is not None:
            seconds[self._poll] = DEAF_POLL_SECONDS if self.is_deaf else METADATA_POLL_SECONDS
        if self._has_siblings:
            seconds[self._balance] = BALANCE_CHECK_SECONDS
        door = self._services.door
        if door is not None:
            seconds[door.sweep] = SESSION_SWEEP_SECONDS
        certificates = self._services.certificates
        if certificates is not None:
            look = config.get_int("ottla.ssl.reload.interval.ms") / 1000
            if look > 0:
                seconds[certificates.reload] = look
        for job, interval in seconds.items():
            self._tasks.append(asyncio.create_task(_every(partial(asyncio.sleep, interval), job)))
        self._tasks.append(asyncio.create_task(_every(self._cleaner_pause, self._compact)))
        self._settings.watch(self._settings_changed)

    def _settings_changed(self) -> None:
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    async def _cleaner_pause(self) -> None:
        """log.cleaner.backoff.ms, as it is now: a pause under way becomes shorter or longer."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (
            left := began + max(self._settings.cleaner_backoff, SHORTEST_BACKOFF) - loop.time()
        ) > 0:
            await asyncio.wait([self._changed], timeout=left)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _retain(self) -> None:
        await self._retention().run()

    async def _purge(self) -> None:
        """Delete files of deleted topics; failures are tried again with retention."""
        if self._partitions.purge_is_due():
            await self._partitions.purge()

    async def _compact(self) -> None:
        while await self._cleaner().compact_dirtiest():
            pass

    async def _flush(self) -> None:
        """flush.ms: sync logs that were unsynced for that long; not needed with group sync."""
        now = asyncio.get_running_loop().time()
        due = [p for p in self._partitions if p.log.online and p.flush_due(now)]
        if due:
            await self._durability.sync(due)

    async def _checkpoint(self) -> None:
        for count, partition in enumerate(self._partitions, 1):
            self._data.checkpoints.note(partition)
            if count % PARTITIONS_A_TURN == 0:
                await asyncio.sleep(0)
        await self._data.checkpoints.durable()
        await self._partitions.finish_replay()

    async def _expire_producers(self) -> None:
        expiration_ms = self._settings.producer_expiration_ms
        for count, partition in enumerate(self._partitions, 1):
            partition.log.expire_producers(self._clock.wall_ms(), expiration_ms)
            if count % PARTITIONS_A_TURN == 0:
                await asyncio.sleep(0)

    async def _prune_share_state(self) -> None:
        if self._persister.made is not None:
            await self._persister.made.prune()

    async def _poll(self) -> None:
        """Adopt what other nodes changed."""
        assert self._poll_store is not None
        await self._poll_store()

    async def _balance(self) -> None:
        """Move partitions between nodes."""
        if len(self._services.cluster.image.brokers) > 1:
            await (await self._balancing.ready()).run()

    async def _sweep(self) -> None:
        """Close connections that are idle, or that began a frame and do not go on."""
        self._services.load.sample()
        now = asyncio.get_running_loop().time()
        idle = self._settings.idle_ms / 1000
        for connection in self._connections:
            slow = connection.frame_is_slow(now, HALF_FRAME_SECONDS, MIN_FRAME_RATE)
            if slow or (idle > 0 and connection.idle_seconds(now) > idle):
                connection.abort()
        if self._services.audit is not None:
            self._services.audit.sweep()

    async def _let_go_of_maps(self) -> None:
        """Give up what nobody has read for a while: it counts as memory of this process."""
        unused = shared().maps.take_unused()
        while unused:
            del unused[-MAPS_A_TURN:]
            await asyncio.sleep(0)

    async def _report(self) -> None:
        """Log once for each offline log; clients get an error with every request."""
        for partition in self._partitions:
            if not partition.log.online and partition not in self._offline:
                self._offline.add(partition)
                logger.error("%r is offline until the broker is restarted", partition)


def _balancing(services: Services) -> Balancing:
    # Not needed by a node alone.
    from ottla.broker.running.balancing import Balancing

    return Balancing(services.cluster, services.workers, services.clock)


def _retention(services: Services) -> Retention:
    # Not needed to be ready.
    from ottla.broker.hosting.retention import Retention

    return Retention(
        services.data,
        services.partitions,
        services.workers,
        services.tiering,
        services.table_hold,
        services.clock,
    )


async def _every(
    pause: Callable[[], Coroutine[Any, Any, None]], job: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    while True:
        await pause()
        try:
            await job()
        except Exception:
            logger.exception("background job %s failed", job.__name__)
