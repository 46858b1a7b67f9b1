"""Watches how a node is doing while it copies segments, and lets pieces of them go at that pace.

Nothing is watched while nothing is copied.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ottla.log.errors import LogError
from ottla.tier.errors import NotReady
from ottla.tier.store.pacing import CopyPace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.tiering.tiering import Tiering

TICK_SECONDS: Final = 0.005
LOOK_SECONDS: Final = 0.5
MAX_SLEEP_SECONDS: Final = 0.1  # the pace may have changed meanwhile
REQUESTS_PER_EVENT: Final = 2  # the catalogue's own: one that writes it, one that reads it


class Pacer:
    """`copying` around every copy, `piece` before every piece of one."""

    def __init__(self, tiering: Tiering) -> None:
        self._tiering = tiering
        self.pace = CopyPace(time.monotonic())
        self._turn = asyncio.Lock()
        self._copies = 0
        self._look_at = 0.0  # however short the copies are
        self._watch: asyncio.Task[None] | None = None

    @contextmanager
    def copying(self) -> Iterator[None]:
        if self._watch is None:
            self._watch = asyncio.create_task(self._watching())
        self._copies += 1
        try:
            yield
        finally:
            self._copies -= 1
            if self._copies == 0:
                self._watch.cancel()
                self._watch = None

    async def piece(self, size: int) -> None:
        """Until this many bytes may go; one after the other."""
        async with self._turn:
            while (delay := self.pace.delay(time.monotonic())) > 0:  # noqa: ASYNC110  # time passes
                await asyncio.sleep(min(delay, MAX_SLEEP_SECONDS))
            self.pace.record(size, time.monotonic())

    async def _watching(self) -> None:
        while True:
            # Not the loop's own time, which stands still while something is done.
            now = time.monotonic()
            if now >= self._look_at:
                self._look_at = now + LOOK_SECONDS
                self.pace.look(now, requests=self._served(), waiting=self._waiting())
            due = now + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self.pace.woken(now, now - due)

    def _served(self) -> int:
        """Requests, without those of our own catalogue."""
        tiering = self._tiering
        events = 0 if tiering.manager is None else tiering.manager.metrics.events
        return sum(tiering.requests.values()) - REQUESTS_PER_EVENT * events

    def _waiting(self) -> int:
        """Bytes that are rolled and not copied."""
        waiting = 0
        for hosted in self._tiering.hosted:
            with suppress(NotReady, LogError):  # or not tiered at all
                waiting += self._tiering.find(hosted).lag(hosted.log)[1]
        return waiting
