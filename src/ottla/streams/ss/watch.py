"""Who waits for a file to grow: told at once by writers of this process, and by the system where
it can (`inotify`); who is told nothing polls.
"""

from __future__ import annotations

import asyncio
import os

from ottla.streams.ss.inotify import watched

POLL_FIRST = 0.001

_waiting: dict[str, set[Watch]] = {}


class Watch:
    """One reader's wait, with a delay that doubles while nothing comes."""

    def __init__(self, path: str, max_poll: float, *, told: bool):
        """`told`: not by polling alone."""
        self._path = os.path.realpath(path)
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._max_poll = max_poll
        self._delay = POLL_FIRST
        self._events = watched(self._path) if told else None
        if self._events is not None:
            self._loop.add_reader(self._events.descriptor, self._changed)
        _waiting.setdefault(self._path, set()).add(self)

    def _changed(self) -> None:
        if self._events is not None:
            self._events.forget()
            self._event.set()

    def news(self) -> None:
        """Something came: poll quickly again."""
        self._delay = POLL_FIRST

    async def wait(self, at_most: float) -> None:
        """Until the file may have grown."""
        try:
            async with asyncio.timeout(min(self._delay, at_most)):
                await self._event.wait()
        except TimeoutError:
            self._delay = min(2 * self._delay, self._max_poll)
        self._event.clear()

    def wake(self) -> None:
        """End a wait, or the next one."""
        self._event.set()

    def close(self) -> None:
        """No longer interested."""
        if self._events is not None:
            self._loop.remove_reader(self._events.descriptor)
            self._events.close()
            self._events = None
        watching = _waiting.get(self._path, set())
        watching.discard(self)
        if not watching:
            _waiting.pop(self._path, None)

    def wake_from_anywhere(self) -> None:
        """End a wait, called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)


def grown(path: str) -> None:
    """A writer of this process has added to the file with this real path."""
    for watch in list(_waiting.get(path, ())):
        watch.wake_from_anywhere()
