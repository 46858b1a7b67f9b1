"""The worker: does what the machines of its tables decide (`rounds`).

    async with Worker("127.0.0.1:9092", settings) as worker:
        await worker.run_once()

Tables are served one after the other; the one that has waited longest is next. So memory and spool
do not depend on their number. Everything that blocks (the catalogue, conversion) is in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from ottla.client.admin.admin import Admin
from ottla.client.errors import ConnectionLost, RequestTimedOut, TlsFailed, WrongProtocol
from ottla.client.producer.producer import Producer
from ottla.client.security import PLAINTEXT, Security
from ottla.clock import SYSTEM
from ottla.redaction import redact
from ottla.tables.pointer import create_pointer_topic
from ottla.tables.registries import registry_url, schemas_at
from ottla.tables.table_task import TableTask
from ottla.tables.taking import Remote
from ottla.tables.topics import enabled_topics
from ottla.tables.warehouse import Warehouse
from ottla.tables.worker_metrics import WorkerMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType

    from ottla.clock import Clock
    from ottla.schemas.cache import SchemaCache
    from ottla.tables.errors import BadTableSetting
    from ottla.tables.format import Offsets, TableFormat
    from ottla.tables.settings import TopicSettings, WorkerSettings
    from ottla.tables.tiered import Tier
    from ottla.tables.topics import Shard

DISCOVERY: Final = 30.0
"""Seconds between looks at the topics' settings: a new table may wait so long."""

RECONNECT: Final = 1.0
"""Seconds between attempts to reach a broker when the worker starts."""
CUT_OFF: Final = (ConnectionLost, RequestTimedOut)
"""The broker may be back later."""
FOR_GOOD: Final = (TlsFailed, WrongProtocol)
"""Of these, what waiting cannot mend."""

logger = logging.getLogger(__name__)


