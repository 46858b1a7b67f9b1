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
from uuid import uuid4

from ottla.client.admin.admin import Admin
from ottla.client.errors import ConnectionLost, RequestTimedOut, TlsFailed, WrongProtocol
from ottla.client.producer.producer import Producer
from ottla.client.security import PLAINTEXT, Security
from ottla.clock import SYSTEM
from ottla.redaction import redact
from ottla.tables import rounds
from ottla.tables.converting import Converter
from ottla.tables.errors import (
    ColumnsMoved,
    CommitRefused,
    TablePaused,
    TableRunFailed,
    TopicReplaced,
)
from ottla.tables.format import NewTable
from ottla.tables.names import dead_letter_table, group_of
from ottla.tables.parquet_files import RoundFiles
from ottla.tables.pointer import create_pointer_topic, pointer_of, publish
from ottla.tables.position import replaced
from ottla.tables.registries import needs_registry, registry_url, schemas_at
from ottla.tables.rounds import Rounds
from ottla.tables.rows import LETTERS
from ottla.tables.scanning import offsets_from
from ottla.tables.taking import take
from ottla.tables.topics import enabled_topics, look
from ottla.tables.upkeep import Upkeep
from ottla.tables.warehouse import Warehouse
from ottla.tables.worker_metrics import WorkerMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType

    from ottla.clock import Clock
    from ottla.schemas.cache import SchemaCache
    from ottla.tables.errors import BadTableSetting
    from ottla.tables.format import NewFile, Offsets, TableFormat, TableState
    from ottla.tables.settings import TopicSettings, WorkerSettings
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

    def _refuse(self, error: BadTableSetting) -> None:
        """One topic with wrong settings stops no other table; said once, not at each look."""
        if str(error) not in self._refused:
            self._refused.add(str(error))
            logger.error("not kept as a table: %s", error)


