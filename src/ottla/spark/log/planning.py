"""Which task reads which offsets: a pure function of the ranges and three numbers.

Rules:

- Ranges are split first: into pieces of at most `maxRecordsPerPartition`, then until there are
  about `minPartitions`, large ranges into more pieces than small ones; as Spark's Kafka source.
- Pieces are then packed into tasks of up to `taskTargetRecords`, first fit: a task costs more than
  a few thousand records. Packing never goes below the number of pieces that the options ask for.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Range(NamedTuple):
    """Offsets from `first` up to `end`, in the topic with this id if it is known."""

    topic: str
    topic_id: bytes | None
    partition: int
    first: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; some may have no record."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class Split:
    """How to split ranges and pack the pieces; None: no limit."""

    min_partitions: int | None = None
    max_records: int | None = None
    task_target: int = 200_000
    max_tasks: int | None = None


def plan(ranges: Iterable[Range], split: Split) -> list[tuple[Range, ...]]:
    """The ranges of each task."""
    pieces = [one for one in ranges if one.size > 0]
    if split.max_records is not None:
        pieces = [
            piece for one in pieces for piece in _divided(one, -(-one.size // split.max_records))
        ]
    least = split.min_partitions or 0
    if len(pieces) < least:
        pieces = _split(pieces, least)
    return [tuple(_joined(task)) for task in _packed(pieces, split)]


def _split(ranges: Sequence[Range], parts: int) -> list[Range]:
    total = sum(one.size for one in ranges)
    whole = [one for one in ranges if _share(one.size, total, parts) == 1]
    left = total - sum(one.size for one in whole)
    parts_left = max(parts - len(whole), 1)
    small = set(whole)
    return [
        piece
        for one in ranges
        for piece in ([one] if one in small else _divided(one, _share(one.size, left, parts_left)))
    ]


def _share(size: int, total: int, parts: int) -> int:
    # Halves go up, as in Java's rounding.
    return max(int(size / total * parts + 0.5), 1)


def _divided(one: Range, parts: int) -> list[Range]:
    pieces = []
    first = one.first
    for part in range(parts):
        size = (one.end - first) // (parts - part)
        if size:
            pieces.append(one._replace(first=first, end=first + size))
        first += size
    return pieces


def _packed(pieces: Sequence[Range], split: Split) -> list[list[Range]]:
    room = min(split.task_target, split.max_records or split.task_target)
    tasks = _first_fit(pieces, room)
    least = min(split.min_partitions or 0, len(pieces))
    if split.max_records is not None:
        return tasks if len(tasks) >= least else [[piece] for piece in pieces]
    if len(tasks) < least:
        return _spread(pieces, least)
    if split.max_tasks is not None and len(tasks) > max(split.max_tasks, least):
        return _spread(pieces, max(split.max_tasks, least))
    return tasks


def _first_fit(pieces: Sequence[Range], room: int) -> list[list[Range]]:
    tasks: list[list[Range]] = []
    open_ones: list[tuple[int, int]] = []  # task, room left
    for piece in pieces:
        for at, (task, left) in enumerate(open_ones):
            if piece.size <= left:
                tasks[task].append(piece)
                open_ones[at] = task, left - piece.size
                if left == piece.size:
                    del open_ones[at]
                break
        else:
            if piece.size < room:
                open_ones.append((len(tasks), room - piece.size))
            tasks.append([piece])
    return tasks


def _spread(pieces: Sequence[Range], count: int) -> list[list[Range]]:
    """Distribute pieces to tasks of about the same size, largest first."""
    tasks: list[list[Range]] = [[] for _ in range(count)]
    loads = [(0, task) for task in range(count)]
    for piece in sorted(pieces, key=lambda one: -one.size):
        load, task = heapq.heappop(loads)
        tasks[task].append(piece)
        heapq.heappush(loads, (load + piece.size, task))
    return [sorted(task) for task in tasks if task]


def _joined(task: Iterable[Range]) -> list[Range]:
    """Merge adjacent ranges, so that each is read in one go."""
    joined: list[Range] = []
    for one in task:
        last = joined[-1] if joined else None
        if last is not None and last.end == one.first and last[:3] == one[:3]:
            joined[-1] = last._replace(end=one.end)
        else:
            joined.append(one)
    return joined
