"""How busy this node was in the last seconds, for `ottla cluster status`.

Nothing is counted for it: processor time and requests are counted anyway, and `sample` is called
every few seconds. A node tells its own load alone; whoever wants that of all asks each of them.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sized

    from ottla.clock import Clock


class _Sample(NamedTuple):
    at: float
    cpu: float
    requests: int


class Load:
    """Rates from the sample before the last one until now."""

    def __init__(self, requests: Mapping[int, int], clock: Clock) -> None:
        self._requests = requests
        self._clock = clock
        self.connections: Sized = ()
        self._last = self._before = self._now()

    def _now(self) -> _Sample:
        return _Sample(self._clock.monotonic(), time.process_time(), sum(self._requests.values()))

    def sample(self) -> None:
        self._before, self._last = self._last, self._now()

    def as_json(self) -> str:
        """Processors in use, requests a second, open connections."""
        now, before = self._now(), self._before
        seconds = max(now.at - before.at, 0.001)
        return json.dumps(
            {
                "cpu": round((now.cpu - before.cpu) / seconds, 3),
                "requests": round((now.requests - before.requests) / seconds, 1),
                "connections": len(self.connections),
            }
        )
