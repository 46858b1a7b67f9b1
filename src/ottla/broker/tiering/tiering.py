"""Tiered storage in a running node: catalogue, store, and the work for each partition.

A node starts without a catalogue: until it has read the metadata topic, through its own listener,
every question is refused (`NotReadyRlmm`), so that nothing is copied and no offset is called
missing. If that takes long it says so, and goes on trying. From then on one task follows the
cluster's image: it says which metadata partitions to read and which partitions to work for. Another
one starts rounds of work (`partition`, `sweeps`) at the interval of
remote.log.manager.task.interval.ms.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import AsyncExitStack, suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ottla.broker.access.own_address import own_address
from ottla.broker.errors import ApiError
from ottla.broker.hosting.hosted import topic_uuid
from ottla.broker.tiering.pace import Pacer
from ottla.broker.tiering.partition import TieredPartition
from ottla.broker.tiering.pool import Pool
from ottla.broker.tiering.reads import RemoteReads
from ottla.broker.tiering.sweeps import Sweeps
from ottla.log.checkpoints import Checkpoint
from ottla.metadata.config.values import resolve_broker_config
from ottla.metadata.errors import ConfigError
from ottla.metadata.image import ResourceType
from ottla.metadata.names import REMOTE_LOG_METADATA_TOPIC
from ottla.objects.errors import RemoteStorageError
from ottla.objects.location import URL_KEY, BadLocation, open_store, parse_location
from ottla.tier.catalogue.rlmm import NotReadyRlmm, SwappableRlmm
from ottla.tier.catalogue.segments import TopicIdPartition
from ottla.tier.errors import NotReady
from ottla.tier.reading.index_cache import DIRECTORY_NAME, RemoteIndexCache
from ottla.tier.store.quota import RateQuota
from ottla.tier.store.storage_manager import RemoteStorageManager
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from uuid import UUID

    from ottla.broker.access.door import Door
    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.hosting.table_hold import TableHold
    from ottla.broker.running.services import Lazy
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.metadata.config.types import TypedConfig
    from ottla.metadata.image import MetadataImage
    from ottla.tier.catalogue.kafka_event_log import KafkaMetadataEventLog
    from ottla.tier.catalogue.topic_rlmm import TopicBasedRemoteLogMetadataManager

RECONCILE_SECONDS: Final = 30.0
CATALOGUE_DIRECTORY: Final = "remote-log-metadata"  # in the data directory
# Each followed metadata partition is a waiting fetch; one that is answered by nothing but time
# should not be answered often.
FETCH_MAX_WAIT_MS: Final = 5_000
MAX_BACKOFF_SECONDS: Final = 30.0
_RETRY: Final = "rlmm.config.remote.log.metadata.initialization.retry.interval.ms"
_PATIENCE: Final = "rlmm.config.remote.log.metadata.initialization.retry.max.timeout.ms"

logger = logging.getLogger(__name__)


class Tiering:
    """Created with the node if remote.log.storage.system.enable is true; `start` when it serves."""

    def __init__(
        self,
        cluster: Cluster,
        data: Data,
        hosted: Partitions,
        workers: Workers,
        clock: Clock,
        *,
        addresses: Mapping[str, tuple[str, int]],
        door: Callable[[], Door | None],
        table_hold: Lazy[TableHold],
        requests: Mapping[int, int],
    ) -> None:
        config = cluster.config
        try:
            location = parse_location(config.static)
        except BadLocation as error:
            raise ConfigError(
                f"{URL_KEY}, as remote.log.storage.system.enable is true", str(error), "broker"
            ) from error
        self.cluster = cluster
        self.data = data
        self.hosted = hosted
        """The partitions led here, tiered or not."""
        self.workers = workers
        self.clock = clock
        self.requests = requests
        """Served since the start, by API."""
        self._addresses = addresses
        self._door = door
        self.table_hold = table_hold
        self.location = location
        self.pacer = Pacer(self)
        self.storage = RemoteStorageManager(
            open_store(location), location.prefix, cluster.image.cluster_id, pace=self.pacer.piece
        )
        self.catalogue = SwappableRlmm(NotReadyRlmm())
        self.indexes = RemoteIndexCache(
            data.path / DIRECTORY_NAME,
            self.storage,
            max_bytes=self.setting("remote.log.index.file.cache.total.size.bytes"),
            ttl_ms=config.get_int("remote.log.index.file.cache.ttl.ms"),
            clock_ms=clock.monotonic_ms,
        )
        self.copy_quota = self._quota("copy")
        self.copy_turn = asyncio.Lock()
        self.fetch_quota = self._quota("fetch")
        self.copiers = self._pool("remote.log.manager.copier.thread.pool.size")
        self.expirers = self._pool("remote.log.manager.expiration.thread.pool.size")
        self.counted: Counter[tuple[str, str]] = Counter()
        """By what happened and topic; what they mean stands in `tiering_metrics`."""
        self.partitions: dict[tuple[UUID, int], TieredPartition] = {}
        self.reads = RemoteReads(self)
        self.sweeps = Sweeps(self)
        self.manager: TopicBasedRemoteLogMetadataManager | None = None
        """Behind `catalogue`, once it is loaded."""
        self.alarm: str | None = None
        """What keeps the catalogue from being read, if it has been so for long."""
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def _quota(self, kind: str) -> RateQuota:
        config = self.cluster.config
        return RateQuota(
            self.setting(f"remote.log.manager.{kind}.max.bytes.per.second"),
            windows=config.get_int(f"remote.log.manager.{kind}.quota.window.num"),
            window_ms=1000 * config.get_int(f"remote.log.manager.{kind}.quota.window.size.seconds"),
        )

    def _pool(self, key: str) -> Pool:
        return Pool(lambda: self.setting(key))

    # -- settings ---------------------------------------------------------------------------------

    def setting(self, key: str) -> int:
        """A setting as it is now; many of them may change while the broker runs."""
        return self._settings.get_int(key)

    @cached_property
    def _settings(self) -> TypedConfig:
        return resolve_broker_config(self.cluster.image, self.cluster.config)

    def _settings_changed(self) -> None:
        vars(self).pop("_settings", None)
        self.copy_quota.limit = self.setting("remote.log.manager.copy.max.bytes.per.second")
        self.fetch_quota.limit = self.setting("remote.log.manager.fetch.max.bytes.per.second")
        self.reads.resize(self.setting("remote.result.cache.bytes"))
        self.indexes.resize(self.setting("remote.log.index.file.cache.total.size.bytes"))

    # -- starting and stopping --------------------------------------------------------------------

    def start(self) -> None:
        """The node serves: begin to read the metadata topic, through its listener."""
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._work())]

    async def stop(self) -> None:
        """End copies and reads where they are; leave a catalogue snapshot for the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.reads.close()

    async def _run(self) -> None:
        """Read the metadata topic as long as the node runs; retry after any error."""
        while True:
            try:
                await self._read_catalogue()
                self.alarm = f"{REMOTE_LOG_METADATA_TOPIC} was recreated; reading it from the start"
                logger.error("%s", self.alarm)
            except Exception as error:
                self.alarm = f"the catalogue of remote segments is not available: {error}"
                logger.exception("reading the catalogue of remote segments failed; retrying")
                await asyncio.sleep(MAX_BACKOFF_SECONDS)
            for one in self.partitions.values():
                one.forget()

    async def _read_catalogue(self) -> None:
        """From the first event until the topic is not the same any more."""
        await self.workers.run(_load_clients)
        await self.indexes.load()
        async with AsyncExitStack() as stack:
            event_log, manager = await self._load_catalogue(stack)
            await self._reconcile(event_log, manager)
            self.catalogue.swap(manager)
            self.manager, self.alarm = manager, None
            try:
                await self._follow(event_log, manager)
            finally:
                self.catalogue.swap(NotReadyRlmm())
                self.manager = None

    async def _follow(
        self, event_log: KafkaMetadataEventLog, manager: TopicBasedRemoteLogMetadataManager
    ) -> None:
        """Run until the metadata topic is deleted or recreated."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECONCILE_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            topic = self.cluster.image.topic(REMOTE_LOG_METADATA_TOPIC)
            if topic is None or topic.topic_id != event_log.topic_id:
                return
            try:
                await self._reconcile(event_log, manager)
            except Exception:
                logger.exception("tiered storage failed to apply a change of the cluster")

    async def _load_catalogue(
        self, stack: AsyncExitStack
    ) -> tuple[KafkaMetadataEventLog, TopicBasedRemoteLogMetadataManager]:
        """The catalogue; tried again and again until the cluster's own topic can be read.

        The exit stack closes everything that is opened.
        """
        from ottla.tier.catalogue.topic_rlmm import TopicBasedRemoteLogMetadataManager

        cluster = self.cluster
        delay = cluster.config.get_int(_RETRY) / 1000
        patience = cluster.config.get_int(_PATIENCE) / 1000
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                event_log = await self._open_event_log()
                stack.push_async_callback(event_log.close)
                manager = await TopicBasedRemoteLogMetadataManager.start(
                    event_log,
                    self.catalogue_directory,
                    cluster.image.cluster_id,
                    consume_wait=cluster.config.get_int(
                        "rlmm.config.remote.log.metadata.consume.wait.ms"
                    )
                    / 1000,
                )
                stack.push_async_callback(manager.close)
                return event_log, manager
            except (RemoteStorageError, OSError) as error:
                if loop.time() - begun > patience:
                    self.alarm = f"the catalogue of remote segments cannot be read: {error}"
                    logger.error("%s; tried again", self.alarm)  # noqa: TRY400
                    delay = min(2 * delay, MAX_BACKOFF_SECONDS)
            await asyncio.sleep(delay)

    async def _open_event_log(self) -> KafkaMetadataEventLog:
        from ottla.tier.catalogue.kafka_event_log import (
            KafkaMetadataEventLog,
            KafkaMetadataEventLogConfig,
        )

        config = self.cluster.config
        bootstrap, security = await own_address(self.cluster, self._addresses, self._door())
        return await KafkaMetadataEventLog.open(
            KafkaMetadataEventLogConfig(
                bootstrap,
                partition_count=config.get_int(
                    "rlmm.config.remote.log.metadata.topic.num.partitions"
                ),
                replication_factor=config.get_int(
                    "rlmm.config.remote.log.metadata.topic.replication.factor"
                ),
                client_id_prefix=f"ottla-tier-{self.cluster.node_id}",
                fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
                security=security,
            )
        )

    # -- following the cluster --------------------------------------------------------------------

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        """Update the tiered partitions; a log no longer tiered starts at its local files."""
        if before.broker_configs is not after.broker_configs:
            self._settings_changed()
        if before.topics_by_name is not after.topics_by_name:
            for name in _tiered_topics(before):
                topic = before.topics_by_name.get(name)
                if topic is not None and topic.topic_id not in after.topic_names:
                    self.sweeps.topic_deleted(topic)
        for hosted in self.hosted:
            log = hosted.log
            if log.log_start_offset < log.local_start_offset and not (
                log.config.remote_storage_enable
            ):
                log.raise_log_start(log.local_start_offset)
                start = log.log_start_offset
                self.data.checkpoints.put(Checkpoint.LOG_START, hosted, start)
        self.look_again()

    def look_again(self) -> None:
        """Check the tiered partitions led here."""
        self._changed.set()

    async def _reconcile(
        self, event_log: KafkaMetadataEventLog, manager: TopicBasedRemoteLogMetadataManager
    ) -> None:
        image = self.cluster.image
        led = {
            (topic.topic_id, index): TopicIdPartition(topic.topic_id, topic.name, index)
            for topic in map(image.topic, _tiered_topics(image))
            if topic is not None
            for index, partition in enumerate(topic.partitions)
            if partition.leader == self.cluster.node_id
        }
        gone = [one.tip for key, one in self.partitions.items() if key not in led]
        manager.on_stop_partitions(gone)
        # Those that are being deleted are asked about until that is done.
        manager.on_partition_leadership_changes([*led.values(), *self.sweeps.pending()], ())
        await manager.reconcile_assignment(
            manager.wanted_partitions(await self._led_metadata_partitions(event_log))
        )
        for tip in gone:
            self.partitions.pop(tip.identity).stop()
        for key, tip in led.items():
            if key not in self.partitions and not self.sweeps.is_deleting(tip):
                self.partitions[key] = TieredPartition(self, tip)

    async def _led_metadata_partitions(self, event_log: KafkaMetadataEventLog) -> list[int]:
        """Those with events: what they say of topics that are gone is this node's to clean up."""
        topic = self.cluster.image.topic(REMOTE_LOG_METADATA_TOPIC)
        if topic is None:
            return []
        try:
            marks = await event_log.high_water_marks()
        except RemoteStorageError:
            return []
        return [
            index
            for index, partition in enumerate(topic.partitions)
            if partition.leader == self.cluster.node_id and marks[index] > 0
        ]

    # -- working ----------------------------------------------------------------------------------

    async def _work(self) -> None:
        interval = self.cluster.config.get_int("remote.log.manager.task.interval.ms") / 1000
        rounds: set[asyncio.Task[None]] = set()
        try:
            while True:
                rounds = {task for task in rounds if not task.done()}
                for one in self.partitions.values():
                    rounds |= {one.copier.begin(), one.expirer.begin()}
                rounds.add(self.sweeps.work.begin())
                await asyncio.sleep(interval)
        finally:
            for task in rounds:
                task.cancel()
            await asyncio.gather(*rounds, return_exceptions=True)

    # -- for those who serve requests -------------------------------------------------------------

    def find(self, hosted: HostedPartition) -> TieredPartition:
        """The tiered side of a partition, or `NotReady`."""
        found = self.partitions.get((topic_uuid(hosted.topic_id), hosted.index))
        if found is None:
            raise NotReady(f"{hosted!r} is not registered as a tiered partition yet; try again")
        return found

    def read_ended(self, hosted: HostedPartition, error: Exception | None) -> None:
        """Note the error of a remote read, for the list of errors."""
        found = self.partitions.get((topic_uuid(hosted.topic_id), hosted.index))
        if found is not None:
            found.read_ended(error)

    def highest_remote(self, hosted: HostedPartition) -> int:
        """The last remote offset, -1 if none; `ApiError` while it is unknown."""
        try:
            found = self.find(hosted)
            found.seed(hosted.log)
        except NotReady as error:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, str(error)) from error
        return found.highest_remote

    def retain_locally(self, hosted: HostedPartition, at_ms: int) -> bool:
        """Delete local segments by local.retention.*; returns whether any were."""
        try:
            return self.find(hosted).retain_locally(hosted, at_ms)
        except NotReady:
            return False

    def is_tiered(self, topic: str) -> bool:
        return topic in _tiered_topics(self.cluster.image)

    @property
    def catalogue_directory(self) -> Path:
        return self.data.path / CATALOGUE_DIRECTORY

    def errors(self) -> dict[str, str]:
        """The current errors, by place."""
        found = {"catalogue": self.alarm, "sweep": self.sweeps.error}
        for one in self.partitions.values():
            found[f"{one.tip.topic}-{one.tip.partition}"] = one.error
        return {where: error for where, error in found.items() if error is not None}

    def count(self, what: str, topic: str, number: int = 1) -> None:
        self.counted[what, topic] += number


def _load_clients() -> None:
    """Import what reads the catalogue, half of the client room. Blocks."""
    import_module("ottla.tier.catalogue.kafka_event_log")
    import_module("ottla.tier.catalogue.topic_rlmm")


def _tiered_topics(image: MetadataImage) -> list[str]:
    """No broker has a default for the setting, so only topics that say so themselves are."""
    return [
        name
        for name, overrides in image.configs_by_type(ResourceType.TOPIC).items()
        if overrides.get("remote.storage.enable") == "true"
    ]
