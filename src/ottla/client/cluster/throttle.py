"""Waiting that a broker asks for: a client over a quota sends that broker nothing for a while.

- Since KIP-219 a broker answers first and then does not read the connection for the time told
  (`throttle_time_ms`). A request sent meanwhile would only wait in its socket, so it is held here.
- Brokers before that answered after the wait. Which of the two it was is told by the version of
  the API, so older versions are not waited for again.
- Each connection waits for itself, as in Kafka's clients: a consumer whose fetches are held still
  sends heartbeats over its connection to the coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_SECONDS: Final = 3600.0
"""Longer waits are cut: Ottla tells no more, and a bad number must not stop a client for weeks."""

_ANSWERED_FIRST: Final = {
    key: version
    for version, keys in (
        (1, (21, 22, 24, 25, 26, 28, 29, 30, 31, 33, 35, 37, 42)),
        (2, (10, 12, 13, 14, 15, 16, 18, 20, 32)),
        (3, (2, 11, 19)),
        (4, (8, 9)),
        (6, (0, 3)),
        (8, (1,)),
    )
    for key in keys
}
"""The first version of each older API (by its key) whose answer comes before the wait."""


@dataclass(slots=True)
class Throttled:
    """How long brokers have told a client to wait, all its connections together."""

    seconds: float = 0.0


def told_wait(api_key: int, version: int, answer: object) -> float:
    """Seconds that an answer asks the client to wait from now on."""
    told: int = getattr(answer, "throttle_time_ms", 0)
    if told <= 0 or version < _ANSWERED_FIRST.get(api_key, 0):
        return 0.0
    return min(told / 1000, MAX_SECONDS)
