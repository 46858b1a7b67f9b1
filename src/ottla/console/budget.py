"""What the sampler may ask for in a tick. Pure.

The time that the requests of a tick took is the measure of what they cost the cluster. Above 1 % of
the tick the budget halves, below 0.3 % it grows by a tenth, between its floor and its ceiling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

TICK_S: Final = 10.0
MOST_PARTITIONS: Final = 2_000
MOST_GROUPS: Final = 200
LEAST_PARTITIONS: Final = 50
"""A page of a table: what somebody looks at stays fresh, however slow the cluster is."""
LEAST_GROUPS: Final = 5
TOO_MUCH: Final = 0.01
LITTLE: Final = 0.003
REST_SHARE: Final = 4

START: Final = (0, 0, 0)

K = TypeVar("K", bound="Hashable")
Cursors: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Budget:
    """Partitions and groups of the next tick."""

    partitions: int = MOST_PARTITIONS
    groups: int = MOST_GROUPS

    def after(self, spent_s: float, tick_s: float = TICK_S) -> Budget:
        """The budget after a tick whose requests took so long."""
        share = spent_s / tick_s
        if share > TOO_MUCH:
            return Budget(
                max(LEAST_PARTITIONS, self.partitions // 2), max(LEAST_GROUPS, self.groups // 2)
            )
        if share < LITTLE:
            return Budget(
                min(MOST_PARTITIONS, self.partitions + max(1, self.partitions // 10)),
                min(MOST_GROUPS, self.groups + max(1, self.groups // 10)),
            )
        return replace(self)


def choose(
    first: Sequence[K], then: Sequence[K], rest: Sequence[K], cursors: Cursors, most: int
) -> tuple[list[K], Cursors]:
    """At most so many: the first, then the others, then the rest; and the cursors.

    Each of the three is taken in turn if it does not fit. The rest gets at least a quarter of what
    the first leave, so that everything has its turn.
    """
    picked, first_at = _in_turn(first, cursors[0], most)
    chosen = set(first)
    left = most - len(picked)
    fresh = [one for one in rest if one not in chosen]
    for_rest = min(len(fresh), left // REST_SHARE)
    some, at = _in_turn([one for one in then if one not in chosen], cursors[1], left - for_rest)
    chosen.update(some)
    others, rest_at = _in_turn(
        [one for one in fresh if one not in chosen], cursors[2], left - len(some)
    )
    return [*picked, *some, *others], (first_at, at, rest_at)


def _in_turn(found: Sequence[K], cursor: int, most: int) -> tuple[list[K], int]:
    if not found:
        return [], 0
    at = cursor % len(found)
    count = min(most, len(found))
    turn = [found[(at + step) % len(found)] for step in range(count)]
    return turn, (at + count) % len(found)
