"""Quotas and the cache of late results."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.tier.reading.result_cache import ResultCache
from ottla.tier.store.quota import RateQuota

MIB = 1024 * 1024


@given(st.lists(st.integers(0, 400), min_size=1, max_size=200))
def test_case_33_no_eleven_windows_pass_the_limit_by_more_than_a_segment(waits: list[int]) -> None:
    """Segments of 1 MiB at 1 MiB/s, offered as fast as the quota lets them."""
    quota = RateQuota(MIB)
    now, copied = 0, []
    for wait in waits:
        now += wait
        while quota.is_exceeded(now):
            now += 1000
        quota.record(MIB, now)
        copied.append(now)
    windows = [one // 1000 for one in copied]
    for first in windows:
        assert sum(first <= one < first + 11 for one in windows) <= 11 + 1


def test_case_33_a_limit_that_changes_holds_at_once() -> None:
    quota = RateQuota(MIB)
    quota.record(11 * MIB, 0)
    assert quota.is_exceeded(500)
    quota.limit = 2 * MIB
    assert not quota.is_exceeded(500)
    quota.limit = 1
    assert quota.is_exceeded(10_999)
    assert not quota.is_exceeded(11_000)


def test_case_47_a_late_result_serves_the_retry_once() -> None:
    cache: ResultCache[bytes] = ResultCache(max_bytes=10, max_age_ms=30_000)
    cache.put("a", b"12345", 5, now_ms=0)
    assert cache.take("a", 30_000) == b"12345"
    assert cache.take("a", 30_000) is None
    cache.put("b", b"12345", 5, now_ms=0)
    assert cache.take("b", 30_001) is None
    assert cache.size == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), st.integers(0, 20_000))))
def test_case_47_the_cache_is_bounded(steps: list[tuple[int, int, int]]) -> None:
    cache: ResultCache[int] = ResultCache(max_bytes=10)
    now = 0
    for key, size, wait in steps:
        now += wait
        if size == 12:
            cache.take(key, now)
        else:
            cache.put(key, size, size, now)
            fits = size <= 10
            assert (cache.take(key, now) == size) is fits
            cache.put(key, size, size, now)
        assert 0 <= cache.size <= 10
