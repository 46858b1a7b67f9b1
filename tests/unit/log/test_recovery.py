"""Opening a log: after a clean stop, after a crash, and with files that are damaged or gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.log.config import LogConfig
from ottla.log.epochs import FILE_NAME as EPOCHS_FILE
from ottla.log.errors import StorageFailure
from ottla.log.partition import PartitionLog
from ottla.log.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, segment_path
from ottla.log.tail import TailCache
from ottla.wire.compression import Codec
from tests.support.log_batches import batch_of, read_all
from tests.support.log_faults import MemoryStorage, Survival
from tests.support.sizes import some

if TYPE_CHECKING:
    from ottla.wire.batch import RecordBatch

SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=200)
COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}))
HOME = Path("/data/t-0")


def open_log(
    storage: MemoryStorage,
    config: LogConfig = SMALL,
    *,
    clean: bool = False,
    recovery_point: int = 0,
) -> PartitionLog:
    return PartitionLog.open(
        HOME,
        config,
        now_ms=0,
        clean=clean,
        recovery_point=recovery_point,
        high_watermark=1 << 40,
        tail=TailCache(0),
        storage=storage,
    )


def numbered(number: int) -> RecordBatch:
    """One to three records, sometimes compressed, times mostly ascending."""
    values = [bytes([number]) * (10 + number)] * (1 + number % 3)
    codec = Codec.LZ4 if number % 5 == 4 else Codec.NONE
    times = [2000 + number * 7 - number % 4 * 10] * len(values)
    return batch_of(*values, timestamps=times, codec=codec)


def fill(log: PartitionLog, count: int = 40) -> list[int]:
    """Appends numbered batches, returns where each one ends in the whole log."""
    ends = []
    total = 0
    for number in range(count):
        batch = numbered(number)
        log.append(batch, leader_epoch=number // 15, now_ms=0)
        total += batch.size
        ends.append(total)
    return ends


def files(storage: MemoryStorage, *suffixes: str) -> dict[str, bytes]:
    return {
        name: storage.read_file(HOME / name)
        for name in storage.listdir(HOME)
        if name.endswith(suffixes)
    }


def overwrite(storage: MemoryStorage, name: str, data: bytes) -> None:
    storage.write_file(HOME / name, data)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def filled(storage: MemoryStorage) -> PartitionLog:
    log = open_log(storage)
    fill(log)
    assert len(log.segments) > 3
    return log


@pytest.mark.parametrize("clean", [True, False])
def test_reopening_gives_the_same_log(
    storage: MemoryStorage, filled: PartitionLog, *, clean: bool
) -> None:
    before = read_all(filled)
    assert filled.close(clean=clean) == clean
    assert filled.close() == clean
    assert storage.open_files == 0
    stored = files(storage, INDEX, TIME_INDEX, LOG)
    again = open_log(storage, clean=clean)
    assert read_all(again) == before
    assert again.log_end_offset == filled.log_end_offset
    assert again.epochs.entries == filled.epochs.entries
    assert [s.max_timestamp for s in again.segments] == [s.max_timestamp for s in filled.segments]
    assert files(storage, INDEX, TIME_INDEX, LOG) == stored
    again.append(batch_of(b"more"), leader_epoch=9, now_ms=0)
    assert read_all(again).startswith(before)


def test_a_clean_log_grows_the_same_indexes_as_one_never_closed(storage: MemoryStorage) -> None:
    other = MemoryStorage()
    steady = open_log(other)
    fill(steady)
    log = open_log(storage)
    for number in range(40):
        log.append(numbered(number), leader_epoch=number // 15, now_ms=0)
        if number % 3 == 0:
            log.close()
            log = open_log(storage, clean=True)
    log.close()
    steady.close()
    assert files(storage, LOG, INDEX, TIME_INDEX) == files(other, LOG, INDEX, TIME_INDEX)


@pytest.mark.sampled
def test_every_prefix_of_the_last_segment(storage: MemoryStorage) -> None:
    config = replace(SMALL, segment_bytes=4000)
    log = open_log(storage, config)
    ends = [0, *fill(log, 48)]
    whole = read_all(log)
    assert log.segments[-1].size > 2500
    name = f"{log.segments[-1].base_offset:020d}.log"
    first = sum(segment.size for segment in log.segments[:-1])
    data = storage.read_file(HOME / name)
    assert len(whole) == first + len(data)
    for size in some(range(len(data) + 1), turn=0):
        left = storage.crash(Survival.EVERYTHING)
        overwrite(left, name, data[:size])
        recovered = open_log(left, config)
        kept = max(end for end in ends if end <= first + size)
        assert read_all(recovered) == whole[:kept]
        assert recovered.size_bytes == kept


@pytest.mark.parametrize("clean", [True, False])
def test_synced_records_that_are_gone_are_told(storage: MemoryStorage, clean: bool) -> None:
    """Fault: a log that had lost its end gave the offsets of acknowledged records to new ones."""
    log = open_log(storage)
    fill(log)
    end = log.flush()
    last = log.segments[-1].base_offset
    log.close(clean=clean)
    storage.unlink(segment_path(HOME, last, LOG))
    with pytest.raises(StorageFailure, match=f"ends at {last}, .*up to {end} were synced"):
        open_log(storage, clean=clean, recovery_point=end)
    assert open_log(storage, clean=clean, recovery_point=last).log_end_offset == last


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("which", [0, 1])
def test_a_synced_segment_that_was_emptied_is_told(
    storage: MemoryStorage, filled: PartitionLog, which: int, *, clean: bool
) -> None:
    """Fault: its offsets were skipped without a word."""
    end = filled.flush()
    base, next_base = (filled.segments[index].base_offset for index in (which, which + 1))
    filled.close(clean=clean)
    overwrite(storage, segment_path(HOME, base, LOG).name, b"")
    told = f"{base:020d}.log is empty, but had the offsets from {base} to {next_base - 1}; restore"
    with pytest.raises(StorageFailure, match=told):
        open_log(storage, clean=clean, recovery_point=end)
    with pytest.raises(StorageFailure, match=told):
        open_log(storage, COMPACTED, clean=clean, recovery_point=end)
    storage.unlink(segment_path(HOME, base, LOG))
    assert open_log(storage, clean=clean, recovery_point=end).log_end_offset == end


def test_an_empty_segment_of_kafkas_cleaner_is_not_damage(
    storage: MemoryStorage, filled: PartitionLog
) -> None:
    end = filled.flush()
    second = filled.segments[1].base_offset
    filled.close()
    for kind in (LOG, INDEX, TIME_INDEX):
        overwrite(storage, segment_path(HOME, 0, kind).name, b"")
    storage.unlink(segment_path(HOME, second, SNAPSHOT))  # Kafka's have no checksums
    log = open_log(storage, COMPACTED, clean=True, recovery_point=end)
    assert log.log_end_offset == end
    assert log.segments[0].size == 0


@pytest.mark.parametrize("tail", [b"\0" * 61, b"\0" * 5000, b"\xff" * 200, bytes(range(256)) * 9])
def test_garbage_after_the_last_batch_is_cut(
    storage: MemoryStorage, filled: PartitionLog, tail: bytes
) -> None:
    before = read_all(filled)
    filled.close(clean=False)
    path = HOME / filled.segments[-1].path(LOG).name
    overwrite(storage, path.name, storage.read_file(path) + tail)
    again = open_log(storage)
    assert read_all(again) == before
    again.append(batch_of(b"more"), leader_epoch=2, now_ms=0)
    assert read_all(again).startswith(before)


@pytest.mark.parametrize("change", [-1000, -1, 1, 61, 5000])
def test_a_log_wrongly_called_clean_is_walked_after_all(
    storage: MemoryStorage, filled: PartitionLog, change: int
) -> None:
    before = read_all(filled)
    filled.close()
    path = HOME / filled.segments[-1].path(LOG).name
    data = storage.read_file(path)
    overwrite(storage, path.name, data[:change] if change < 0 else data + bytes(change))
    again = read_all(open_log(storage, clean=True))
    assert again == before if change > 0 else before.startswith(again)


def test_batches_larger_than_a_chunk_are_walked(storage: MemoryStorage) -> None:
    config = LogConfig(max_message_bytes=1 << 24)
    log = open_log(storage, config)
    for number in range(3):
        log.append(batch_of(bytes([number]) * 2_500_000), leader_epoch=0, now_ms=0)
    log.close(clean=False)
    path = HOME / log.segments[0].path(LOG).name
    data = bytearray(storage.read_file(path))
    assert open_log(storage, config).log_end_offset == 3
    data[-2] ^= 1
    overwrite(storage, path.name, bytes(data))
    assert open_log(storage, config).log_end_offset == 2


def test_a_repeated_batch_is_cut(storage: MemoryStorage, filled: PartitionLog) -> None:
    before = read_all(filled)
    filled.close(clean=False)
    path = HOME / filled.segments[-1].path(LOG).name
    data = storage.read_file(path)
    overwrite(storage, path.name, data + data)
    assert read_all(open_log(storage)) == before


def test_a_bad_batch_ends_the_log(storage: MemoryStorage, filled: PartitionLog) -> None:
    before = read_all(filled)
    filled.close(clean=False)
    damaged, later = filled.segments[1], filled.segments[2]
    data = bytearray(storage.read_file(HOME / damaged.path(LOG).name))
    data[-1] ^= 1
    overwrite(storage, damaged.path(LOG).name, bytes(data))
    again = open_log(storage)
    assert [s.base_offset for s in again.segments] == [0, damaged.base_offset]
    assert before.startswith(read_all(again))
    assert again.log_end_offset < later.base_offset
    assert not files(storage, f"{later.base_offset:020d}{LOG}", f"{later.base_offset:020d}{INDEX}")
    again.append(batch_of(b"new"), leader_epoch=3, now_ms=0)
    assert again.epochs.entries[-1] == (3, again.log_end_offset - 1)


def test_a_segment_missing_in_the_middle_ends_the_log(
    storage: MemoryStorage, filled: PartitionLog
) -> None:
    filled.close(clean=False)
    storage.unlink(HOME / filled.segments[1].path(LOG).name)
    again = open_log(storage)
    assert again.log_end_offset == filled.segments[1].base_offset


def test_below_the_recovery_point_batches_are_not_walked(
    storage: MemoryStorage, filled: PartitionLog
) -> None:
    filled.flush()
    filled.close(clean=False)
    first = filled.segments[0]
    data = bytearray(storage.read_file(HOME / first.path(LOG).name))
    data[65] ^= 1  # inside the first record
    overwrite(storage, first.path(LOG).name, bytes(data))
    trusting = open_log(storage.crash(Survival.EVERYTHING), recovery_point=filled.recovery_point)
    assert trusting.log_end_offset == filled.log_end_offset
    assert open_log(storage).log_end_offset == 0


def test_damage_in_the_trusted_part_is_an_error_not_a_loss(
    storage: MemoryStorage, filled: PartitionLog
) -> None:
    filled.close()
    first = filled.segments[0]
    data = bytearray(storage.read_file(HOME / first.path(LOG).name))
    data[16] = 9  # the magic of the first batch; its segment is long synced
    overwrite(storage, first.path(LOG).name, bytes(data))
    for name in storage.listdir(HOME):
        if name.endswith(SNAPSHOT):
            storage.unlink(HOME / name)
    with pytest.raises(StorageFailure):
        open_log(storage, recovery_point=filled.recovery_point)
    assert storage.read_file(HOME / first.path(LOG).name) == data


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
@pytest.mark.parametrize(
    "damage", ["missing", "empty", "odd", "swapped", "shifted", "past the end"]
)
def test_lost_and_damaged_indexes_are_rebuilt_equal(
    storage: MemoryStorage, filled: PartitionLog, suffix: str, damage: str, *, clean: bool
) -> None:
    filled.close(clean=clean)
    originals = files(storage, INDEX, TIME_INDEX)
    entry = 8 if suffix == INDEX else 12
    for segment in filled.segments[:-1]:
        name = segment.path(suffix).name
        data = originals[name]
        assert len(data) > 2 * entry
        damaged = {
            "missing": b"",
            "empty": b"",
            "odd": data[:-1],
            "swapped": data[entry : 2 * entry] + data[:entry] + data[2 * entry :],
            "shifted": data[:-entry] + bytes([data[-entry]]) + b"\1" * (entry - 1),
            "past the end": data + b"\x7f" * entry,
        }[damage]
        if damage == "missing":
            storage.unlink(HOME / name)
        else:
            overwrite(storage, name, damaged)
    again = open_log(storage, clean=clean)
    assert files(storage, INDEX, TIME_INDEX) == originals
    assert [s.max_timestamp for s in again.segments] == [s.max_timestamp for s in filled.segments]


def test_epochs_that_no_batch_has_do_not_outlive_a_crash(
    storage: MemoryStorage, filled: PartitionLog
) -> None:
    """Those of the active segment are not written with every flush; its batches have them."""
    filled.flush()
    (_, start), *_ = filled.epochs.entries[-1:]
    name = HOME / EPOCHS_FILE
    stale = f"0\n2\n0 {filled.epochs.entries[0][1]}\n7 {start + 1}\n"
    left = storage.crash(Survival.EVERYTHING)
    left.write_file(name, stale.encode())
    assert open_log(left).epochs.entries == filled.epochs.entries


@pytest.mark.parametrize("damage", [None, b"", b"nonsense\n", b"0\n7\n0 0\n", b"1\n1\n0 0\n"])
def test_lost_and_damaged_epochs_are_rebuilt(
    storage: MemoryStorage, filled: PartitionLog, damage: bytes | None
) -> None:
    filled.close()
    storage.unlink(HOME / EPOCHS_FILE)
    if damage is not None:
        overwrite(storage, EPOCHS_FILE, damage)
    assert open_log(storage, clean=True).epochs.entries == filled.epochs.entries


def test_leftovers_are_dropped(storage: MemoryStorage, filled: PartitionLog) -> None:
    filled.close()
    kept = set(storage.listdir(HOME))
    stray = segment_path(HOME, 17, SNAPSHOT).name
    for name in ("00.log.deleted", "1.index.deleted", "5.log.cleaned", "x.tmp", stray):
        overwrite(storage, name, b"old")
    open_log(storage, clean=True)
    assert set(storage.listdir(HOME)) == kept


def test_a_new_log_starts_where_it_is_told(storage: MemoryStorage) -> None:
    log = PartitionLog.open(HOME, SMALL, now_ms=0, log_start_offset=500, storage=storage)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    assert log.append(batch_of(b"x"), leader_epoch=0, now_ms=0).base_offset == 500


def test_a_high_watermark_cannot_point_outside_the_log(storage: MemoryStorage) -> None:
    log = PartitionLog.open(HOME, SMALL, now_ms=0, high_watermark=9, storage=storage)
    assert log.high_watermark == 0
