"""Readers that wait for a file to grow. Writers of this process wake them at once, the system
where it can (`inotify`); otherwise readers poll.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, ClassVar

from ottla.streams.ss.inotify import watched

if TYPE_CHECKING:
    from ottla.streams.ss.inotify import FileEvents
    from ottla.streams.ss.sharing import Identity

POLL_FIRST = 0.001

_waiting: dict[str, set[Watch]] = {}


class _Telling:
    """System notifications of one file, for all watches in one event loop."""

    _known: ClassVar[dict[tuple[asyncio.AbstractEventLoop, Identity], _Telling]] = {}

    def __init__(self, events: FileEvents, key: tuple[asyncio.AbstractEventLoop, Identity]) -> None:
        self._events = events
        self._key = key
        self._watches: set[Watch] = set()
        key[0].add_reader(events.descriptor, self._changed)

    @classmethod
    def of(cls, path: str, identity: Identity, watch: Watch) -> _Telling | None:
        """Subscribe a watch to this file; None without system notifications."""
        key = asyncio.get_running_loop(), identity
        found = cls._known.get(key)
        if found is None:
            events = watched(path)
            if events is None:
                return None
            found = cls._known[key] = cls(events, key)
        found._watches.add(watch)
        return found

    def _changed(self) -> None:
        self._events.forget()
        for watch in self._watches:
            watch.wake()

    def leave(self, watch: Watch) -> None:
        """The last watch takes it along."""
        self._watches.discard(watch)
        if not self._watches:
            del self._known[self._key]
            self._key[0].remove_reader(self._events.descriptor)
            self._events.close()


class Watch:
    """One reader's wait, with a delay that doubles while nothing comes."""

    def __init__(self, path: str, identity: Identity, max_poll: float, *, told: bool):
        """`identity`: the file that is waited for. `told`: not by polling alone."""
        self._path = os.path.realpath(path)
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._max_poll = max_poll
        self._delay = POLL_FIRST
        self._telling = _Telling.of(self._path, identity, self) if told else None
        _waiting.setdefault(self._path, set()).add(self)

    def news(self) -> None:
        """New data: poll at short intervals again."""
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
        if self._telling is not None:
            self._telling.leave(self)
            self._telling = None
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
