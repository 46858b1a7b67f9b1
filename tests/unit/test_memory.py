"""malloc keeps freed buffers, and a broker sets that up with its first large read."""

from __future__ import annotations

import platform

import pytest

from ottla import memory
from ottla.broker import workers
from ottla.broker.workers import KEPT_BYTES, LARGE_BYTES, Workers


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_freed_memory_is_kept_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in memory.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert memory.keep_freed_memory.__wrapped__(KEPT_BYTES)
    monkeypatch.setenv(memory.VARIABLES[0], "1")
    assert not memory.keep_freed_memory.__wrapped__(KEPT_BYTES)


async def test_a_broker_keeps_it_from_the_first_large_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[int] = []
    monkeypatch.setattr(workers, "keep_freed_memory", kept.append)
    threads = Workers()
    for size in (0, LARGE_BYTES - 1):
        threads.has_read(size)
    assert not threads._keeps_memory
    for size in (LARGE_BYTES, 2 * LARGE_BYTES):
        threads.has_read(size)
    await threads.ended()
    assert kept == [KEPT_BYTES]
