"""When to restart a failed flow: after 1 s, 2 s ... 60 s; from 1 s again after it has recovered.

Pure: time comes in, decisions go out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
# A flow that fails in every other batch must still back off.
WELL_AFTER_BATCHES: Final = 10


@dataclass(slots=True)
class Supervision:
    """The failures of one flow. `most_restarts` None: no limit."""

    most_restarts: int | None = None
    restarts: int = 0
    failures: int = 0
    good_batches: int = 0

    def batch_done(self) -> None:
        """Note that a batch is in Spark's log."""
        self.good_batches += 1
        if self.good_batches >= WELL_AFTER_BATCHES:
            self.failures = 0

    def failed(self, now: float, *, for_good: bool) -> float | None:
        """When to restart; None: give up."""
        self.good_batches = 0
        if for_good or (self.most_restarts is not None and self.failures >= self.most_restarts):
            return None
        pause = min(FIRST_PAUSE * 2.0**self.failures, LONGEST_PAUSE)
        self.failures += 1
        self.restarts += 1
        return now + pause
