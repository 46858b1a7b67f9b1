"""Pauses of the garbage collector that do not grow with what the broker holds.

A full collection looks at every object that is not frozen, and nothing else runs meanwhile: ten
thousand open logs are 350,000 objects, and take it a sixth of a second. They stay for long, so
looking at them again finds nothing.

- The survivors of a full collection of more than `MAX_PAUSE_SECONDS` are frozen: later collections
  leave them out. The next one that takes as long comes only after as many new objects have stayed.
- A frozen object is freed as any other when nobody refers to it any more, unless it is part of a
  reference cycle. So logs, partitions and connections, of which there are thousands, must not be
  part of one once they are closed.
- Only a process of the broker's own does this. In the process of an embedded broker the objects are
  the application's.
"""

from __future__ import annotations

import gc
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PAUSE_SECONDS: Final = 0.01  # CPU time; some 20,000 objects
FULL: Final = 2  # the oldest generation


class Freezer:
    """A callback of the collector, which calls it before and after each collection."""

    def __init__(
        self, now: Callable[[], float] = thread_time, freeze: Callable[[], None] = gc.freeze
    ) -> None:
        self._now = now
        self._freeze = freeze
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began = self._now()
        elif self._now() - self._began > MAX_PAUSE_SECONDS:
            self._freeze()
