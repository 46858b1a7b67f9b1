"""The shell of one table's machine (`rounds`): does its effects, and upkeep between rounds."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ottla.redaction import redact
from ottla.tables import rounds, taking
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
from ottla.tables.pointer import pointer_of, publish, read_pointers
from ottla.tables.position import replaced
from ottla.tables.registries import needs_registry
from ottla.tables.remedies import SPOOL, WAREHOUSE, remedy
from ottla.tables.rounds import Rounds
from ottla.tables.rows import LETTERS
from ottla.tables.scanning import offsets_from
from ottla.tables.topics import look
from ottla.tables.upkeep import Upkeep
from ottla.tables.waiting import note_wait

if TYPE_CHECKING:
    from ottla.tables.format import NewFile, Offsets, TableState
    from ottla.tables.position import Trouble
    from ottla.tables.settings import TopicSettings
    from ottla.tables.worker import Worker

UNCHANGED_MS: Final = 600_000
"""Until a table is looked after again that nobody has written to: to look costs as much as a round,
and what is due by time alone, such as snapshots to forget, can wait so long."""

logger = logging.getLogger(__name__)


class TableTask:
    """Serves one table with what its worker has open."""

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
        self._round_bytes = taking.ROUND_BYTES
        self._told = ""
        self._seen: tuple[str | None, ...] = ()  # metadata of the table and of its dead letters
        self._maintained: tuple[str | None, ...] | None = None
        self._maintained_ms = 0

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
            await self._tell(wait.trouble)
            await asyncio.sleep(wait.seconds)
            event = rounds.Tick()

    async def _tell(self, trouble: Trouble | None) -> None:
        """Note with the mirrored position why the table waits, for `ottla table status`."""
        if trouble is None or trouble.name == rounds.ANOTHER_WORKER:  # the table does not wait
            why = ""
        else:
            why = f"{trouble.name}: {redact(trouble.sentence)}"
        if why == self._told:
            return
        try:
            await note_wait(self._worker.admin, self._settings, why)
            self._told = why
        except Exception as error:  # noqa: BLE001  # the broker may be what is away
            logger.debug("cannot note why %s waits: %s", self._settings.table, redact(error))

    async def _maintain(self) -> None:
        """Upkeep; a table that has not changed since is left alone for a while."""
        now_ms = self._worker.clock.wall_ms()
        seen = self._seen
        if seen == self._maintained and now_ms < self._maintained_ms + UNCHANGED_MS:
            return
        self._maintained, self._maintained_ms = seen, now_ms
        try:
            await self.upkeep.step(self._worker.spool, now_ms)
            if self._settings.has_letters:
                await self.letter_upkeep.step(self._worker.spool, now_ms)
            self._worker.metrics.small_files[self._settings.topic] = self.upkeep.small_files
        except Exception as error:  # noqa: BLE001  # the next round tries again
            told = f"{redact(error)}{remedy(error)}"
            logger.warning("upkeep of %s: %s", self._settings.table, told)

    async def run_once(self) -> Offsets:
        """Take what is there when the table is first loaded; the position then."""
        while True:
            wait = await self._until_wait(rounds.Tick())
            if wait.trouble is not None:
                why = f"{self._settings.topic}: {wait.trouble.name}: {wait.trouble.sentence}"
                failed = wait.trouble.name in ("Failed", rounds.ANOTHER_WORKER)
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
            case rounds.Loaded(state, letters, log) if state is not None:
                metrics.loaded(topic, state, log.ends)
                of_letters = None if letters is None else letters.metadata_location
                self._seen = state.metadata_location, of_letters
            case rounds.Taken():
                metrics.invalid[topic] += sum(one.rows for one in event.letters)
            case rounds.Committed(state):
                metrics.committed(topic, state)
                self._seen = (state.metadata_location,)

    async def _attempt(self, effect: rounds.Effect) -> rounds.Event:
        try:
            return await self.do(effect)
        except Exception as error:  # noqa: BLE001  # the machine decides what a failure means
            # The driver's own words, in one line: SQLAlchemy adds the statement and a link.
            told = " ".join(str(getattr(error, "orig", None) or error).split())
            place = SPOOL if isinstance(effect, rounds.Take) else WAREHOUSE
            return rounds.Failed(
                f"{type(effect).__name__}: {type(error).__name__}: {told}{remedy(error, place)}",
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
        elsewhere = await self._elsewhere(log.topic_id) if state is None else None
        if elsewhere is not None:
            again = await asyncio.to_thread(load, self._settings.table)
            if again is not None:
                return await self._load()  # another worker of this catalogue has made it meanwhile
        return rounds.Loaded(state, letters, log, uuid4().hex, elsewhere)

    async def _elsewhere(self, topic_id: str) -> str | None:
        """The metadata of the table that readers use, if this topic has one."""
        worker = self._worker
        found = await read_pointers(worker.bootstrap, security=worker.security)
        pointer = found.get(self._settings.topic)
        is_own = pointer is not None and pointer.topic_id == topic_id
        return pointer.metadata_location if pointer is not None and is_own else None

    async def _create(self, effect: rounds.Create) -> rounds.Event:
        if not await self._worker.is_enabled(self._settings.topic):
            # Not made again after somebody has dropped it; the next look at topics ends this task.
            raise TablePaused("ottla.table.enable is not true any more")
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
        try:
            position = await taking.take(
                worker.bootstrap,
                worker.security,
                self._settings,
                effect,
                files,
                self._round_bytes,
                await worker.remote(self._settings.topic),
            )
            rows, letters = await asyncio.to_thread(files.finish)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                await self._empty_spool()
                self._round_bytes = max(taking.LEAST_ROUND_BYTES, self._round_bytes // 2)
            raise
        if all(position.get(one, 0) >= end for one, end in effect.stop.items()):
            self._round_bytes = taking.ROUND_BYTES  # it has caught up
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
