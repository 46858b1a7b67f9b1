"""The runtime against a log in memory: coalescing, order of answers, loading, loss, timers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.coordination import runtime as runtime_module
from ottla.coordination.machine import Batch, Decision, Token
from ottla.coordination.runtime import CoordinatorLoading, CoordinatorRuntime, NotCoordinator
from tests.support.clocks import ManualClock
from tests.support.groups_log import MemoryLog, Pair

if TYPE_CHECKING:
    from ottla.clock import Now


class Counter:
    """Adds what it is asked to; 0 reads, -1 parks until the alarm a second later, -2 fails."""

    def __init__(self) -> None:
        self.total = 0
        self.alarm: int | None = None
        self.parked: list[Token] = []

    def replay(self, key: bytes, value: bytes | None) -> None:
        self.total += int(key)

    def loaded(self, now: Now) -> None:
        pass

    def decide(self, request: int, token: Token, now: Now) -> Decision[int, int]:
        decision: Decision[int, int] = Decision()
        if request == -1:
            self.parked.append(token)
            self.alarm = now.ms + 1000
            return decision
        if request == -2:
            self.total += 1000
            raise ZeroDivisionError
        if request:
            decision.records.append(request)
            self.total += request
        decision.reply(token, self.total)
        return decision

    def tick(self, now: Now) -> Decision[int, int]:
        decision: Decision[int, int] = Decision()
        if self.alarm is not None and now.ms >= self.alarm:
            self.alarm = None
            for token in self.parked:
                decision.reply(token, -self.total)
            self.parked.clear()
        return decision

    def next_deadline(self) -> int | None:
        return self.alarm

    def encode(self, record: int) -> Pair:
        return b"%d" % record, b""


async def hosted(
    log: MemoryLog, clock: ManualClock | None = None
) -> CoordinatorRuntime[int, int, int]:
    runtime = CoordinatorRuntime(log, lambda _index: Counter(), clock or ManualClock())
    await runtime.load(0)
    return runtime


async def test_one_turn_of_the_loop_is_one_batch() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    answers = await asyncio.gather(*(runtime.submit(0, n) for n in (1, 2, 3)))
    assert answers == [1, 3, 6]
    assert log.batches == [[(b"1", b""), (b"2", b""), (b"3", b"")]]


async def test_answers_wait_for_the_commit_and_reads_wait_with_them() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    assert await runtime.submit(0, 0) == 0
    log.gate.clear()
    write, read = runtime.submit(0, 5), runtime.submit(0, 0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not write.done()
    assert not read.done()
    later = runtime.submit(0, 7)
    log.gate.set()
    assert [await write, await read, await later] == [5, 5, 12]
    assert log.batches == [[(b"5", b"")], [(b"7", b"")]]


async def test_a_batch_is_bounded_and_keeps_decisions_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_module, "MAX_BATCH_BYTES", 4)
    log = MemoryLog()
    runtime = await hosted(log)
    await asyncio.gather(*(runtime.submit(0, n) for n in (100, 200, 12345, 6)))
    assert [[key for key, _ in batch] for batch in log.batches] == [
        [b"100", b"200"],
        [b"12345"],
        [b"6"],
    ]


async def test_loading_then_replayed_state() -> None:
    log = MemoryLog()
    log.appends = [[Batch([(b"4", b""), (b"5", b"")])], [Batch([(b"6", b"")])]]
    log.load_gate.clear()
    runtime = CoordinatorRuntime(log, lambda _index: Counter(), ManualClock())
    with pytest.raises(NotCoordinator):
        runtime.submit(0, 0)
    loading = asyncio.create_task(runtime.load(0))
    await asyncio.sleep(0)
    with pytest.raises(CoordinatorLoading):
        runtime.submit(0, 0)
    log.load_gate.set()
    await loading
    assert await runtime.submit(0, 0) == 15


async def test_a_failed_append_fails_who_waits_and_reloads() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    await runtime.submit(0, 1)
    log.broken = OSError("disk")
    parked, lost = runtime.submit(0, -1), runtime.submit(0, 5)
    for future in (lost, parked):
        with pytest.raises(NotCoordinator):
            await future
    log.broken = None
    with pytest.raises(CoordinatorLoading):
        runtime.submit(0, 0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert await runtime.submit(0, 0) == 1


async def test_a_machine_that_fails_half_way_is_loaded_anew() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    await runtime.submit(0, 1)
    parked, failed = runtime.submit(0, -1), runtime.submit(0, -2)
    for future in (failed, parked):
        with pytest.raises(NotCoordinator):
            await future
    for _ in range(5):
        await asyncio.sleep(0)
    assert await runtime.submit(0, 0) == 1


async def test_a_reload_waits_for_the_append_under_way() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    log.gate.clear()
    lost = runtime.submit(0, 5)
    await asyncio.sleep(0)
    runtime.unload(0)
    with pytest.raises(NotCoordinator):
        await lost
    loading = asyncio.create_task(runtime.load(0))
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(CoordinatorLoading):
        runtime.submit(0, 0)
    log.gate.set()
    await loading
    assert await runtime.submit(0, 0) == 5, "it was written although nobody heard of it"


async def test_a_failed_load_leaves_the_partition_unhosted() -> None:
    log = MemoryLog()
    log.appends = [[Batch([(b"not a number", b"")])]]
    runtime = CoordinatorRuntime(log, lambda _index: Counter(), ManualClock())
    with pytest.raises(ValueError, match="not a number"):
        await runtime.load(0)
    with pytest.raises(NotCoordinator):
        runtime.submit(0, 0)


async def test_a_partition_that_cannot_be_reloaded_is_given_up() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    log.broken = OSError("disk")
    log.appends = [[Batch([(b"not a number", b"")])]]
    with pytest.raises(NotCoordinator):
        await runtime.submit(0, 5)
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(NotCoordinator):
        runtime.submit(0, 0)


async def test_close_ends_a_reload_and_waits_for_appends() -> None:
    log = MemoryLog()
    runtime = await hosted(log)
    await runtime.load(1)
    log.load_gate.clear()
    with pytest.raises(NotCoordinator):
        await runtime.submit(0, -2)
    log.gate.clear()
    unheard = runtime.submit(1, 7)
    await asyncio.sleep(0)
    closing = asyncio.create_task(runtime.close())
    with pytest.raises(NotCoordinator):
        await unheard
    assert not closing.done()
    log.gate.set()
    await closing
    assert log.batches == [[(b"7", b"")]]


async def test_unload_fails_who_waits() -> None:
    runtime = await hosted(MemoryLog())
    parked = runtime.submit(0, -1)
    runtime.unload(0)
    with pytest.raises(NotCoordinator):
        await parked
    with pytest.raises(NotCoordinator):
        runtime.submit(0, 0)


async def test_a_deadline_ticks_and_releases_the_parked() -> None:
    log, clock = MemoryLog(), ManualClock()
    runtime = await hosted(log, clock)
    await runtime.submit(0, 3)
    parked = runtime.submit(0, -1)
    clock.ms = 1000
    assert await runtime.submit(0, 0) == 3
    assert await parked == -3
    await runtime.close()


async def test_a_caller_that_went_away_is_no_obstacle() -> None:
    log, clock = MemoryLog(), ManualClock()
    runtime = await hosted(log, clock)
    gone, parked = runtime.submit(0, 4), runtime.submit(0, -1)
    gone.cancel()
    parked.cancel()
    clock.ms = 1000
    assert await runtime.submit(0, 0) == 4
    await runtime.close()
