"""One partition of a reader, as the planner of `fetching` sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.cluster.view import NO_LEADER

if TYPE_CHECKING:
    from ottla.client.reader.types import Place


@dataclass(slots=True)
class Track:
    """Where it is to be fetched next, where it ends, and what keeps it from that."""

    start: Place
    stop: Place | None
    offset: int | None = None
    end: int | None = None
    version: int = 0
    leader: int = NO_LEADER
    leader_epoch: int = -1
    asked: bool = False
    failures: int = 0
    failing_since: float = 0.0
    not_before: float = -math.inf

    def __post_init__(self) -> None:
        self.offset = self.start.offset
        self.end = None if self.stop is None else self.stop.offset

    @property
    def is_found(self) -> bool:
        """Whether both the offset and the end, if there is to be one, are known."""
        return self.offset is not None and (self.stop is None or self.end is not None)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to fetch."""
        return self.end is not None and self.offset is not None and self.offset >= self.end
