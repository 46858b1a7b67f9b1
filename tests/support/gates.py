"""Worker threads that stand still inside a system call of theirs until the test lets them go on.

`gate_reads` holds reads of files (`os.pread`) that workers make, with the descriptor in their
hands: if the broker closes that file meanwhile, or gives its number to another one, the gate sees
it. The event loop's own reads pass.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

PATIENCE: Final = 60.0


class Gate:
    """The first worker that comes waits; `reached` tells the event loop's thread that it does."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.closed_under_reader: list[str] = []
        """Files whose descriptors were given back, or to others, while a worker was reading."""
        self._passed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._main = threading.current_thread()
        self._open = threading.Event()
        self._taken = threading.Lock()

    def open(self) -> None:
        self._open.set()

    async def let_through(self) -> None:
        """Open, and wait until the worker that stood here has looked at its descriptor."""
        self.open()
        await asyncio.wait_for(self._passed.wait(), PATIENCE)

    def stop(self) -> bool:
        """In a worker: wait if it is the first to come; whether it was."""
        if threading.current_thread() is self._main or not self._taken.acquire(blocking=False):
            return False
        self._loop.call_soon_threadsafe(self.reached.set)
        assert self._open.wait(PATIENCE), "the test forgot a worker"
        return True

    def hold(self, fd: int) -> None:
        """In a worker that is about to use a descriptor."""
        before = os.fstat(fd)
        name = _name_of(fd)
        if self.stop():
            try:
                after = os.fstat(fd)
            except OSError as error:
                self.closed_under_reader.append(f"{name}: {error}")
            else:
                if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino):
                    self.closed_under_reader.append(f"{name} became {_name_of(fd)}")
            self._loop.call_soon_threadsafe(self._passed.set)

    async def wait(self) -> None:
        """Until a worker stands here."""
        await asyncio.wait_for(self.reached.wait(), PATIENCE)


def _name_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - hot


def _is_during(function: str) -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


@contextmanager
def gate_reads(directory: str, during: str) -> Iterator[Gate]:
    """Hold the first read by a worker, in a function or what it calls, of a file in a directory.

    The gate opens at the end of the block at the latest.
    """
    gate = Gate()
    pread: Callable[[int, int, int], bytes] = os.pread

    def held(fd: int, size: int, position: int) -> bytes:
        if f"/{directory}/" in _name_of(fd) and _is_during(during):
            gate.hold(fd)
        return pread(fd, size, position)

    with patch("os.pread", held):
        try:
            yield gate
        finally:
            gate.open()
