"""A fault at every system call of a scripted life: nothing acknowledged is lost, nobody lies.

The script appends, flushes, rolls, deletes and purges. For each number of a changing system call
and each kind of fault it runs until the fault takes it down; then the machine loses power, and
what the next start finds must be a run of the appended batches that holds every flushed one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.log.config import LogConfig
from ottla.log.errors import LogClosed, StorageFailure
from ottla.log.life import Life
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import Origin
from ottla.log.tail import TailCache
from ottla.wire.batch import iter_batches
from ottla.wire.records import ControlType
from tests.support.log_batches import batch_of, marker, read_all
from tests.support.log_faults import Fault, MemoryStorage, PowerLoss, Survival
from tests.support.sizes import some

if TYPE_CHECKING:
    from collections.abc import Callable

HOME = Path("/data/t-0")
CONFIG = LogConfig(
    segment_bytes=500, index_interval_bytes=100, retention_ms=60, file_delete_delay_ms=5
)


class Script:
    """One run of the script, and what it was told."""

    def __init__(self, storage: MemoryStorage, config: LogConfig = CONFIG) -> None:
        self.storage = storage
        self.config = config
        self.appended: list[bytes] = []  # as they must stand on disk
        self.pending: bytes | None = None
        self.flushed = 0
        self.log: PartitionLog | None = None

    def run(self) -> None:
        log = self.log = self.open(self.storage)
        for number in range(26):
            self.append(log, number)
            if number % 4 == 3:
                self.flush(log)
            if number == 17:
                log.apply_retention(1000 + 10 * number)
            if number == 21:
                log.delete_records_before(log.high_watermark - 2)
                log.purge(5000)
        self.flush(log)
        if not log.close():
            raise StorageFailure("not closed cleanly")

    def open(self, storage: MemoryStorage, *, recovery_point: int = 0) -> PartitionLog:
        return PartitionLog.open(
            HOME,
            self.config,
            now_ms=0,
            recovery_point=recovery_point,
            high_watermark=recovery_point,
            tail=TailCache(0),
            storage=storage,
        )

    def append(self, log: PartitionLog, number: int) -> None:
        epoch = number // 7
        batch = batch_of(
            bytes([65 + number]) * 40,
            timestamps=[1000 + 10 * number],
            producer_id=1,
            epoch=0,
            sequence=number,
        )
        batch.assign(number, epoch)
        self.pending = bytes(batch.data)
        batch.assign(0, 0)
        log.append(batch, leader_epoch=epoch, now_ms=0)
        self.appended.append(self.pending)

    def flush(self, log: PartitionLog) -> None:
        self.flushed = log.flush()
        log.advance_high_watermark(self.flushed)

    def check(self, recovered: PartitionLog, *, flushed: int) -> None:
        """The recovered log is a run of what was appended, up to the flushed end at least."""
        start, end = recovered.log_start_offset, recovered.log_end_offset
        assert end >= flushed
        # The batch that was being written when the fault struck may be there, or not.
        possible = [*self.appended, self.pending or b""]
        assert read_all(recovered) == b"".join(possible[start:end])
        held = self.log.log_start_offset if self.log else 0
        assert start <= max(held, flushed)


def total_calls() -> int:
    storage = MemoryStorage()
    Script(storage).run()
    assert storage.open_files == 0
    return storage.calls


CALLS = total_calls()


def test_the_script_is_long_enough() -> None:
    assert CALLS > 120


def take_down(life: Script, fault: Fault) -> None:
    if fault in (Fault.SHORT_WRITE, Fault.BIT_FLIP):
        life.run()
        return
    try:
        life.run()
    except PowerLoss:
        assert fault in (Fault.CRASH, Fault.TORN_CRASH)
    except StorageFailure:
        assert fault in (Fault.EIO, Fault.ENOSPC)
        if life.log is not None:
            assert_offline(life.log)


def assert_offline(log: PartitionLog) -> None:
    assert not log.online
    refusal = StorageFailure if log.life is Life.OPEN else LogClosed  # the fault struck in close
    end = log.log_end_offset
    for call in (
        lambda: log.append(batch_of(b"x"), leader_epoch=9, now_ms=0),
        lambda: log.read(end, 100, upper_bound_offset=end, min_one_message=True),
        lambda: log.apply_retention(0),
        lambda: log.delete_records_before(-1),
        lambda: log.offset_for_timestamp(0),
        log.flush,
    ):
        with pytest.raises(refusal):
            call()
    assert not log.close()


@pytest.mark.sampled
@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("fault", list(Fault))
def test_a_fault_at_every_call(fault: Fault, survival: Survival) -> None:
    for number in some(range(CALLS), fault.value + survival.value):
        storage = MemoryStorage({number: fault})
        life = Script(storage)
        take_down(life, fault)
        left = storage.crash(survival)
        if fault is Fault.BIT_FLIP:
            # What was flushed may be what the disk got wrong; it must not come back as a record.
            life.check(life.open(left), flushed=0)
        else:
            recovered = life.open(left, recovery_point=life.flushed)
            life.check(recovered, flushed=life.flushed)
            next_sequence = recovered.log_end_offset
            if next_sequence > recovered.log_start_offset:
                (producer,) = recovered.producers()
                assert producer.last_sequence == next_sequence - 1


@pytest.mark.parametrize("survival", [Survival.HALF, Survival.EVERYTHING])
def test_a_crash_during_recovery_changes_nothing(survival: Survival) -> None:
    storage = MemoryStorage({CALLS * 3 // 4: Fault.TORN_CRASH})
    life = Script(storage)
    take_down(life, Fault.TORN_CRASH)
    number = 0
    while True:
        left = storage.crash(Survival.HALF)
        left.plan = {number: Fault.CRASH}
        try:
            life.open(left, recovery_point=life.flushed)
        except PowerLoss:
            again = life.open(left.crash(survival), recovery_point=life.flushed)
            life.check(again, flushed=life.flushed)
            number += 1
        else:
            break
    assert number > 3


def test_a_full_disk_is_an_error_also_when_opening() -> None:
    with pytest.raises(StorageFailure):
        Script(MemoryStorage({0: Fault.ENOSPC})).run()


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.read(0, 100, upper_bound_offset=8, min_one_message=True),
        lambda log: log.offset_for_timestamp(1005),
        lambda log: log.max_timestamp_offset(),
    ],
    ids=["read", "offset for timestamp", "max timestamp"],
)
def test_a_read_that_fails_takes_the_log_offline(ask: Callable[[PartitionLog], object]) -> None:
    storage = MemoryStorage()
    life = Script(storage)
    log = life.open(storage)
    for number in range(8):
        life.append(log, number)
    ask(log)
    storage.fail_reads = True
    with pytest.raises(StorageFailure):
        ask(log)
    assert not log.online


def test_a_short_write_of_many_batches_is_continued() -> None:
    batches = [batch_of(b"%d" % number) for number in range(50)]
    for number in range(2, 8):
        storage = MemoryStorage(dict.fromkeys(range(number, 60), Fault.SHORT_WRITE))
        log = PartitionLog.open(HOME, LogConfig(), now_ms=0, tail=TailCache(0), storage=storage)
        log.append_many(batches, leader_epoch=0, now_ms=0)
        stored = list(iter_batches(memoryview(read_all(log))))
        assert [batch.base_offset for batch in stored] == list(range(50))


def test_more_batches_than_one_call_takes(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, LogConfig(), now_ms=0, tail=TailCache(0))
    log.append_many([batch_of(b"x") for _ in range(2500)], leader_epoch=0, now_ms=0)
    stored = list(iter_batches(memoryview(read_all(log))))
    assert [batch.base_offset for batch in stored] == list(range(2500))


def test_other_logs_go_on(tmp_path: Path) -> None:
    failing = Script(MemoryStorage({30: Fault.EIO}))
    with pytest.raises(StorageFailure):
        failing.run()
    healthy = PartitionLog.open(tmp_path, replace(CONFIG, segment_bytes=900), now_ms=0)
    healthy.append(batch_of(b"x"), leader_epoch=0, now_ms=0)
    assert len(list(iter_batches(memoryview(read_all(healthy))))) == 1


class Transactions(Script):
    """A life of transactions, two of three aborted, over several segments."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage, replace(CONFIG, retention_ms=-1))
        self.aborted: list[tuple[int, int, int]] = []  # producer, first offset, marker

    def run(self) -> None:
        log = self.log = self.open(self.storage)
        for number in range(12):
            producer_id = 1 + number % 2
            first = log.log_end_offset
            data = batch_of(
                b"x" * 40,
                producer_id=producer_id,
                epoch=0,
                sequence=number // 2,
                transactional=True,
            )
            log.append(data, leader_epoch=0, now_ms=0)
            kind = ControlType.COMMIT if number % 3 == 0 else ControlType.ABORT
            if kind is ControlType.ABORT:
                # Before the append: a fault may leave the marker on disk and not say so.
                self.aborted.append((producer_id, first, first + 1))
            log.append(
                marker(kind, producer_id, 0), leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR
            )
            if number % 3 == 1:
                self.flush(log)
            if number == 7:
                log.roll(0)
                self.flush(log)
        if not log.close():
            raise StorageFailure("not closed cleanly")

    def check_aborted(self, recovered: PartitionLog) -> None:
        end = recovered.log_end_offset
        found = [entry[:3] for entry in recovered.aborted_transactions(0, end)]
        assert found == [entry for entry in self.aborted if entry[2] < end]


def transactions_calls() -> int:
    storage = MemoryStorage()
    Transactions(storage).run()
    return storage.calls


@pytest.mark.sampled
@pytest.mark.parametrize(
    "survival", [Survival.NOTHING, Survival.TORN, Survival.HOLE, Survival.EVERYTHING]
)
@pytest.mark.parametrize("fault", [Fault.EIO, Fault.TORN_CRASH])
def test_aborted_transactions_outlive_a_fault_at_every_call(
    fault: Fault, survival: Survival
) -> None:
    for number in some(range(transactions_calls()), fault.value + survival.value):
        storage = MemoryStorage({number: fault})
        script = Transactions(storage)
        with suppress(PowerLoss, StorageFailure):
            script.run()
        left = storage.crash(survival)
        recovered = script.open(left, recovery_point=script.flushed)
        assert recovered.log_end_offset >= script.flushed
        script.check_aborted(recovered)
        # What recovery wrote is as good as what it replaced.
        assert recovered.close()
        end = recovered.log_end_offset
        left = left.crash(Survival.NOTHING)
        script.check_aborted(script.open(left, recovery_point=end))
