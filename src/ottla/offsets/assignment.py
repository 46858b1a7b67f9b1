"""Assign shards to the workers of a group. Pure functions.

Positions belong to the group, so another worker can continue a shard: the old owner saves and
stops, the new one loads, and passes the loaded value as `expected` to its first save. To replace a
dead worker, assign again without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.offsets.errors import InvalidOffsetArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class _Ordered(Protocol):
    def __lt__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...


Item = TypeVar("Item", bound="_Ordered | int | str | tuple[object, ...]")


def assign_round_robin(items: Iterable[Item], workers: Iterable[str]) -> dict[str, list[Item]]:
    """Assign items in turn: 1 to 6 over w1, w2, w3 gives [1, 4], [2, 5], [3, 6]."""
    names = _names(workers)
    ordered = _ordered(items)
    return {name: ordered[index :: len(names)] for index, name in enumerate(names)}


def assign_range(items: Iterable[Item], workers: Iterable[str]) -> dict[str, list[Item]]:
    """Assign consecutive items: 1 to 7 over w1, w2, w3 gives [1, 2, 3], [4, 5], [6, 7]."""
    names = _names(workers)
    ordered = _ordered(items)
    size, longer = divmod(len(ordered), len(names))
    assignment = {}
    start = 0
    for index, name in enumerate(names):
        end = start + size + (index < longer)
        assignment[name] = ordered[start:end]
        start = end
    return assignment


def assign_sticky(
    items: Iterable[Item], workers: Iterable[str], owned: Mapping[str, Iterable[Item]]
) -> dict[str, list[Item]]:
    """Assign free items to the workers with the fewest; live workers keep what they own.

    No item is taken from a live worker, so a new worker gets only free items. If two workers own
    the same item, the first by name keeps it.
    """
    names = _names(workers)
    free = dict.fromkeys(_ordered(items))
    assignment: dict[str, list[Item]] = {}
    for name in names:
        assignment[name] = [item for item in _ordered(owned.get(name, ())) if item in free]
        for item in assignment[name]:
            del free[item]
    for item in free:
        least = min(names, key=lambda name: (len(assignment[name]), name))
        assignment[least].append(item)
    return {name: _ordered(mine) for name, mine in assignment.items()}


def _names(workers: Iterable[str]) -> list[str]:
    names = sorted(set(workers))
    if not names:
        raise InvalidOffsetArgument("workers is empty; give at least one name")
    return names


def _ordered(items: Iterable[Item]) -> list[Item]:
    return sorted(set(items))
