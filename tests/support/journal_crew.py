"""Logs and a journal over a disk in memory, driven step by step as the broker drives them.

A step may end in the loss of power; then the next start is played, also if the power goes again in
the middle of it. `check` holds what must be true then: of each log all batches that were
acknowledged are there in order, followed by nothing but batches that were appended after them.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.log.checkpoints import MetaProperties, decode_meta, encode_meta
from ottla.log.config import LogConfig
from ottla.log.directory import DataDirectory
from ottla.log.errors import StorageFailure
from ottla.log.journal.files import JournalFiles, remove
from ottla.log.journal.replay import scan
from ottla.log.journal.slots import NewExtent
from ottla.log.journal.writer import Checkpoint, Fresh, JournalWriter, MakeFile
from ottla.log.partition import PartitionLog
from ottla.wire.batch import iter_batches
from tests.support.log_batches import batch_of, read_all
from tests.support.log_faults import Fault, MemoryStorage, PowerLoss, Survival

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.log.journal.writer import SlotWrite

HOME = Path("/data")
FILE_BYTES = 32 * 1024
EXTENT_MAX_BYTES = 3000
SLOT_MAX_BYTES = 12 * 1024
RECORDS = 3  # in a batch, so that a log start can lie inside one
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=500)


class MemoryDirectory(DataDirectory):
    """Without the lock, which is a real file's."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.path = HOME
        self.storage = storage

    def meta(self) -> MetaProperties | None:
        try:
            return decode_meta(self.storage.read_file(HOME / "meta.properties"))
        except FileNotFoundError:
            return None

    def write_meta(self, meta: MetaProperties) -> None:
        self.storage.replace_file(HOME / "meta.properties", encode_meta(meta))


