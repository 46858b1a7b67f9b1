"""Work that many callers need and one should do: the others wait and share its outcome.

There is no task behind it. The one that works is a caller like the others; when it is cancelled,
the next in line starts over. A failure goes to all who were waiting for it, so that a hundred
callers of a broker that is down wait for one attempt, not for a hundred.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, afresh

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Turns:
    """Work that one caller does for all waiting callers."""

    __slots__ = ("_failure", "_failures", "_lock")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._failures = 0
        self._failure: ClientError | None = None

    async def take(self, is_done: Callable[[], bool], work: Callable[[], Awaitable[None]]) -> None:
        """Return when the work is done, by this caller or by one it waited for."""
        seen = self._failures
        async with self._lock:
            if is_done():
                return
            if self._failure is not None and self._failures != seen:
                raise afresh(self._failure)
            try:
                await work()
            except ClientError as failure:
                self._failures += 1
                self._failure = failure
                raise
