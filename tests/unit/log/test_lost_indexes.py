"""Index files and producer snapshots that are lost or damaged are rebuilt, never read as empty."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from ottla.log.compaction import plan_compaction, run_compaction
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.producer_state import Origin, ProducerStates
from ottla.log.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from ottla.log.tail import TailCache
from ottla.wire.batch import iter_batches
from ottla.wire.records import ControlType
from tests.support.log_batches import batch_of, marker, read_all
from tests.support.log_faults import MemoryStorage, Survival

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.log.index import AbortedTransaction

HOME = Path("/data/t-0")
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100)
OPEN_PRODUCER: Final = 9  # its transaction spans segments and is aborted near the end


def open_log(
    storage: MemoryStorage,
    *,
    clean: bool,
    recovery_point: int = 0,
    config: LogConfig = CONFIG,
) -> PartitionLog:
    return PartitionLog.open(
        HOME,
        config,
        now_ms=0,
        clean=clean,
        recovery_point=recovery_point,
        high_watermark=recovery_point,
        tail=TailCache(0),
        storage=storage,
    )


def filled(
    storage: MemoryStorage, *, aborts: bool = True, config: LogConfig = CONFIG
) -> PartitionLog:
    """Committed and aborted transactions over several segments."""
    log = open_log(storage, clean=False, config=config)

    def send(producer_id: int, sequence: int) -> None:
        batch = batch_of(
            b"%d" % sequence * 30,
            timestamps=[1000 + log.log_end_offset],
            producer_id=producer_id,
            epoch=0,
            sequence=sequence,
            transactional=True,
        )
        log.append(batch, leader_epoch=0, now_ms=0)

    def end(producer_id: int, *, commit: bool) -> None:
        kind = ControlType.COMMIT if commit or not aborts else ControlType.ABORT
        log.append(
            marker(kind, producer_id, 0), leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR
        )

    send(OPEN_PRODUCER, 0)
    for number in range(24):
        producer_id = 1 + number % 3
        send(producer_id, number // 3)
        end(producer_id, commit=number % 2 == 0)
    end(OPEN_PRODUCER, commit=False)
    log.append(batch_of(b"last"), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(log.flush())
    assert len(log.segments) > 4
    return log


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return log.aborted_transactions(0, log.log_end_offset)


def committed(log: PartitionLog) -> list[int]:
    """The offsets of batches with records that a reader with isolation 1 is shown."""
    hidden = aborted(log)
    return [
        batch.base_offset
        for batch in iter_batches(memoryview(read_all(log)))
        if batch.record_count
        and not batch.is_control
        and not any(
            entry.producer_id == batch.producer_id
            and entry.first_offset <= batch.base_offset <= entry.last_offset
            for entry in hidden
        )
    ]


def producers(log: PartitionLog) -> list[tuple[object, ...]]:
    """What clients depend on: sequences, epochs and open transactions."""
    return sorted(
        (p.producer_id, p.epoch, p.last_sequence, p.last_offset, p.current_txn_first_offset)
        for p in log.producers()
    )


def names(storage: MemoryStorage, kind: str) -> list[str]:
    return [name for name in storage.listdir(HOME) if name.endswith(kind)]


def unlinked(storage: MemoryStorage, name: str) -> None:
    storage.unlink(HOME / name)


def emptied(storage: MemoryStorage, name: str) -> None:
    storage.write_file(HOME / name, b"")


def cut_by_an_entry(storage: MemoryStorage, name: str) -> None:
    sizes = {INDEX: 8, TIME_INDEX: 12, TXN_INDEX: 34, SNAPSHOT: 46}
    size = next(size for kind, size in sizes.items() if name.endswith(kind))
    storage.write_file(HOME / name, storage.read_file(HOME / name)[:-size])


def flipped(storage: MemoryStorage, name: str) -> None:
    data = bytearray(storage.read_file(HOME / name))
    if data:
        data[len(data) // 3] ^= 1
    storage.write_file(HOME / name, bytes(data))


def garbage(storage: MemoryStorage, name: str) -> None:
    storage.write_file(HOME / name, b"\xa5" * 77)


DAMAGES = (unlinked, emptied, cut_by_an_entry, flipped, garbage)
KINDS = (
    (INDEX,),
    (TIME_INDEX,),
    (TXN_INDEX,),
    (SNAPSHOT,),
    (TXN_INDEX, SNAPSHOT),
    (INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT),
)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("kinds", KINDS, ids=["+".join(kinds) for kinds in KINDS])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_lost_is_rebuilt(
    damage: Callable[[MemoryStorage, str], None], kinds: tuple[str, ...], *, clean: bool
) -> None:
    storage = MemoryStorage()
    log = filled(storage)
    expected = aborted(log)
    assert len({entry.producer_id for entry in expected}) == 4
    end, content, known = log.log_end_offset, read_all(log), producers(log)
    times = range(1000, 1000 + end, 7)
    found = [log.offset_for_timestamp(time) for time in times]
    if clean:
        log.close()
    storage = storage.crash(Survival.EVERYTHING)
    before = {name: storage.read_file(HOME / name) for name in storage.listdir(HOME)}
    for kind in kinds:
        for name in names(storage, kind):
            damage(storage, name)
    again = open_log(storage, clean=clean, recovery_point=end)
    assert (again.log_end_offset, read_all(again)) == (end, content)
    assert aborted(again) == expected
    assert producers(again) == known
    assert [again.offset_for_timestamp(time) for time in times] == found
    assert again.close()
    storage = storage.crash(Survival.EVERYTHING)
    sealed = {name for name in before if not name.endswith(LOG) and name < f"{end:020d}"}
    assert {name: storage.read_file(HOME / name) for name in sealed} == {
        name: before[name] for name in sealed
    }


@pytest.mark.parametrize("base", range(5))
def test_one_lost_transaction_index_is_rebuilt(base: int) -> None:
    storage = MemoryStorage()
    log = filled(storage)
    expected = aborted(log)
    log.close()
    unlinked(storage, names(storage, TXN_INDEX)[base])
    assert aborted(open_log(storage, clean=True, recovery_point=log.log_end_offset)) == expected


class CountingStorage(MemoryStorage):
    reads = 0

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.reads += 1
        return super().pread(fd, size, position)


@pytest.mark.parametrize("aborts", [True, False])
@pytest.mark.parametrize("kafka", [False, True], ids=["own", "of Kafka"])
def test_a_clean_start_reads_ends_of_segments_only(*, aborts: bool, kafka: bool) -> None:
    storage = CountingStorage()
    log = filled(storage, aborts=aborts)
    expected = aborted(log)
    log.close()
    if kafka:
        for name in names(storage, SNAPSHOT):
            states = ProducerStates.decode(storage.read_file(HOME / name))
            storage.write_file(HOME / name, states.encode())
    else:
        assert bool(names(storage, TXN_INDEX)) is aborts
    batches = len(log.segments) * 9
    storage.reads = 0
    again = open_log(storage, clean=True, recovery_point=log.log_end_offset)
    assert storage.reads < batches  # a scan reads more than that: each marker on its own
    assert aborted(again) == expected


def test_a_log_that_ends_with_a_roll_keeps_what_speaks_for_its_last_segment() -> None:
    storage = MemoryStorage()
    log = filled(storage)
    log.roll(0)
    expected = aborted(log)
    log.close()
    unlinked(storage, names(storage, TXN_INDEX)[-1])
    assert aborted(open_log(storage, clean=True, recovery_point=log.log_end_offset)) == expected


def test_indexes_of_a_roll_with_nothing_to_flush_after_it_are_synced() -> None:
    """The sync of the batches was under way, or over, when the segment was sealed."""
    storage = MemoryStorage()
    log = filled(storage)
    log.roll(0)
    log.flush()
    before = {name: storage.read_file(HOME / name) for name in storage.listdir(HOME)}
    left = storage.crash(Survival.NOTHING)
    assert {name: left.read_file(HOME / name) for name in left.listdir(HOME)} == before


def intact(storage: MemoryStorage, name: str) -> None:
    pass


@pytest.mark.parametrize("kind", [INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT])
@pytest.mark.parametrize("damage", [intact, *DAMAGES])
def test_compacted_segments_have_indexes_that_are_vouched_for(
    damage: Callable[[MemoryStorage, str], None], kind: str
) -> None:
    storage = CountingStorage()
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    log = filled(storage, config=config)
    before = len(log.segments)
    for _ in range(2):  # the second time neighbours have become small enough to be joined
        plan = plan_compaction(log, 0, 0)
        assert plan is not None
        for group in run_compaction(plan).groups:
            assert log.install(group, 0)
    assert len(log.segments) < before
    expected, content, known = committed(log), read_all(log), producers(log)
    assert aborted(log)
    assert log.close()
    for name in names(storage, kind):
        damage(storage, name)
    storage.reads = 0
    again = open_log(storage, clean=True, recovery_point=log.log_end_offset, config=config)
    if damage is intact:
        assert storage.reads <= 4 * len(log.segments), "the segments were walked"
    # An aborted transaction of which compaction has left nothing need not be known any more.
    assert (committed(again), read_all(again), producers(again)) == (expected, content, known)