class TableTask:
    """The shell of one table's machine."""

    def __init__(self, worker: Worker, settings: TopicSettings) -> None:
        self._worker = worker
        self._settings = settings
        self._rounds = Rounds(settings.commit_interval)
        self.upkeep = Upkeep(worker.format, worker.warehouse, settings)
        self.letter_upkeep = Upkeep(worker.format, worker.warehouse, settings, letters=True)
        self._converter: Converter | None = None
        self._letters = dead_letter_table(settings.table)
        self._goal: Offsets | None = None
        self._files: RoundFiles | None = None

    async def run(self) -> None:
        """Serve the table until cancelled."""
        event: rounds.Event = rounds.Tick()
        while True:
            async with self._worker.turn:
                wait = await self._until_wait(event)
                if wait.trouble is None:
                    await self._maintain()
            if wait.trouble is not None:
                logger.warning(
                    "table %s waits %.0f s: %s: %s",
                    self._settings.table, wait.seconds, wait.trouble.name,
                    redact(wait.trouble.sentence),
                )  # fmt: skip
            await asyncio.sleep(wait.seconds)
            event = rounds.Tick()

    async def _maintain(self) -> None:
        try:
            now_ms = self._worker.clock.wall_ms()
            await self.upkeep.step(self._worker.spool, now_ms)
            if self._settings.has_letters:
                await self.letter_upkeep.step(self._worker.spool, now_ms)
            self._worker.metrics.small_files[self._settings.topic] = self.upkeep.small_files
        except Exception as error:  # noqa: BLE001  # the next round tries again
            logger.warning("upkeep of %s: %s", self._settings.table, redact(error))

    async def run_once(self) -> Offsets:
        """Take what is there when the table is first loaded; the position then."""
        while True:
            wait = await self._until_wait(rounds.Tick())
            if wait.trouble is not None:
                why = f"{self._settings.topic}: {wait.trouble.name}: {wait.trouble.sentence}"
                failed = wait.trouble.name in ("Failed", "AnotherWorker")
                raise TableRunFailed(why) if failed else TablePaused(why)
            reached = self._rounds.reached
            goal = self._goal or {}
            if all(reached.get(one, 0) >= end for one, end in goal.items()):
                return reached

    async def _until_wait(self, event: rounds.Event) -> rounds.Wait:
        while True:
            for effect in self._rounds.decide(event, self._worker.clock.monotonic()):
                if isinstance(effect, rounds.Wait):
                    return effect
                event = await self._attempt(effect)
                self._note(event)

    def _note(self, event: rounds.Event) -> None:
        """What the event says of the table, for metrics."""
        metrics, topic = self._worker.metrics, self._settings.topic
        match event:
            case rounds.Loaded(state, _, log) if state is not None:
                metrics.loaded(topic, state, log.ends)
            case rounds.Taken():
                metrics.invalid[topic] += sum(one.rows for one in event.letters)
            case rounds.Committed(state):
                metrics.committed(topic, state)

    async def _attempt(self, effect: rounds.Effect) -> rounds.Event:
        try:
            return await self.do(effect)
        except Exception as error:  # noqa: BLE001  # the machine decides what a failure means
            name = type(error).__name__
            return rounds.Failed(
                f"{type(effect).__name__}: {name}: {error}",
                is_refused=isinstance(error, CommitRefused),
                is_stale=isinstance(error, ColumnsMoved),
            )

    async def do(self, effect: rounds.Effect) -> rounds.Event:
        """Do one effect; its event."""
        match effect:
            case rounds.Load():
                return await self._load()
            case rounds.Create():
                return await self._create(effect)
            case rounds.Take():
                return await self._take(effect)
            case rounds.Upload():
                for one in effect.files:
                    await self._worker.warehouse.upload(one.spool, one.url)
                return rounds.Uploaded()
            case rounds.CommitRows():
                state = await asyncio.to_thread(
                    self._worker.format.commit, effect.state, effect.commit
                )
                return rounds.Committed(state)
            case rounds.CommitLetters():
                await asyncio.to_thread(self._commit_letters, effect)
                return rounds.LettersCommitted()
            case rounds.Ask():
                table = self._letters if effect.letters else self._settings.table
                return rounds.Asked(await asyncio.to_thread(self._worker.format.load, table))
            case rounds.Drop():
                await self._drop(effect.files)
                return rounds.Tick()
            case rounds.Publish():
                return await self._publish(effect)
            case rounds.Mirror():
                topic = self._settings.topic
                await self._worker.admin.alter_group_offsets(
                    group_of(self._settings.table),
                    {(topic, one): offset for one, offset in effect.position.items()},
                )
                return rounds.Mirrored()
        raise AssertionError(f"no such effect: {effect!r}")

    async def _load(self) -> rounds.Event:
        await self._empty_spool()
        load = self._worker.format.load
        state = await asyncio.to_thread(load, self._settings.table)
        # After the table: what its position does not cover yet is seen then.
        letters = await asyncio.to_thread(load, self._letters)
        log = await look(self._worker.admin, self._settings, is_new=state is None)
        if self._goal is None:
            self._goal = log.ends
        return rounds.Loaded(state, letters, log, uuid4().hex)

    async def _create(self, effect: rounds.Create) -> rounds.Event:
        table = NewTable(
            self._settings.table,
            self._settings.topic,
            effect.topic_id,
            self._worker.cluster_id,
            effect.first,
            (await self._ready_converter()).columns,
            self._settings.partition,
        )
        await asyncio.to_thread(self._worker.format.create, table)
        return rounds.Created()

    async def _ready_converter(self) -> Converter:
        if self._converter is None:
            worker = self._worker
            schemas = await worker.schemas() if needs_registry(self._settings) else None
            self._converter = await asyncio.to_thread(
                Converter, self._settings, schemas, worker.clock
            )
        return self._converter

    async def _take(self, effect: rounds.Take) -> rounds.Event:
        worker = self._worker
        converter = await self._ready_converter()
        state = effect.state
        await asyncio.to_thread(converter.start, state.columns)
        columns = await asyncio.to_thread(worker.format.widened, state, converter.columns)
        decided: dict[int, set[int]] = {}
        if effect.letters is not None:
            decided = await asyncio.to_thread(
                offsets_from, worker.format, effect.letters, effect.start
            )
        files = self._files = await asyncio.to_thread(
            RoundFiles,
            worker.spool / effect.commit,
            state,
            columns,
            effect.commit,
            converter,
            self._settings,
            decided,
            lambda: self._letter_table(state.topic_id),
            lambda wanted: worker.format.widened(state, wanted),
        )
        position = await take(worker.bootstrap, worker.security, self._settings, effect, files)
        rows, letters = await asyncio.to_thread(files.finish)
        if files.dropped:
            worker.metrics.invalid[self._settings.topic] += files.dropped
            logger.warning("%s: %d invalid records dropped", self._settings.topic, files.dropped)
        is_wider = not files.columns.equals(state.columns, check_metadata=True)
        return rounds.Taken(position, rows, letters, files.columns if is_wider else None)

    def _letter_table(self, topic_id: str) -> TableState:
        made = self._worker.format.create(
            NewTable(
                self._letters,
                self._settings.topic,
                topic_id,
                self._worker.cluster_id,
                {},
                LETTERS,
                "none",
            )
        )
        if (why := replaced(made, topic_id)) is not None:
            # Made after this round was loaded; the next one pauses.
            raise TopicReplaced(why.sentence)
        return made

    def _commit_letters(self, effect: rounds.CommitLetters) -> None:
        tables = self._worker.format
        state = effect.state or tables.load(self._letters)
        if state is None or (effect.state is None and state.snapshot is not None):
            raise CommitRefused(f"{self._letters} is not as it was loaded")
        tables.commit(state, effect.commit)

    async def _publish(self, effect: rounds.Publish) -> rounds.Event:
        await self._empty_spool()
        letters = await asyncio.to_thread(self._worker.format.load, self._letters)
        pointer = pointer_of(self._settings.topic, effect.state, letters)
        await publish(self._worker.producer, pointer)
        return rounds.Published(pointer.dlq_metadata_location)

    async def _drop(self, files: tuple[NewFile, ...]) -> None:
        """What cannot be deleted now is an orphan in the store, which nobody reads."""
        for one in files:
            try:
                await self._worker.warehouse.delete(one.url)
            except Exception as error:  # noqa: BLE001  # it is rubbish, wherever it is
                logger.warning("cannot delete %s: %s", one.url, redact(error))

    async def _empty_spool(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            await asyncio.to_thread(files.discard)
