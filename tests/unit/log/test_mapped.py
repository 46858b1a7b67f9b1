"""Records as views of mapped files; the numbers are the cases of the performance specification.

These tests read the views, which the broker never does: their files are whole.
"""

from __future__ import annotations

import os
import random
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.log import mapped, reading
from ottla.log.compaction import plan_compaction, run_compaction
from ottla.log.config import LogConfig
from ottla.log.errors import NotAtHand, StorageFailure
from ottla.log.os_storage import OsStorage
from ottla.log.partition import PartitionLog
from ottla.log.sealed import Sealed
from ottla.log.segment import HOP_BYTES
from ottla.log.tail import TailCache
from ottla.wire.batch import iter_batches
from tests.support.faults_broker import soak
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.log.reading import ReadResult
    from ottla.wire.batch import RecordBatch

KIB = 1024
PAGE = 4 * KIB
EVERYTHING = 1 << 40


class MappingStorage(OsStorage):
    """Counts maps, and fails where a file is cut below the end of one."""

    def __init__(self) -> None:
        self.maps = 0
        self._mapped: dict[tuple[int, int], weakref.ref[object]] = {}  # by file and end

    def map(self, fd: int, start: int, size: int) -> memoryview | None:
        found = super().map(fd, start, size)
        if found is not None:
            self.maps += 1
            self._mapped[self.identity(fd), start + size] = weakref.ref(found.obj)
        return found

    def truncate(self, fd: int, size: int) -> None:
        file = self.identity(fd)
        for (holder, end), found in self._mapped.items():
            assert holder != file or end <= size or found() is None
        super().truncate(fd, size)


