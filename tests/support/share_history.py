"""What happened to the records of a share group, and whether it may have.

- A record that the broker confirmed as accepted was accepted by a caller, once, and is never
  delivered again.
- Each delivery of a record counts higher than the one before. A broker that has lost what it knew
  of deliveries, since only acknowledgements are written down, counts higher than at the last
  release that it confirmed.
- In the end the broker has nothing left to deliver, and every record was confirmed, or its
  acceptance was sent and not answered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.client.share.types import Acknowledged, ShareRecord


class History:
    """Of one topic with one partition; `forgets` says whether brokers may lose delivery counts."""

    def __init__(self, records: int, *, forgets: bool) -> None:
        self.records = set(range(records))
        self.confirmed: Counter[int] = Counter()
        self.unanswered: set[int] = set()
        self.deliveries = 0
        self._forgets = forgets
        self._said: set[int] = set()
        self._counts: dict[int, int] = defaultdict(int)
        self._released: dict[int, int] = defaultdict(int)

    @property
    def is_complete(self) -> bool:
        return self.records <= self.confirmed.keys() | self.unanswered

    @property
    def seen(self) -> int:
        """How many records were delivered at all."""
        return len(self._counts)

    def delivered(self, offset: int, count: int) -> None:
        assert offset not in self.confirmed, f"{offset} was accepted and delivered again"
        floor = self._released[offset] if self._forgets else self._counts[offset]
        assert count > floor, f"{offset} came with count {count} after {floor}"
        self._counts[offset] = count
        self.deliveries += 1

    def deliver(self, records: Iterable[ShareRecord]) -> None:
        for one in records:
            self.delivered(one.offset, one.delivery_count)

    def say(self, offset: int) -> None:
        """The caller accepts it."""
        self._said.add(offset)

    def note(self, result: Acknowledged) -> None:
        for offset in range(result.first_offset, result.last_offset + 1):
            if result.kind == "accept":
                assert offset in self._said, f"{offset} was accepted by nobody"
                if result.error is None:
                    self.confirmed[offset] += 1
                else:
                    self.unanswered.add(offset)
            elif result.kind == "release" and result.error is None:
                self._released[offset] = self._counts[offset]

    def check(self) -> None:
        """At the end, when the broker has nothing left."""
        assert self.is_complete, sorted(self.records - self.confirmed.keys() - self.unanswered)
        twice = [offset for offset, times in self.confirmed.items() if times > 1]
        assert not twice, f"{twice} were accepted twice"
