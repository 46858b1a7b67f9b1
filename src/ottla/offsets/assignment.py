"""Who reads what: pure assignments of shards to the workers of a group.

Positions are keyed by the group, so a shard that moves goes on where it was: the old owner saves
and lets go, the new one loads, and its first save passes the loaded value as `expected`. A worker
that is dead is simply not among the workers of the next assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class _Ordered(Protocol):
    def __lt__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...


Item = TypeVar("Item", bound="_Ordered | int | str | tuple[object, ...]")


def assign_round_robin(items: Iterable[Item], workers: Iterable[str]) -> dict[str, list[Item]]:
    """In turns: 1..6 over w1, w2, w3 are [1, 4], [2, 5], [3, 6]."""
    names = _names(workers)
    ordered = _ordered(items)
    return {name: ordered[index :: len(names)] for index, name in enumerate(names)}


def assign_range(items: Iterable[Item], workers: Iterable[str]) -> dict[str, list[Item]]:
    """In runs, the first ones longer by one: 1..7 over three are 3, 2 and 2."""
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
    """Living owners keep all they have; the rest goes to the least loaded, ties to the first name.

    Nothing is taken from anybody, so a worker that joins gets what is free. If two workers claim
    an item, the first name keeps it.
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
        raise ValueError("there is no worker to assign anything to")
    return names


def _ordered(items: Iterable[Item]) -> list[Item]:
    return sorted(set(items))