@pytest.fixture
def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, growth and reads of a few pages, so that small logs cross all bounds."""
    monkeypatch.setattr(mapped, "WINDOW_BYTES", 4 * PAGE)
    monkeypatch.setattr(mapped, "GROWTH_BYTES", PAGE)
    monkeypatch.setattr("ottla.log.segment.MIN_VIEW_BYTES", 64)


def opened(path: Path, config: LogConfig | None = None, **more: object) -> PartitionLog:
    options = {"storage": MappingStorage(), "tail": TailCache(0), "sealed": Sealed(16), **more}
    return PartitionLog.open(path, config or LogConfig(), now_ms=0, **options)  # type: ignore[arg-type]


def append(log: PartitionLog, size: int, fill: int = 0) -> None:
    log.append(batch_of(bytes([fill % 256]) * size), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(log.log_end_offset)


def read(
    log: PartitionLog, offset: int, max_bytes: int = EVERYTHING, *, views: bool = True
) -> ReadResult:
    return log.read(
        offset,
        max_bytes,
        upper_bound_offset=log.high_watermark,
        min_one_message=True,
        views=views,
    )


def is_mapped(result: ReadResult) -> bool:
    return any(isinstance(chunk, memoryview) for chunk in result.chunks)


def joined(result: ReadResult) -> bytes:
    data = b"".join(result.chunks)
    assert len(data) == result.size
    return data


def deleted_files() -> list[str]:
    """Of this process: files that are open or mapped and have no name any more."""
    opened = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            opened.append(str(entry.readlink()))
    maps = Path("/proc/self/maps").read_text().splitlines()
    return [text for text in (*opened, *maps) if text.endswith(" (deleted)") and ".log" in text]


def test_reads_of_some_size_are_views(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    append(log, mapped.MIN_VIEW_BYTES // 2)
    small = read(log, 0)
    assert not is_mapped(small)
    append(log, mapped.MIN_VIEW_BYTES)
    large = read(log, 0)
    assert is_mapped(large)
    assert joined(large) == joined(read(log, 0, views=False))
    log.close()


def test_a_log_that_distrusts_its_maps_reads(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    append(log, 2 * mapped.MIN_VIEW_BYTES)
    assert is_mapped(read(log, 0))
    log.distrust_maps()
    assert not is_mapped(read(log, 0))
    log.close()


def test_41_a_view_keeps_a_deleted_segment_and_then_lets_go_of_it(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=200 * KIB, retention_bytes=0, file_delete_delay_ms=0)
    log = opened(tmp_path / "t-0", config)
    for number in range(4):
        append(log, 150 * KIB, number)
    log.flush()
    expected = joined(read(log, 0, 200 * KIB, views=False))
    kept = read(log, 0, 200 * KIB)
    assert is_mapped(kept)
    assert log.apply_retention(0)
    assert log.purge(1)
    assert deleted_files()
    assert joined(kept) == expected
    del kept
    assert deleted_files() == []
    log.close()


def test_42_compaction_leaves_old_views_as_they_were(tmp_path: Path) -> None:
    policy = frozenset({"compact"})
    config = LogConfig(cleanup_policy=policy, segment_bytes=100 * KIB, file_delete_delay_ms=0)
    log = opened(tmp_path / "t-0", config)
    for number in range(4):
        append(log, 90 * KIB, number)  # all have the same key
    log.flush()
    expected = joined(read(log, 0, 95 * KIB, views=False))
    before = read(log, 0, 95 * KIB)
    assert is_mapped(before)
    plan = plan_compaction(log, 0, 10_000)
    assert plan is not None
    for group in run_compaction(plan).groups:
        assert log.install(group, 0)
    assert log.purge(1)
    after = joined(read(log, 0, 95 * KIB))
    assert joined(before) == expected != after
    assert after == joined(read(log, 0, 95 * KIB, views=False))
    log.close()


SEEDS = 10_000 if soak() else 50


@pytest.mark.usefixtures("small_maps")
def test_45_46_views_are_what_a_read_gives(tmp_path: Path) -> None:
    """Across the mapped end, windows, rolls and restarts; no mapped file is ever cut."""
    for seed in range(SEEDS):
        dice = random.Random(seed)
        directory = tmp_path / str(seed)
        config = LogConfig(
            segment_bytes=dice.choice([3 * PAGE, 9 * PAGE, 1 << 20]),
            index_interval_bytes=dice.choice([1, 500, 4096]),
        )
        storage = MappingStorage()
        log = opened(directory, config, storage=storage, sealed=Sealed(dice.choice([1, 64])))
        views = 0
        for step in range(30):
            what = dice.random()
            if what < 0.5:
                append(log, dice.choice([1, 100, 900, 5000, 6 * PAGE]), step)
            elif what < 0.55:
                clean = dice.random() < 0.5
                end = log.log_end_offset
                log.close(clean=clean)
                if not clean:
                    _scribble(dice, directory)
                log = opened(
                    directory,
                    config,
                    storage=storage,
                    sealed=Sealed(4),
                    clean=clean,
                    recovery_point=end if clean else 0,
                    high_watermark=end,
                )
            elif log.log_end_offset:
                offset = dice.randrange(log.log_end_offset)
                size = dice.choice([1, 700, PAGE, 3 * PAGE, 1 << 20])
                bound = dice.randint(offset, log.log_end_offset)
                at_least_one = dice.random() < 0.5
                found = [
                    log.read(
                        offset,
                        size,
                        upper_bound_offset=bound,
                        min_one_message=at_least_one,
                        views=use,
                    )
                    for use in (False, True)
                ]
                assert joined(found[0]) == joined(found[1]), f"seed {seed}, step {step}"
                views += is_mapped(found[1])
        log.close()
        assert views or storage.maps == 0
    assert deleted_files() == []


def _scribble(dice: random.Random, directory: Path) -> None:
    """What a crash may leave behind the last whole batch."""
    last = max(directory.glob("*.log"))
    with last.open("ab") as file:
        file.write(dice.randbytes(dice.randrange(100)))


@pytest.mark.usefixtures("small_maps")
def test_45_a_growing_segment_is_mapped_anew_after_it_has_grown(tmp_path: Path) -> None:
    storage = MappingStorage()
    log = opened(tmp_path / "t-0", storage=storage)
    append(log, 500)
    assert is_mapped(read(log, 0))
    append(log, 500)
    assert not is_mapped(read(log, 0))  # it ends past the map
    assert storage.maps == 1
    assert is_mapped(read(log, 0, 600))  # the first batch does not
    append(log, PAGE)
    assert is_mapped(read(log, 0))
    assert storage.maps == 2
    log.roll(0)
    append(log, 500)
    assert joined(read(log, 0)) == joined(read(log, 0, views=False))
    log.close()


@pytest.mark.usefixtures("small_maps")
def test_48_maps_and_descriptors_are_bounded(tmp_path: Path) -> None:
    """The least recently used go; the broker's limit is a share of its descriptors."""
    sealed = Sealed(32)
    log = opened(tmp_path / "t-0", LogConfig(segment_bytes=300), sealed=sealed)
    count = 2000 if soak() else 200
    for number in range(count):
        append(log, 200, number)
    assert len(log.segments) == count
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for offset in range(count):
        assert read(log, offset, 300).size
    assert len(sealed.maps) == 32
    assert len(os.listdir("/proc/self/fd")) <= before + 2 * 32  # noqa: PTH208
    log.close()
    assert len(sealed.maps) == 0


class Blind(OsStorage):
    """It cannot be asked what the page cache has."""

    def is_cached(self, fd: int, start: int, size: int) -> bool | None:
        return None


def test_48_without_an_answer_what_is_far_from_the_end_counts_as_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RECENT_BYTES", 250 * KIB)
    log = opened(tmp_path / "t-0", LogConfig(segment_bytes=110 * KIB), storage=Blind())
    for number in range(4):
        append(log, 100 * KIB, number)
    for offset in range(4):
        read(log, offset)  # loads the indexes
    bound = {"upper_bound_offset": 4, "min_one_message": True, "wait": False}
    with pytest.raises(NotAtHand):
        log.read(1, 1000, **bound)  # type: ignore[arg-type]
    assert log.read(2, 1000, **bound).size  # type: ignore[arg-type]
    log.close()


