"""Finds what holds up an event loop, and names it.

A thread asks the loop for a sign every `BEAT_SECONDS`. If none comes within `LIMIT_SECONDS`, it
looks at the stack of the loop's thread until the sign comes. The loop is to blame for the time in
which it computed, and for the time in which it waited for something (a disk, a lock, a sleep). It
is not to blame for the time in which

- its thread could have run and got no processor (`run_delay` of Linux's schedstat, and steal),
- other threads of the process computed, or could have, while it waited: they may have held the
  interpreter's lock.

So a stall is never blamed on a busy machine; at worst one goes unseen on one. The loop notes itself
when it gave the sign, and how much it had computed by then: the watching thread may get a processor
only later. Garbage collections are
counted, because no other thread can look at the stack during one. Without schedstat (not on Linux)
nothing is watched.

A loop is watched by the fixture `watch_loop`, and every node that a test starts is watched by
`OTTLA_TEST_LOOP_MONITOR=1`, which `make soak` sets; brokers in processes of their own then end with
`EXIT_STALLED`.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

LIMIT_SECONDS: Final = 0.05
BEAT_SECONDS: Final = 0.01
SAMPLE_SECONDS: Final = 0.005
MAX_SAMPLES: Final = 200  # of one stall: its first second
MAX_STALLS: Final = 20  # more of them say nothing new
DEPTH: Final = 25  # innermost frames that are shown
EXIT_STALLED: Final = 70
VARIABLE: Final = "OTTLA_TEST_LOOP_MONITOR"

is_wanted: Final = os.environ.get(VARIABLE) == "1"
is_possible: Final = Path("/proc/self/schedstat").exists()


@dataclass(frozen=True)
class Usage:
    """Seconds, so far."""

    wall: float
    own: float
    """The loop's thread computed."""
    delayed: float
    """It could have run, and had no processor."""
    others: float
    """Other threads of the process computed, or had no processor to do so."""
    stolen: float
    """The hypervisor gave processors of this machine to others."""

    @classmethod
    def now(cls, thread: int) -> Usage:
        own = delayed = others = 0.0
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # it has ended
                computed, waited, _ = (task / "schedstat").read_text().split()
                if task.name == str(thread):
                    own, delayed = int(computed) / 1e9, int(waited) / 1e9
                else:
                    others += (int(computed) + int(waited)) / 1e9
        steal = Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]
        stolen = int(steal) / os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), own, delayed, others, stolen)


def blame(before: Usage, after: Usage) -> float:
    """For how many seconds of those in between the loop is to blame."""
    wall = after.wall - before.wall
    own = after.own - before.own
    idle = wall - own - (after.delayed - before.delayed) - (after.stolen - before.stolen)
    return own + max(0.0, idle - (after.others - before.others))


@dataclass
class Stall:
    """One time in which the loop did not come round."""

    seconds: float
    collecting: float = 0.0
    """Seconds of garbage collections in the meantime, in any thread."""
    stacks: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def __str__(self) -> str:
        found = self.stacks.most_common(1)
        stack = "".join(found[0][0]) if found else "  (over before anybody could look)\n"
        told = f"the event loop stood still for {self.seconds * 1000:.0f} ms"
        if self.collecting:
            told += f" ({self.collecting * 1000:.0f} ms of garbage collections)"
        return f"{told} in\n{stack}"


class LoopStalled(AssertionError):
    """What the monitor found."""


class LoopMonitor:
    """`start` in the loop's own thread; `stop` and `check` anywhere."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float = LIMIT_SECONDS) -> None:
        self._loop = loop
        self._limit = limit
        self._answered = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._answered_at = self._answered_own = 0.0
        self._collection_began = 0.0
        self._collecting = 0.0
        self.stalls: list[Stall] = []

    def start(self) -> None:
        watched = threading.get_ident(), threading.get_native_id()
        self._thread = threading.Thread(
            target=self._watch, args=watched, name="loop-monitor", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def taken(self) -> list[Stall]:
        """What was found since the last call."""
        taken, self.stalls = self.stalls, []
        return taken

    def check(self) -> None:
        """Raise if the loop stood still."""
        if self.stalls:
            raise LoopStalled("\n".join(map(str, self.stalls)))

    def _watch(self, ident: int, thread: int) -> None:
        gc.callbacks.append(self._collects)
        try:
            while not self._stopping.wait(BEAT_SECONDS):
                self._beat(ident, thread)
        except (OSError, RuntimeError):
            return  # the thread has ended, or the loop is closed
        finally:
            gc.callbacks.remove(self._collects)

    def _answer(self) -> None:
        """The loop's sign."""
        self._answered_at, self._answered_own = time.monotonic(), time.thread_time()
        self._answered.set()

    def _collects(self, phase: str, info: dict[str, Any]) -> None:
        now = time.monotonic()
        if phase == "start":
            self._collection_began = now
        else:
            self._collecting += now - self._collection_began

    def _beat(self, ident: int, thread: int) -> None:
        self._answered.clear()
        collecting = self._collecting
        self._loop.call_soon_threadsafe(self._answer)
        # After the question: what the loop does before it is asked, however long this thread has to
        # wait for a processor meanwhile, is not to its blame.
        before = Usage.now(thread)
        stall = Stall(0.0)
        late = self._limit
        while not self._answered.wait(late) and not self._stopping.is_set():
            late = SAMPLE_SECONDS
            if not self._loop.is_running():
                return  # it has ended, and its thread does something else
            frame = sys._current_frames().get(ident)
            if frame is not None and stall.stacks.total() < MAX_SAMPLES:
                stall.stacks[_stack(frame)] += 1
        after = Usage.now(thread)
        if self._answered.is_set():
            after = replace(after, wall=self._answered_at, own=self._answered_own)
        stall.seconds = blame(before, after)
        stall.collecting = self._collecting - collecting
        if not stall.stacks and after.own - before.own <= self._limit:
            return  # whatever kept this thread from looking kept the loop waiting, too
        if stall.seconds > self._limit and len(self.stalls) < MAX_STALLS:
            self.stalls.append(stall)


def _stack(frame: FrameType) -> tuple[str, ...]:
    return tuple(traceback.format_list(traceback.extract_stack(frame)[-DEPTH:]))