class Crew:
    """See the module's docstring."""

    def __init__(self, partitions: int = 2, *, files: int = 3) -> None:
        self.disk = MemoryStorage()
        self.directory = MemoryDirectory(self.disk)
        self.directory.write_meta(MetaProperties("c", 0, UUID(int=5)))
        self.disk.fsync_dir(HOME)
        self.partitions = partitions
        self.epoch = 1  # of the leader
        self.file_limit = files
        self.appended: list[list[bytes]] = [[] for _ in range(partitions)]
        self.acknowledged = [0] * partitions  # offsets
        self.starts = [0] * partitions  # as a checkpoint file has them, durably
        self.recovery_points = [0] * partitions  # likewise, and maybe old
        self.survival = Survival.NOTHING
        self.at_start: dict[int, Fault] = {}  # what strikes the next start after a loss of power
        self.streams = 0
        self.replays = 0
        self.logs: list[PartitionLog] = []
        self.slot: SlotWrite | None = None
        self._start()

    # -- steps ------------------------------------------------------------------------------------

    def append(self, partition: int, sizes: Sequence[int]) -> None:
        self._step(lambda: self._append(partition, sizes))

    def cut(self) -> None:
        """Of a round: everything that was appended and is not held."""
        if self.writer.in_flight:
            return
        fresh: list[Fresh[int]] = []
        for index, log in enumerate(self.logs):
            if self.writer.is_held(index) or not log.online:
                continue
            end = log.log_end_offset
            found = log.take_fresh()
            if found.base == end:
                continue
            extent = NewExtent(
                self._topic_id, index, self.epoch, found.base, end, found.size, found.chunks
            )
            fresh.append(Fresh(index, None if found.lacks_some else extent))
        decided = self.writer.cut(fresh, now_ms=1)
        if decided.slot is not None:
            self.slot = decided.slot
        if decided.direct:
            self.direct.append(tuple(decided.direct))
        self._take_commands()

    def write_slot(self, *, fails: bool = False) -> None:
        if self.slot is not None:
            slot, self.slot = self.slot, None
            self._step(lambda: self._write(slot, fails=fails))

    def sync_directly(self) -> None:
        if self.direct:
            keys = self.direct.popleft()
            self._step(lambda: self._sync(keys))

    def obey(self) -> None:
        """One command of the writer, in any order among the other steps."""
        if self.commands:
            command = self.commands.popleft()
            self._step(lambda: self._obey(command))

    def rest(self) -> None:
        if not self.writer.in_flight:
            self.writer.rest()
            self._take_commands()

    def note_recovery_points(self) -> None:
        """What the checkpoint file of recovery points says from now on."""
        self.recovery_points = [log.recovery_point for log in self.logs]

    def delete_records(self, partition: int, share: float) -> None:
        log = self.logs[partition]
        if log.online:
            log.delete_records_before(int(log.high_watermark * share))
            self.starts[partition] = log.log_start_offset

    def expire(self, partition: int) -> None:
        """Let go of all segments below the log start, as far as they may."""
        log = self.logs[partition]
        if log.online:
            self._step(lambda: (log.apply_retention(5000), log.purge(10**12)))

    def lose_power(self, survival: Survival) -> None:
        self.survival = survival
        self._recover()

    def lose_power_at(self, calls: int, survival: Survival, *, torn: bool) -> None:
        """In one of the next steps, before or in the middle of a system call."""
        self.survival = survival
        self.disk.plan[self.disk.calls + calls] = Fault.TORN_CRASH if torn else Fault.CRASH

    def stop(self) -> None:
        """A clean stop and a start."""
        while self.slot or self.direct or self.writer.in_flight:
            self.write_slot()
            self.sync_directly()

        def close() -> None:
            closed = [log.close() for log in self.logs]
            self.note_recovery_points()
            if all(closed):
                remove(self.directory)
            self._start()

        self._step(close)

    # -- what must be true ------------------------------------------------------------------------

    def check(self) -> None:
        for index, log in enumerate(self.logs):
            if not log.online:
                continue
            assert log.log_end_offset >= self.acknowledged[index]
            assert log.log_start_offset >= min(self.starts[index], log.log_end_offset)
            found = [bytes(batch.data) for batch in iter_batches(memoryview(read_all(log)))]
            offset = 0
            expected = []
            for data in self.appended[index]:
                (batch,) = iter_batches(memoryview(data))
                if batch.last_offset >= log.log_start_offset and batch.last_offset < (
                    log.log_end_offset
                ):
                    expected.append(data)
                offset = batch.next_offset
            assert found == expected
            assert log.log_end_offset <= offset

    # -- how it is done ---------------------------------------------------------------------------

    def _step(self, work: Callable[[], object]) -> None:
        try:
            work()
        except PowerLoss:
            self._recover()
        except (OSError, StorageFailure):  # the broker ends, and the disk keeps what it has
            survival, self.survival = self.survival, Survival.EVERYTHING
            self._recover()
            self.survival = survival

    def _append(self, partition: int, sizes: Sequence[int]) -> None:
        log = self.logs[partition]
        if not log.online:
            return
        batches = [
            batch_of(*[b"%d" % number + b"." * (size // RECORDS)] * RECORDS)
            for number, size in enumerate(sizes)
        ]
        before = log.log_end_offset
        expected = []
        for number, batch in enumerate(batches):
            # The bytes as the log will have them, also if the power goes in the middle.
            data = bytearray(batch.data)
            data[:8] = (before + number * RECORDS).to_bytes(8, "big")
            data[12:16] = self.epoch.to_bytes(4, "big")
            expected.append(bytes(data))
        self.appended[partition] += expected
        with suppress(StorageFailure):
            log.append_many(batches, leader_epoch=self.epoch, now_ms=1000)

    def _write(self, slot: SlotWrite, *, fails: bool) -> None:
        if fails:
            self.disk.plan[self.disk.calls] = Fault.EIO
        try:
            self.files.write(slot)
        except OSError:
            self.direct.append(tuple(self.writer.failed(slot.seq, "EIO")))
        else:
            for key, end in self.writer.written(slot.seq).items():
                self._acknowledge(key, end)
                self.logs[key].journalled(end)
        self._take_commands()

    def _acknowledge(self, partition: int, end: int) -> None:
        self.acknowledged[partition] = max(self.acknowledged[partition], end)
        self.logs[partition].advance_high_watermark(end)

    def _sync(self, keys: Sequence[int]) -> None:
        for key in keys:
            try:
                self._acknowledge(key, self.logs[key].flush())
            except StorageFailure:
                continue
        self.writer.direct_ended(keys)
        self._take_commands()

    def _obey(self, command: MakeFile | Checkpoint[int]) -> None:
        if isinstance(command, MakeFile):
            try:
                self.files.make(command.number)
            except OSError:
                self.writer.not_made()
            else:
                self.writer.made(command.number)
        else:
            left = [key for key, end in command.covers.items() if self._lacks(key, end)]
            for key in left:
                with suppress(StorageFailure):
                    self.logs[key].flush()
            if not any(self._lacks(key, command.covers[key]) for key in left):
                self.writer.checkpointed(command.file)
        self._take_commands()

    def _lacks(self, key: int, end: int) -> bool:
        return self.logs[key].recovery_point < end

    def _take_commands(self) -> None:
        self.commands += self.writer.commands()

    @property
    def _topic_id(self) -> bytes:
        return bytes(16)

    def _recover(self) -> None:
        while True:
            self.disk = self.disk.crash(self.survival)
            self.disk.plan, self.at_start = self.at_start, {}
            may_fail = bool(self.disk.plan)
            self.directory = MemoryDirectory(self.disk)
            try:
                self._start()
            except PowerLoss:
                continue
            except (OSError, StorageFailure):
                if may_fail:
                    continue
                raise
            self.check()
            return

    def _start(self) -> None:
        leftover = scan(self.directory)
        self.logs = []
        for index in range(self.partitions):
            key = self._topic_id, index
            first = None if leftover is None else leftover.first_offset(key)
            start = self.starts[index]
            existed = bool(self.disk.listdir(HOME / f"t-{index}"))
            log = PartitionLog.open(
                HOME / f"t-{index}",
                CONFIG,
                now_ms=1000,
                recovery_point=self.recovery_points[index],
                log_start_offset=start if first is None else min(start, first),
                storage=self.disk,
            )
            self.logs.append(log)
            if leftover is not None:
                self.replays += leftover.replay(key, log, 1000)
                log.raise_log_start(min(start, log.log_end_offset))
            if existed:
                log.advance_high_watermark(log.flush())
            assert log.log_end_offset >= self.acknowledged[index]
            self.appended[index] = [
                data
                for data in self.appended[index]
                if next(iter(iter_batches(memoryview(data)))).next_offset <= log.log_end_offset
            ]
            self.acknowledged[index] = log.log_end_offset
            log.keep_fresh(EXTENT_MAX_BYTES)
        remove(self.directory)
        self.streams += 1
        stream = self.streams.to_bytes(16, "big")
        self.writer: JournalWriter[int] = JournalWriter(
            stream,
            node=0,
            files=self.file_limit,
            extent_max_bytes=EXTENT_MAX_BYTES,
            file_bytes=FILE_BYTES,
            slot_max_bytes=SLOT_MAX_BYTES,
        )
        self.files = JournalFiles(self.directory, stream, file_bytes=FILE_BYTES)
        self.slot = None
        self.direct: deque[tuple[int, ...]] = deque()
        self.commands: deque[MakeFile | Checkpoint[int]] = deque()
        self._take_commands()
