"""The event loop to which a streamer, a consumer or a producer belongs."""

from __future__ import annotations

import asyncio

from ottla.client.errors import WrongPlace


class Home:
    """Remembers the loop of the opening; `check` raises in any other one."""

    __slots__ = ("_loop", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> None:
        self._loop = asyncio.get_running_loop()

    def leave(self) -> None:
        self._loop = None

    def check(self) -> None:
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise WrongPlace(
                f"this {self._what} belongs to the event loop in which it was opened, and this is "
                "another one; connect in each asyncio.run, or use ottla.sync.connect"
            )
