"""Keeps the locks of a share consumer's records while the caller works on them.

Every so often what would end before long is locked for another while: records that the caller was
given and has not decided about, and those that wait for it. What was decided and not sent yet
leaves with the same request. A consumer that is stuck holds its records for as long as its process
lives, which is why this has to be asked for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.client.share.leaders import Leaders

LOOKS_PER_LOCK: Final = 8
UNKNOWN_LOCK: Final = 1.0  # seconds; the shortest that Kafka allows


class Renewal:
    """A task from its making to `stop`."""

    def __init__(self, leaders: Leaders) -> None:
        leaders.renews = True
        self._leaders = leaders
        self._task = asyncio.create_task(self._run(), name="ottla share renewal")

    async def stop(self) -> None:
        """Let locks end when they do."""
        self._leaders.renews = False
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep((self._leaders.lock_timeout or UNKNOWN_LOCK) / LOOKS_PER_LOCK)
            self._leaders.renew()
