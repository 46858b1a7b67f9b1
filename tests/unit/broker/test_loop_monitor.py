"""The monitor of event loops names what stands still, and does not blame a busy machine."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.support import loop_monitor
from tests.support.loop_monitor import LIMIT_SECONDS, LoopMonitor, LoopStalled, Usage, blame

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not loop_monitor.is_possible, reason="no schedstat on this system")
LONG: Final = 6 * LIMIT_SECONDS
PATIENCE: Final = 60.0


def a_planted_sleep() -> None:
    time.sleep(LONG)


def a_planted_computation() -> None:
    end = time.thread_time() + LONG
    while time.thread_time() < end:
        pass


async def watched(work: Callable[[], object], *, in_thread: bool = False) -> LoopMonitor:
    """Do it in the loop's thread or in another one, with the loop watched."""
    monitor = LoopMonitor(asyncio.get_running_loop())
    monitor.start()
    if in_thread:
        await asyncio.to_thread(work)
    else:
        await asyncio.sleep(0.02)
        work()
        await asyncio.sleep(0.02)
    monitor.stop()
    return monitor


async def stalls(work: Callable[[], object]) -> str:
    """What the monitor says of it: a busy machine may hide a stall, so work until one is found."""
    async with asyncio.timeout(PATIENCE):
        while True:
            monitor = await watched(work)
            if monitor.stalls:
                with pytest.raises(LoopStalled) as told:
                    monitor.check()
                return str(told.value)


@pytest.mark.parametrize("plant", [a_planted_sleep, a_planted_computation])
async def test_the_culprit_is_named(plant: Callable[[], None]) -> None:
    assert plant.__name__ in await stalls(plant)


async def test_a_lock_that_another_thread_holds_is_named() -> None:
    lock = threading.Lock()
    lock.acquire()

    def wait_for_the_lock() -> None:
        threading.Timer(LONG, lock.release).start()
        lock.acquire()

    assert "wait_for_the_lock" in await stalls(wait_for_the_lock)


@pytest.mark.parametrize("work", [a_planted_sleep, a_planted_computation])
async def test_other_threads_are_not_blamed(work: Callable[[], None]) -> None:
    """One that computes takes the interpreter's lock away from the loop for a while."""
    (await watched(work, in_thread=True)).check()


@pytest.mark.parametrize(
    ("spent", "blamed"),
    [
        pytest.param(Usage(0.2, 0.2, 0, 0, 0), 0.2, id="it computed"),
        pytest.param(Usage(0.2, 0, 0, 0, 0), 0.2, id="it waited"),
        pytest.param(Usage(0.2, 0.01, 0.19, 0, 0), 0.01, id="it had no processor"),
        pytest.param(Usage(0.2, 0.01, 0, 0.19, 0), 0.01, id="others had the interpreter"),
        pytest.param(Usage(0.2, 0.01, 0, 0.4, 0), 0.01, id="others used two processors"),
        pytest.param(Usage(0.2, 0.01, 0, 0, 0.3), 0.01, id="the machine had no processor"),
        pytest.param(Usage(0.2, 0.05, 0.05, 0.02, 0), 0.13, id="some of each"),
    ],
)
def test_what_counts(spent: Usage, blamed: float) -> None:
    assert blame(Usage(0, 0, 0, 0, 0), spent) == pytest.approx(blamed)


def test_what_comes_after_the_loop_is_nobodys_stall() -> None:
    """A broker that has stopped removes its temporary directory in the same thread."""
    loop = asyncio.new_event_loop()
    monitor = LoopMonitor(loop)

    async def start() -> None:
        monitor.start()
        await asyncio.sleep(0.02)

    loop.run_until_complete(start())
    a_planted_sleep()
    monitor.stop()
    loop.close()
    monitor.check()


async def test_a_late_look_at_a_busy_loop_is_not_a_stall() -> None:
    """Fault: many short turns counted as one if the watching thread got no processor meanwhile."""

    class Late(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            found = super().wait(timeout)
            time.sleep(LONG)
            return found

    monitor = LoopMonitor(asyncio.get_running_loop())
    monitor._answered = Late()
    await _in_short_turns(monitor)
    monitor.check()


async def test_a_late_question_to_a_busy_loop_is_not_a_stall() -> None:
    """Fault: what the loop did before it was asked counted, if the watching thread asked late."""
    loop = asyncio.get_running_loop()

    class Late:
        is_running = loop.is_running

        def call_soon_threadsafe(self, call: Callable[[], object]) -> None:
            time.sleep(LONG)
            loop.call_soon_threadsafe(call)

    monitor = LoopMonitor(loop)
    monitor._loop = Late()  # type: ignore[assignment]
    await _in_short_turns(monitor)
    monitor.check()


async def _in_short_turns(monitor: LoopMonitor) -> None:
    """Compute for some time, but never long in one turn, while the loop is watched."""
    monitor.start()
    end = time.thread_time() + 3 * LONG
    while time.thread_time() < end:
        turn = time.thread_time() + LIMIT_SECONDS / 20
        while time.thread_time() < turn:
            pass
        await asyncio.sleep(0)
    monitor.stop()


async def test_garbage_collections_are_told() -> None:
    def collect() -> None:
        a_planted_computation()  # meanwhile the monitor has asked for a sign
        gc.collect()

    assert re.search(r"\(\d+ ms of garbage collections\)", await stalls(collect))
