"""An event loop in its own thread, and objects kept open on it between calls.

Spark calls plain functions, one at a time, in processes that it reuses; clients are asynchronous
and need a round trip or two to open. So each process has one loop, and connections stay open
between tasks until they have been idle for a minute.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterator
    from concurrent.futures import Future

T = TypeVar("T")

IDLE_SECONDS: Final = 60.0


class Closable(Protocol):
    """A client or a producer."""

    async def close(self) -> None:
        """Release its resources."""


C = TypeVar("C", bound=Closable)


@dataclass(slots=True)
class _Kept:
    thing: Closable
    users: int = 0
    timer: asyncio.TimerHandle | None = None


class Background:
    """The loop of one process."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._kept: dict[Hashable, _Kept] = {}
        self._closing: set[asyncio.Task[None]] = set()
        thread = threading.Thread(target=self._loop.run_forever, name="ottla-spark", daemon=True)
        thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start work on the loop; returns its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], within: float | None = None) -> T:
        """Run work and return its result; cancel it on timeout or if the caller is interrupted."""
        future = self.start(work)
        try:
            return future.result(within)
        except BaseException:
            future.cancel()
            raise

    @contextmanager
    def borrowed(self, key: Hashable, make: Callable[[], C]) -> Iterator[C]:
        """The object of this key, created if needed; dropped if its user fails."""
        kept = self.call(self._borrow(key, make))
        broken = True
        try:
            yield cast("C", kept.thing)
            broken = False
        except GeneratorExit:
            broken = False  # Spark has seen enough rows
            raise
        finally:
            self.call(self._give_back(key, kept, broken=broken))

    async def _borrow(self, key: Hashable, make: Callable[[], C]) -> _Kept:
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(make())
        kept.users += 1
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None
        return kept

    async def _give_back(self, key: Hashable, kept: _Kept, *, broken: bool) -> None:
        kept.users -= 1
        if broken and self._kept.get(key) is kept:
            del self._kept[key]
        if kept.users:
            return
        if self._kept.get(key) is kept:
            kept.timer = self._loop.call_later(IDLE_SECONDS, self._drop, key, kept)
        else:
            await kept.thing.close()

    def _drop(self, key: Hashable, kept: _Kept) -> None:
        del self._kept[key]
        closing = self._loop.create_task(kept.thing.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


_OF_PROCESS: dict[int, Background] = {}
_FROZEN: list[bool] = []


def background() -> Background:
    """The loop of this process; a forked child starts its own."""
    pid = os.getpid()
    if pid not in _OF_PROCESS:
        _OF_PROCESS.clear()
        _OF_PROCESS[pid] = Background()
    return _OF_PROCESS[pid]


def freeze_loaded() -> None:
    """Exclude loaded modules from the garbage collection after each task."""
    if not _FROZEN:
        _FROZEN.append(True)
        gc.freeze()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
