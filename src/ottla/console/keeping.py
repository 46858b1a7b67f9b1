"""Moves history between memory and its file: the last day at the start, new points every while."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.console.history import COARSE_MS, COARSE_SLOTS, MOST_RINGS
from ottla.console.history_file import Point
from ottla.console.missing import Missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clock import Clock, Now
    from ottla.console.clusters import Cluster
    from ottla.console.history import History, Name
    from ottla.console.history_file import HistoryFile

SAVE_SECONDS: Final = 600.0
LOOK_SECONDS: Final = 1.0
"""Between looks whether a cluster has told its id."""
AT_ONCE: Final = 200
"""Series that are taken from memory before the event loop gets its turn."""


def recent(history: History, name: Name, now: Now, slots: int) -> list[Point]:
    """The last steps of a series by wall time, without gaps."""
    found = history.coarse(name, now.ms, slots)
    if isinstance(found, Missing):
        return []
    means, maxima = found
    last = _slot(now, now.ms // COARSE_MS)
    return [
        Point(last - slots + 1 + index, mean, mean if most is None else most)
        for index, (mean, most) in enumerate(zip(means, maxima, strict=True))
        if mean is not None
    ]


def _slot(now: Now, monotonic_slot: int) -> int:
    """The step of wall time in which a step of the monotonic clock begins."""
    return (now.wall_ms - now.ms + monotonic_slot * COARSE_MS) // COARSE_MS


class Keeper:
    """Of all clusters of a console."""

    def __init__(self, file: HistoryFile, clusters: Iterable[Cluster], clock: Clock) -> None:
        self.file = file
        self._clusters = list(clusters)
        self._clock = clock
        self._known: dict[str, str] = {}
        """The id of each cluster whose history was read."""
        self._saved_ms = clock.monotonic_ms()

    async def run(self) -> None:
        """Until it is cancelled."""
        await asyncio.to_thread(self.file.open, self._clock.wall_ms() // 1000)
        while True:
            for cluster in self._clusters:
                await self.restore(cluster)
            if self._clock.monotonic_ms() - self._saved_ms >= SAVE_SECONDS * 1000:
                await self.save()
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        """Save what there is, and close the file."""
        with suppress(OSError):
            await self.save()
        await asyncio.to_thread(self.file.close)

    async def restore(self, cluster: Cluster) -> None:
        """Read the last day of a cluster that has told its id."""
        known = cluster.cluster_id
        if known is None or self._known.get(cluster.name) == known:
            return
        self._known[cluster.name] = known
        now = self._clock.now()
        last = _slot(now, now.ms // COARSE_MS)
        found = await asyncio.to_thread(
            self.file.load, known, last - COARSE_SLOTS + 1, last, MOST_RINGS
        )
        history = cluster.history
        for number, (name, points) in enumerate(found, 1):
            moved = [((one.slot - last) * COARSE_MS + now.ms, one.mean, one.most) for one in points]
            history.restore(name, moved)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def save(self) -> None:
        """Write what has come since the last time."""
        now = self._clock.now()
        # The step that ran at the last save was not whole.
        slots = min(COARSE_SLOTS, (now.ms - self._saved_ms) // COARSE_MS + 2)
        self._saved_ms = now.ms
        for cluster in self._clusters:
            if cluster.cluster_id is None or cluster.name not in self._known:
                continue
            history = cluster.history
            series = []
            for number, name in enumerate(list(history.kept()), 1):
                if points := recent(history, name, now, slots):
                    series.append((name, points))
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
            slot = _slot(now, now.ms // COARSE_MS)
            await asyncio.to_thread(self.file.save, cluster.cluster_id, series, slot)
