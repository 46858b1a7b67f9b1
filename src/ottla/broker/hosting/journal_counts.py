"""What a journal has done, for metrics."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

WRITE_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)
"""How long writes are told to have taken, for metrics: at most each of these, or longer."""


class JournalCounts:
    """The thread that writes counts writes, the event loop and workers the rest."""

    __slots__ = (
        "checkpoint_seconds",
        "checkpoints",
        "direct",
        "write_seconds",
        "writes",
        "written",
    )

    def __init__(self) -> None:
        self.writes = [0] * (len(WRITE_SECONDS) + 1)  # by how long they took
        self.write_seconds = 0.0
        self.written = 0  # bytes
        self.direct = 0  # partitions that were synced by themselves
        self.checkpoints = 0
        self.checkpoint_seconds = 0.0

    def wrote(self, size: int, seconds: float) -> None:
        self.writes[bisect_left(WRITE_SECONDS, seconds)] += 1
        self.write_seconds += seconds
        self.written += size

    def write_buckets(self) -> list[tuple[str, float]]:
        """As Prometheus wants them: how many took at most so long."""
        limits = [*map(str, WRITE_SECONDS), "+Inf"]
        return [*zip(limits, map(float, accumulate(self.writes)), strict=True)]
