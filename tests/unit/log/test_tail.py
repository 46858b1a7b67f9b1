"""One budget for the tails of all logs: who stays, who goes, and what is never kept."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.tail import BATCH_OVERHEAD, LOG_TAIL_BYTES, Tail, TailCache
from tests.support.log_batches import batch_of, joined
from tests.support.log_faults import MemoryStorage
from tests.support.sizes import examples

CHUNK = b"x" * 1000
COST = len(CHUNK) + BATCH_OVERHEAD


def read(tail: Tail, offset: int) -> list[bytes | memoryview] | None:
    return tail.read(offset, 1 << 30, 1 << 30, at_least_one=True)


def test_the_least_recently_used_tail_goes_first() -> None:
    cache = TailCache(8 * COST)
    tails = [Tail(cache) for _ in range(9)]
    for tail in tails[:8]:
        tail.add(0, CHUNK)
    assert read(tails[0], 0) == [CHUNK]  # a reader keeps it
    tails[8].add(0, CHUNK)
    assert [bool(tail.held) for tail in tails] == [True, False, False] + [True] * 6
    assert cache.used == sum(tail.held for tail in tails) == 7 * COST


def test_ten_thousand_logs_stay_within_the_budget() -> None:
    cache = TailCache(1 << 20)
    tails = [Tail(cache) for _ in range(10_000)]
    for round_ in range(3):
        for tail in tails:
            tail.add(round_, CHUNK)
            assert cache.used <= cache.capacity
    assert cache.used == sum(tail.held for tail in tails) > cache.capacity // 2


def test_one_log_takes_its_share_and_leaves_the_others_theirs() -> None:
    cache = TailCache()
    quiet, busy = Tail(cache), Tail(cache)
    quiet.add(0, CHUNK)
    for offset in range(10_000):
        busy.add(offset, CHUNK)
        assert busy.held <= LOG_TAIL_BYTES
    assert read(quiet, 0) == [CHUNK]
    assert read(busy, 9_999) == [CHUNK]
    assert read(busy, 0) is None


def test_a_huge_batch_is_not_kept_and_evicts_nobody_else() -> None:
    cache = TailCache()
    other, tail = Tail(cache), Tail(cache)
    other.add(0, CHUNK)
    tail.add(0, CHUNK)
    tail.add(1, bytes(50_000_000))
    assert (read(tail, 0), read(tail, 1)) == (None, None)  # nobody may read past the gap
    tail.add(2, CHUNK)
    assert (read(tail, 1), read(tail, 2)) == (None, [CHUNK])
    assert read(other, 0) == [CHUNK]
    assert cache.used == 2 * COST


def test_a_closed_log_gives_its_part_back() -> None:
    cache = TailCache()
    log = PartitionLog.open(
        Path("/t-0"), LogConfig(), now_ms=0, tail=cache, storage=MemoryStorage()
    )
    log.append(batch_of(b"x"), leader_epoch=0, now_ms=0)
    assert cache.used
    log.close(clean=False)
    assert cache.used == 0


@given(
    writes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 700)), max_size=60),
    capacity=st.sampled_from([0, 500, 2000, 1 << 20]),
)
@settings(max_examples=examples(60))
def test_what_is_read_never_depends_on_the_cache(
    writes: list[tuple[int, int]], capacity: int
) -> None:
    cache = TailCache(capacity)
    logs = [
        PartitionLog.open(
            Path(f"/t-{n}"), LogConfig(), now_ms=0, tail=cache, storage=MemoryStorage()
        )
        for n in range(4)
    ]
    for number, size in writes:
        log = logs[number]
        log.append(batch_of(b"x" * size), leader_epoch=0, now_ms=0)
        assert cache.used <= capacity
        found = log.read(0, 1 << 30, upper_bound_offset=1 << 30, min_one_message=True)
        files = log.read_files(0, 1 << 30, upper_bound_offset=1 << 30, min_one_message=True)
        assert joined(found) == joined(files)
    for log in logs:
        log.begin_close()
    assert cache.used == 0
