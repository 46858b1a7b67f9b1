"""Acknowledge by one durable write for all partitions: `ottla.flush.mode=journal`.

`ottla.log.journal.writer` decides what to write where; this is the shell around it:

- Appends join the next round. A round starts at the end of the turn of the event loop in which the
  first append joined. If a slot is being written then, it starts as soon as that is done, before
  the slot's responses are sent, so that the disk works meanwhile.
- One thread writes slots; workers make files and sync logs. The event loop never waits for a disk.
- The `GroupFlusher` syncs partitions that do not use the journal, at the same time. A request that
  wrote to both kinds waits for both.
- The `GroupFlusher` also syncs all partitions while the journal of the previous run is still
  needed, and after a failure of the journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from contextlib import nullcontext
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.hosting.durability import one_is_done
from ottla.broker.hosting.journal_counts import JournalCounts
from ottla.broker.hosting.work import LOGS_TO_SHARE_A_SYNC
from ottla.log.errors import LogClosed
from ottla.log.journal.files import STREAM_BYTES, JournalFiles
from ottla.log.journal.slots import NewExtent
from ottla.log.journal.writer import FILE_BYTES, Checkpoint, Fresh, JournalWriter
from ottla.log.life import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path
    from typing import Any

    from ottla.broker.hosting.data import Data
    from ottla.broker.hosting.durability import Ack
    from ottla.broker.hosting.flusher import GroupFlusher
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.clock import Clock
    from ottla.log.journal.writer import SlotWrite
    from ottla.log.partition import PartitionLog

    Outcome = Callable[[BaseException | None], None]
    Joined = tuple[Ack | None, Sequence[HostedPartition]]
    Failure = tuple[HostedPartition, Exception]

# Without a write for so long the logs are synced, so that a crash of a quiet broker costs nothing.
IDLE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0  # of a file that could not be made, of a log that could not be synced


T = TypeVar("T")

logger = logging.getLogger(__name__)


class _Waiter:
    """An `Ack` that a task awaits."""

    __slots__ = ("future", "waits")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.waits = 1

    def settle(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class _DirectRound:
    """An `Ack` of the journal itself, for the partitions of a round that are synced directly."""

    __slots__ = ("_ended", "waits")

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self.waits = 0

    def settle(self) -> None:
        self._ended()


class JournalDurability:
    """A `Durability`; see the module's docstring."""

    stalled = False

    def __init__(
        self,
        data: Data,
        flusher: GroupFlusher,
        executor: Executor,
        clock: Clock,
        *,
        node_id: int,
        path: Path | None,
        total_bytes: int,
        extent_max_bytes: int,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._data = data
        self._flusher = flusher
        self._executor = executor
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        stream = os.urandom(STREAM_BYTES)
        self._writer: JournalWriter[HostedPartition] = JournalWriter(
            stream,
            node=node_id,
            files=total_bytes // file_bytes,
            extent_max_bytes=extent_max_bytes,
            file_bytes=file_bytes,
        )
        self._files = JournalFiles(data.directory, stream, path, file_bytes=file_bytes)
        self._thread = _Thread(self._loop)
        self._joined: list[Joined] = []
        self._held: list[Joined] = []  # of partitions whose direct sync is under way
        self._is_due = False  # the next round is already scheduled
        self._slot_acks: list[Ack] = []
        self._writing: Mapping[HostedPartition, int] = {}
        self._direct: set[HostedPartition] = set()
        self._jobs: set[asyncio.Future[Any]] = set()
        self._full: deque[tuple[int, Mapping[HostedPartition, int]]] = deque()
        self._is_checkpointing = False
        self._idle_at = 0  # the next slot's number when it was last looked at
        self._idle: asyncio.TimerHandle | None = None
        self._retries: set[asyncio.TimerHandle] = set()
        self._lacks_file = False  # and it has been told
        self._is_closed = False
        self.counts = JournalCounts()

    @property
    def rounds(self) -> int:
        return self._writer.next_seq - 1 + self._flusher.rounds

    @property
    def is_off(self) -> bool:
        """Whether a write has failed."""
        return self._writer.off is not None

    @property
    def free_files(self) -> int:
        return self._writer.free_files

    # -- those who append -------------------------------------------------------------------------

    def join(self, partitions: Sequence[HostedPartition]) -> asyncio.Future[None] | None:
        return self.sync(partitions) if partitions else None

    def sync(self, partitions: Sequence[HostedPartition]) -> asyncio.Future[None]:
        waiter = _Waiter(self._loop.create_future())
        self._joined.append((waiter, partitions))
        self._cut_soon()
        return waiter.future

    def enlist(self, partitions: Sequence[HostedPartition], ack: Ack | None) -> bool:
        """Whether an answer must wait until these logs are durable; it is notified afterwards."""
        if not partitions:
            return False
        if ack is not None:
            ack.waits += 1
        self._joined.append((ack, partitions))
        self._cut_soon()
        return True

    def forget(self, partition: HostedPartition) -> None:
        self._writer.forget(partition)

    async def barrier(self) -> None:
        # Earlier joins are part of the running round or of the next one.
        busy = {partition for _, joined in self._joined for partition in joined}
        busy |= self._direct
        busy.update(self._writing)
        await self.sync([*busy])

    async def drain(self) -> None:
        while self._joined or self._writing or self._direct:
            await self.barrier()
        await self._flusher.drain()

    async def close(self) -> None:
        # What a job would lead to is not begun any more: the files are removed next.
        self._is_closed = True
        if self._idle is not None:
            self._idle.cancel()
        for timer in self._retries:
            timer.cancel()
        while self._jobs:
            await asyncio.wait(self._jobs)
        await self._thread.close()
        self._files.close()

    # -- rounds -----------------------------------------------------------------------------------

    def _cut_soon(self) -> None:
        if not self._is_due and not self._writer.in_flight:
            self._is_due = True
            self._loop.call_soon(self._cut)

    def _cut(self) -> None:
        self._is_due = False
        if not self._joined or self._writer.in_flight:
            return
        joined, self._joined = self._joined, []
        writer = self._writer
        writer.paused = self._data.leftover is not None
        fresh = []
        held: set[HostedPartition] = set()
        is_plain = True  # all that was joined goes into the slot
        partitions: dict[HostedPartition, None] = {}
        for _, several in joined:
            partitions.update(dict.fromkeys(several))
        for partition in partitions:
            if writer.is_held(partition):
                held.add(partition)
            elif (found := _fresh(partition)) is not None:
                fresh.append(found)
                continue
            is_plain = False
        slot, self._writing, direct = writer.cut(fresh, now_ms=self._clock.wall_ms())
        if slot is not None and is_plain and not direct:
            self._slot_acks = [ack for ack, _ in joined if ack is not None]
        else:
            self._sync_directly(direct, self._distribute(joined, set(direct), held))
        self._obey()
        if slot is not None:
            if self._idle is None:
                self._look_whether_idle()
            # Last: the thread needs the interpreter, which this turn of the loop has.
            self._thread.run(partial(self._write, slot), partial(self._written, slot.seq))

    def _distribute(
        self, joined: Sequence[Joined], direct: set[HostedPartition], held: set[HostedPartition]
    ) -> list[Ack]:
        """Distribute waiting answers to slots and syncs; returns those that wait for a sync."""
        waiting = []
        joined_alone = []
        for ack, partitions in joined:
            later = [partition for partition in partitions if partition in held]
            if later:
                self._held.append((ack, later))
            if ack is None:
                continue
            if not direct.isdisjoint(partitions):
                ack.waits += 1
                waiting.append(ack)
            if not self._writing.keys().isdisjoint(partitions):
                ack.waits += 1
                self._slot_acks.append(ack)
            if not later:
                joined_alone.append(ack)
        one_is_done(joined_alone)
        return waiting

    def _write(self, slot: SlotWrite) -> None:
        """In the journal's thread."""
        began = self._clock.monotonic()
        self._files.write(slot)
        self.counts.wrote(slot.size, self._clock.monotonic() - began)

    def _written(self, seq: int, error: BaseException | None) -> None:
        """A slot has been written, or has not."""
        acks, self._slot_acks = self._slot_acks, []
        self._writing = {}
        if error is not None:
            self._fail(seq, error, acks)
            return
        for partition, end in self._writer.written(seq).items():
            if not partition.gone:
                partition.log.journalled(end)
                try:
                    partition.advance(end)
                except Exception:
                    logger.exception("could not wake readers of %r", partition)
        self._cut()  # so that the disk works while answers are sent
        one_is_done(acks)

    def _fail(self, seq: int, error: BaseException, acks: Sequence[Ack]) -> None:
        """Nothing of the slot is acknowledged before the logs themselves are synced."""
        logger.error(
            "writing the journal failed; it is off until the broker restarts, and each log is"
            " synced separately: %s",
            error,
        )
        self._sync_directly(self._writer.failed(seq, str(error)), acks)
        self._cut_soon()
        self._obey()

    def _sync_directly(self, partitions: Sequence[HostedPartition], acks: Sequence[Ack]) -> None:
        if not partitions:
            return
        self._direct.update(partitions)
        self.counts.direct += len(partitions)

        def ended() -> None:
            self._writer.direct_ended(partitions)
            self._direct.difference_update(partitions)
            self._joined += self._held
            self._held = []
            self._cut()  # so that the disk works while answers are sent
            one_is_done(acks)

        self._flusher.begin(partitions, _DirectRound(ended))

    # -- files ------------------------------------------------------------------------------------

    def _obey(self) -> None:
        if self._is_closed:
            return
        for command in self._writer.commands():
            if isinstance(command, Checkpoint):
                self._checkpoint(command.file, command.covers)
            else:
                self._in_worker(
                    partial(self._files.make, command.number), partial(self._made, command.number)
                )

    def _made(self, number: int, job: asyncio.Future[None]) -> None:
        error = job.exception()
        if error is None:
            self._lacks_file = False
            self._writer.made(number)
            self._drop_if_off()
            return
        if not self._lacks_file:
            self._lacks_file = True
            logger.warning(
                "no new file for the journal; while no other is free each log is synced"
                " separately: %s",
                error,
            )
        self._retry(self._writer.not_made)
        self._drop_if_off()

    def _checkpoint(self, file: int, covers: Mapping[HostedPartition, int]) -> None:
        """Sync the logs that a file of the journal is kept for.

        One file at a time: the sync for the first one covers most of what the next one needs.
        """
        self._full.append((file, covers))
        self._checkpoint_next()

    def _checkpoint_next(self) -> None:
        if self._full and not self._is_checkpointing and not self._is_closed:
            self._is_checkpointing = True
            file, covers = self._full.popleft()
            self._in_worker(
                partial(self._sync_logs, covers), partial(self._checkpointed, file, covers)
            )

    def _sync_logs(self, covers: Mapping[HostedPartition, int]) -> list[Failure]:
        """In a worker thread: which could not be synced."""
        began = self._clock.monotonic()
        left = [
            partition
            for partition, end in covers.items()
            if _lacks(partition, end) and partition.log.online
        ]
        shared = len(left) >= LOGS_TO_SHARE_A_SYNC
        failures: list[Failure] = []
        synced: list[tuple[HostedPartition, PartitionLog, int]] = []
        try:
            with self._data.directory.together() if shared else nullcontext():
                for partition in left:
                    try:
                        log = partition.log
                        synced.append((partition, log, log.flush_within()))
                    except LogClosed:
                        continue  # it is being closed, which syncs it, or deleted
                    except Exception as error:  # noqa: BLE001 (told with the partition)
                        failures.append((partition, error))
        except OSError as error:  # of the one sync for all
            return failures + [(partition, error) for partition, _, _ in synced]
        for _, log, end in synced:
            log.synced(end)
        self.counts.checkpoint_seconds += self._clock.monotonic() - began
        return failures

    def _checkpointed(
        self,
        file: int,
        covers: Mapping[HostedPartition, int],
        job: asyncio.Future[list[Failure]],
    ) -> None:
        self._is_checkpointing = False
        for partition, failure in job.result():
            logger.error("sync of %r failed; its log is offline", partition, exc_info=failure)
            partition.log.take_offline(failure)
        left = {one: end for one, end in covers.items() if _lacks(one, end)}
        if left:
            # Records that an offline log has lost may be only in the journal: keep it.
            self._retry(partial(self._checkpoint, file, left))
        else:
            self.counts.checkpoints += 1
            self._writer.checkpointed(file)
            self._obey()
        self._checkpoint_next()
        self._drop_if_off()

    def _drop_if_off(self) -> None:
        """The next start need not read a journal that may be unreadable and is not needed."""
        # Not while a file is being made: it would be the only one left.
        if self.is_off and self._writer.is_empty and not self._jobs:
            self._in_worker(self._data.drop_journal, _tell)

    def _look_whether_idle(self) -> None:
        seq = self._writer.next_seq
        if seq == self._idle_at and not self._writer.in_flight:
            self._idle = None
            self._writer.rest()
            self._obey()
            return
        self._idle_at = seq
        self._idle = self._loop.call_later(IDLE_SECONDS, self._look_whether_idle)

    def _retry(self, work: Callable[[], None]) -> None:
        """Do it in a while, unless the journal is closed by then."""
        if self._is_closed:
            return

        def do() -> None:
            self._retries.discard(timer)
            work()

        timer = self._loop.call_later(RETRY_SECONDS, do)
        self._retries.add(timer)

    def _in_worker(self, work: Callable[[], T], done: Callable[[asyncio.Future[T]], None]) -> None:
        job = self._loop.run_in_executor(self._executor, work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        job.add_done_callback(done)


def _fresh(partition: HostedPartition) -> Fresh[HostedPartition] | None:
    """New batches of a partition; None if there are none or its log is offline."""
    log = partition.log
    if partition.gone or not log.online or log.fresh is None:
        return None
    end = log.log_end_offset
    fresh = log.take_fresh()
    if fresh.base == end:
        return None
    if fresh.lacks_some:
        return Fresh(partition, None)
    return Fresh(
        partition,
        NewExtent(
            partition.topic_id,
            partition.index,
            partition.leader_epoch,
            fresh.base,
            end,
            fresh.size,
            fresh.chunks,
        ),
    )


def _lacks(partition: HostedPartition, end: int) -> bool:
    """Whether the journal has something that the log's own files may lose."""
    log = partition.log
    is_deleted = partition.gone and log.life is Life.CLOSED
    return log.recovery_point < end and not is_deleted


def _tell(job: asyncio.Future[None]) -> None:
    if (error := job.exception()) is not None:
        logger.error("could not remove the files of the disabled journal: %s", error)


class _Thread:
    """One thread that does one thing after the other; it begins with the first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Callable[[], None], Outcome] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], None], done: Outcome) -> None:
        """Have `done` called on the event loop with what went wrong, or None."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="ottla-journal", daemon=True)
            self._thread.start()
        self._queue.put((work, done))

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            work, done = job
            failure = None
            try:
                work()
            except BaseException as error:  # noqa: BLE001 (passed on to the caller)
                failure = error
            self._loop.call_soon_threadsafe(done, failure)

    async def close(self) -> None:
        self._queue.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