class Worker:
    """Serves the tables of one cluster. `topics` limits it to these, `shard` to a share of them.

    A worker starts when it reaches a broker; if it is not `patient`, it fails at once without one.
    """

    def __init__(
        self,
        bootstrap: str,
        settings: WorkerSettings,
        *,
        topics: Collection[str] | None = None,
        shard: Shard | None = None,
        overrides: Mapping[str, Mapping[str, str]] | None = None,
        security: Security = PLAINTEXT,
        clock: Clock = SYSTEM,
        patient: bool = True,
    ) -> None:
        self.bootstrap = bootstrap
        self.settings = settings
        self.security = security
        self.clock = clock
        self.admin = Admin(bootstrap, security=security, client_id="ottla-table")
        self.warehouse = Warehouse(settings.warehouse)
        self.turn = asyncio.Lock()
        self.metrics = WorkerMetrics()
        self._topics = topics
        self._shard = shard
        self._overrides = overrides or {}
        self._refused: set[str] = set()  # what was said of topics with wrong settings
        self._is_patient = patient
        self._is_cut_off = False
        self._producer: Producer | None = None
        self._format: TableFormat | None = None
        self._spool: tempfile.TemporaryDirectory[str] | None = None
        self._schemas: SchemaCache | None = None
        self._tier: Tier | None = None
        self.cluster_id = ""

    async def __aenter__(self) -> Self:
        from ottla.tables.iceberg import IcebergTables

        try:
            await self._reach()
            self._spool = tempfile.TemporaryDirectory(prefix="ottla-table-")
            self._format = await asyncio.to_thread(IcebergTables, self.settings)
            self.cluster_id = (await self.admin.describe_cluster()).cluster_id or ""
            await create_pointer_topic(self.admin)
            self._producer = Producer(
                self.bootstrap, security=self.security, client_id="ottla-table"
            )
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections and empty the spool."""
        await self.admin.close()
        if self._producer is not None:
            await self._producer.close()
        if self._format is not None:
            await asyncio.to_thread(self._format.close)
        if self._schemas is not None:
            await asyncio.to_thread(self._schemas.close)
        if self._spool is not None:
            await asyncio.to_thread(self._spool.cleanup)

    @property
    def format(self) -> TableFormat:
        """The catalogue; only while the worker is open."""
        assert self._format is not None
        return self._format

    @property
    def producer(self) -> Producer:
        """For pointers; only while the worker is open."""
        assert self._producer is not None
        return self._producer

    @property
    def spool(self) -> Path:
        """Where files lie before they are uploaded; only while the worker is open."""
        assert self._spool is not None
        return Path(self._spool.name)

    async def remote(self, topic: str) -> Remote | None:
        """The store of tiered segments for records of a topic that no local log has."""
        if self.settings.tier is None:
            return None
        starts = await self.admin.list_offsets([topic], "earliest")
        local = await self.admin.list_offsets([topic], "earliest-local")
        if all(local[one].offset <= found.offset for one, found in starts.items() if one in local):
            return None
        if self._tier is None:
            from ottla.tables.tiered import Tier

            self._tier = await asyncio.to_thread(Tier, self.settings.tier)
        return Remote(self._tier, {one.partition: found.offset for one, found in local.items()})

    async def schemas(self) -> SchemaCache:
        """The schemas of the registry, which is looked for at the first call."""
        if self._schemas is None:
            url = await registry_url(self.settings.registry_url, self.admin.registry_url)
            self._schemas = schemas_at(url, self.security)
        return self._schemas

    async def _reach(self) -> None:
        while True:
            try:
                await self.admin.connect()
            except CUT_OFF as error:
                if isinstance(error, FOR_GOOD) or not self._is_patient:
                    raise
                self._lost(error)
                await asyncio.sleep(RECONNECT)
            else:
                self._answered()
                return

    def _lost(self, error: Exception) -> None:
        """Say once that the broker is away."""
        if not self._is_cut_off:
            self._is_cut_off = True
            logger.warning("trying until the broker is back: %s", redact(error))

    def _answered(self) -> None:
        if self._is_cut_off:
            self._is_cut_off = False
            logger.warning("the broker is back")

    async def run_once(self) -> dict[str, Offsets]:
        """Take what is there now, table by table; the positions by topic."""
        reached = {}
        for one in (await self._enabled()).values():
            reached[one.topic] = await TableTask(self, one).run_once()
        return reached

    async def run(self) -> None:
        """Serve tables until cancelled; topics that are enabled meanwhile are served, too."""
        tasks: dict[str, tuple[TopicSettings, asyncio.Task[None]]] = {}
        try:
            while True:
                try:
                    wanted = await self._enabled(self._refuse)
                except Exception as error:  # noqa: BLE001  # a broker that restarts ends no worker
                    if isinstance(error, CUT_OFF):
                        self._lost(error)
                    else:
                        logger.warning("cannot list the topics: %s", redact(error))
                    wanted = {name: settings for name, (settings, _) in tasks.items()}
                else:
                    self._answered()
                for name, (settings, task) in list(tasks.items()):
                    if task.done():
                        logger.error("table of %s stopped", name, exc_info=task.exception())
                    if task.done() or wanted.get(name) != settings:
                        del tasks[name]
                        task.cancel()
                        with suppress(asyncio.CancelledError):
                            await task
                for name, settings in wanted.items():
                    if name not in tasks:
                        task = asyncio.create_task(TableTask(self, settings).run())
                        tasks[name] = (settings, task)
                await asyncio.sleep(DISCOVERY)
        finally:
            for _, task in tasks.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in tasks.values()), return_exceptions=True)

    async def _enabled(
        self, refuse: Callable[[BadTableSetting], None] | None = None
    ) -> dict[str, TopicSettings]:
        return await enabled_topics(
            self.admin, self._topics, self._overrides, self._shard, refuse=refuse
        )

    async def is_enabled(self, topic: str) -> bool:
        """Whether the topic is kept as a table now."""
        return topic in await enabled_topics(self.admin, [topic], self._overrides)

    def _refuse(self, error: BadTableSetting) -> None:
        """One topic with wrong settings stops no other table; said once, not at each look."""
        if str(error) not in self._refused:
            self._refused.add(str(error))
            logger.error("not kept as a table: %s", error)
