"""What has come from brokers and not been decoded yet, in the order in which it came."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.client.share.decode import Arrival


class Arrivals:
    """A queue that loses what is not this consumer's any more."""

    def __init__(self) -> None:
        self._waiting: deque[Arrival] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, arrival: Arrival) -> None:
        self._waiting.append(arrival)

    def first(self, most: int) -> list[Arrival]:
        """What a poll may return at most, except that a single arrival may be more."""
        found: list[Arrival] = []
        count = 0
        for arrival in self._waiting:
            if count >= most:
                break
            count += len(arrival.delivery)
            found.append(arrival)
        return found

    def take(self, arrival: Arrival) -> bool:
        """Remove one that was decoded; False if it was lost meanwhile."""
        before = len(self._waiting)
        self._waiting = deque(one for one in self._waiting if one is not arrival)
        return len(self._waiting) < before

    def take_others(self, topics: Collection[str]) -> list[Arrival]:
        """Remove what is of other topics than these."""
        others = [one for one in self._waiting if one.delivery.partition.topic not in topics]
        self._waiting = deque(
            one for one in self._waiting if one.delivery.partition.topic in topics
        )
        return others

    def expire(self, now: float) -> None:
        """Forget what waited longer than its lock; the broker has given it to somebody else."""
        self._waiting = deque(one for one in self._waiting if one.delivery.expires > now)

    def lose(self, node: int) -> None:
        """Forget what came in a session that has ended."""
        self._waiting = deque(one for one in self._waiting if one.delivery.node != node)