def test_48_a_sealed_segment_in_the_page_cache_is_read_at_once(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", LogConfig(segment_bytes=110 * KIB))
    for number in range(3):
        append(log, 100 * KIB, number)
    read(log, 0)  # loads the indexes
    found = log.read(
        0, 200 * KIB, upper_bound_offset=3, min_one_message=True, wait=False, views=True
    )
    assert is_mapped(found)
    log.close()


@pytest.fixture
def cut(tmp_path: Path) -> Iterator[PartitionLog]:
    """A log whose file somebody has cut inside its second batch."""
    log = opened(tmp_path / "t-0")
    for number in range(2):
        append(log, 100 * KIB, number)
    assert is_mapped(read(log, 0))
    (path,) = (tmp_path / "t-0").glob("*.log")
    os.truncate(path, 150 * KIB)
    yield log
    log.close(clean=False)


@pytest.mark.parametrize("max_bytes", [1, EVERYTHING])
def test_43_a_log_whose_file_was_cut_serves_no_half_batch(
    cut: PartitionLog, max_bytes: int
) -> None:
    cut.distrust_maps()
    with pytest.raises(StorageFailure, match="ends at 153600"):
        read(cut, 1, max_bytes)
    assert not cut.online


def test_file_systems_that_may_lose_pages_are_not_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(PAGE))
    storage = OsStorage()
    fd = storage.open(path, create=False)
    monkeypatch.setattr("ottla.log.os_storage._mappable", {})
    try:
        assert storage.map(fd, 0, PAGE) is not None
        assert storage.map(fd, 0, 2 * PAGE) is None  # longer than the file
        monkeypatch.setattr("ottla.log.os_storage._mappable", {})
        monkeypatch.setattr("ottla.log.os_storage._file_system", lambda _: "nfs4")
        assert storage.map(fd, 0, PAGE) is None
    finally:
        storage.close(fd)


@pytest.mark.usefixtures("small_maps")
def test_batches_that_are_looked_up_are_those_that_a_read_gives(tmp_path: Path) -> None:
    """By their headers, and then as views or reads of any of them."""
    for seed in range(SEEDS):
        dice = random.Random(seed)
        config = LogConfig(
            segment_bytes=dice.choice([3 * PAGE, 12 * PAGE, 1 << 20]),
            index_interval_bytes=dice.choice([1, 500, 4096]),
        )
        sealed = Sealed(dice.choice([1, 64]))
        log = opened(tmp_path / str(seed), config, sealed=sealed)
        for step in range(12):
            append(log, dice.choice([1, 900, HOP_BYTES, 3 * HOP_BYTES]), step)
        for _ in range(20):
            offset, bound = dice.randrange(13), dice.randrange(13)
            stop, max_bytes = dice.randrange(14), dice.choice([1, HOP_BYTES * 2, EVERYTHING])
            expected = _by_the_rules(log, offset, stop, max_bytes, bound)  # and open files
            found = log.look_up(offset, stop, max_bytes, upper_bound_offset=bound)
            if found is None:
                assert not expected or sealed.files.limit == 1  # another file is open
                continue
            assert [header.base_offset for header in found.headers] == [
                batch.base_offset for batch in expected
            ]
            low = dice.randrange(len(expected))
            start = sum(batch.size for batch in expected[:low])
            end = start + sum(batch.size for batch in expected[low:])
            views = dice.random() < 0.5
            chunks = log.bytes_of(found, start, end, views=views)
            assert b"".join(chunks) == b"".join(batch.data for batch in expected[low:])
            assert isinstance(chunks[0], memoryview) == views
        log.close()


def _by_the_rules(
    log: PartitionLog, offset: int, stop: int, max_bytes: int, bound: int
) -> list[RecordBatch]:
    segment = next((one for one in reversed(log.segments) if one.base_offset <= offset), None)
    assert segment is not None
    found: list[RecordBatch] = []
    for batch in iter_batches(memoryview(joined(read(log, offset, views=False)) or b"")):
        size = sum(one.size for one in found) + batch.size
        if batch.base_offset >= min(bound, segment.next_offset) or batch.size < HOP_BYTES:
            break
        if found and (batch.base_offset >= stop or size > max_bytes):
            break
        found.append(batch)
    return found


def test_batches_in_the_tail_are_not_looked_up(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", tail=TailCache())
    append(log, 100 * KIB)
    assert log.look_up(0, 1, EVERYTHING, upper_bound_offset=1) is None
    log.close()


def test_43_a_file_that_was_cut_takes_a_log_offline_that_looks_batches_up(
    cut: PartitionLog,
) -> None:
    found = cut.look_up(0, 2, EVERYTHING, upper_bound_offset=2)
    assert found is not None
    size = sum(header.size for header in found.headers)
    with pytest.raises(StorageFailure, match="ends at 153600"):
        cut.bytes_of(found, 0, size, views=False)
    assert not cut.online
