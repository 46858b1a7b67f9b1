"""The in-flight window: the state of every offset from its start to its end, as runs.

Rules:

- The runs are sorted, disjoint and without holes: they cover start <= offset < end.
- A run is as long as it can be: neighbours of one in-flight batch in one condition are one run. So
  a batch is one run until its records part ways, and costs what its differences cost.
- Runs know the in-flight batch they came in with: a whole one is taken whole, and a suspicious one
  is taken apart.
- The counts (available, complete) and the lock deadlines follow every change; all changes of runs
  go through `_splice`.

Finding an offset is a binary search, a change costs the runs it touches.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.sharing.values import TERMINAL, RecordState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Condition(NamedTuple):
    """The state of each record in a run."""

    state: RecordState
    delivery_count: int = 0
    owner: str | None = None
    deadline_ms: int = 0
    """When the lock ends. Owner and deadline belong to ACQUIRED only."""
    target: RecordState | None = None
    """The state being written; until the write ends the record is neither one nor the other."""
    write_id: int = 0

    @property
    def is_locked(self) -> bool:
        """Held by its owner, who may acknowledge it."""
        return self.state is RecordState.ACQUIRED and self.target is None

    @property
    def is_complete(self) -> bool:
        """Needs no delivery, once a write in flight succeeds."""
        return self.state in TERMINAL or self.target in TERMINAL


ACKNOWLEDGED: Final = Condition(RecordState.ACKNOWLEDGED)
ARCHIVED: Final = Condition(RecordState.ARCHIVED)


class InFlightBatch(NamedTuple):
    """The range of records acquired together."""

    first: int
    last: int


class Run(NamedTuple):
    first: int
    last: int
    condition: Condition
    batch: InFlightBatch

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def within(self, first: int, last: int) -> Run:
        """The part of it in first..last, which overlaps it."""
        if first <= self.first and self.last <= last:
            return self
        return Run(max(self.first, first), min(self.last, last), self.condition, self.batch)


class _Lock:
    """The records whose locks end at one moment: how many, and where to look for them."""

    __slots__ = ("first", "last", "records")

    def __init__(self, first: int, last: int) -> None:
        self.records = 0
        self.first = first
        self.last = last


class Window:
    __slots__ = (
        "_deadlines",
        "_firsts",
        "_locks",
        "_lowest",
        "_runs",
        "available",
        "complete",
        "end",
        "start",
    )

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.available = 0
        self.complete = 0
        self._runs: list[Run] = []
        self._firsts: list[int] = []
        self._lowest = start  # nothing below it is available
        # One entry per millisecond in which locks end: no more than the lock duration has.
        self._locks: dict[int, _Lock] = {}
        self._deadlines: list[int] = []

    @property
    def size(self) -> int:
        return self.end - self.start

    def runs(self, first: int | None = None, last: int | None = None) -> Iterator[Run]:
        """The runs that overlap first..last, uncut. Not to be used across a change."""
        low = 0 if first is None else max(bisect_right(self._firsts, first) - 1, 0)
        for index in range(low, len(self._runs)):
            run = self._runs[index]
            if last is not None and run.first > last:
                return
            yield run

    def available_runs(self, first: int, last: int) -> Iterator[Run]:
        """The available runs within first..last."""
        if self.available:
            for run in self.runs(max(first, self._lowest), last):
                if run.condition.state is RecordState.AVAILABLE and run.last >= first:
                    yield run.within(first, last)

    def lowest_available(self) -> int | None:
        """The first offset that is available."""
        for run in self.available_runs(self._lowest, self.end):
            self._lowest = run.first
            return run.first
        return None

    def change(self, first: int, last: int, change: Callable[[Run], Condition]) -> list[Run]:
        """Puts the records of first..last, a range within the window, in the condition `change`
        gives for each run (cut to the range). Returns the runs as they were, cut."""
        low = bisect_right(self._firsts, first) - 1
        high = bisect_right(self._firsts, last)
        before: list[Run] = []
        after: list[Run] = []
        for run in self._runs[low:high]:
            inside = run.within(first, last)
            if run.first < first:
                after.append(Run(run.first, first - 1, run.condition, run.batch))
            before.append(inside)
            after.append(Run(inside.first, inside.last, change(inside), run.batch))
            if run.last > last:
                after.append(Run(last + 1, run.last, run.condition, run.batch))
        self._splice(low, high, after)
        return before

    def append(self, batch: InFlightBatch, parts: Sequence[tuple[int, int, Condition]]) -> None:
        """Adds an in-flight batch at the end, made of (first, last, condition)."""
        self.end = batch.last + 1
        runs = [Run(first, last, condition, batch) for first, last, condition in parts]
        self._splice(len(self._runs), len(self._runs), runs)

    def advance(self) -> None:
        """Moves the start past the records at the head that have come to their end."""
        done = 0
        for run in self._runs:
            if run.condition.state not in TERMINAL:
                break
            done += 1
        self._drop(done)

    def cut(self, start: int) -> None:
        """Move the start; records below it are dropped."""
        self.end = max(self.end, start)
        gone = 0
        for run in self._runs:
            if run.last >= start:
                break
            gone += 1
        self._drop(gone)
        if self._runs and self._firsts[0] < start:
            head = self._runs[0]
            self._splice(0, 1, [head.within(start, head.last)])
        self.start = start

    def next_deadline(self) -> int | None:
        while self._deadlines:
            deadline = self._deadlines[0]
            if self._locks[deadline].records:
                return deadline
            heapq.heappop(self._deadlines)
            del self._locks[deadline]
        return None

    def locked_until(self, deadline_ms: int) -> list[Run]:
        """The runs whose locks end at a moment that `next_deadline` named."""
        lock = self._locks[deadline_ms]
        return [
            run
            for run in self.runs(lock.first, lock.last)
            if run.condition.is_locked and run.condition.deadline_ms == deadline_ms
        ]

    def _drop(self, count: int) -> None:
        if count:
            self.start = self._runs[count - 1].last + 1
            self._splice(0, count, [])

    def _splice(self, low: int, high: int, runs: list[Run]) -> None:
        """Replace the runs low:high, and merge equal neighbours."""
        before = self._runs
        if low > 0 and runs and _continues(before[low - 1], runs[0]):
            low -= 1
            runs = [before[low], *runs]
        if runs and high < len(before) and _continues(runs[-1], before[high]):
            runs = [*runs, before[high]]
            high += 1
        if len(runs) > 1:
            runs = _joined(runs)
        for run in before[low:high]:
            self._count(run, -run.size)
        for run in runs:
            self._count(run, run.size)
        before[low:high] = runs
        self._firsts[low:high] = [run.first for run in runs]

    def _count(self, run: Run, records: int) -> None:
        condition = run.condition
        if condition.state is RecordState.AVAILABLE:
            self.available += records
            self._lowest = min(self._lowest, run.first)
        elif condition.is_complete:
            self.complete += records
        elif condition.target is None:
            lock = self._locks.get(condition.deadline_ms)
            if lock is None:
                lock = self._locks[condition.deadline_ms] = _Lock(run.first, run.last)
                heapq.heappush(self._deadlines, condition.deadline_ms)
            lock.records += records
            lock.first = min(lock.first, run.first)
            lock.last = max(lock.last, run.last)


def _continues(before: Run, after: Run) -> bool:
    """Whether two neighbours are one run."""
    return before.batch == after.batch and before.condition == after.condition


def _joined(runs: Sequence[Run]) -> list[Run]:
    joined = [runs[0]]
    for run in runs[1:]:
        last = joined[-1]
        if _continues(last, run):
            joined[-1] = Run(last.first, run.last, run.condition, run.batch)
        else:
            joined.append(run)
    return joined
