"""The window of a queue's partition: every offset between start and end by state and holder. Pure.

`columns` makes it as wide as a picture is: a column stands for a stretch of offsets and shows the
most urgent state in it. Every offset is in one column, and the totals are those of the runs.
`why` says in sentences why a window does not move.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from ottla.client.admin.types import ShareWindowRun as Run
from ottla.console import figures
from ottla.console.text import name as shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.admin.types import ShareWindow

ENDING_MS: Final = 5_000
"""A lock with less than this left is about to end."""


class State(IntEnum):
    """What a record is, the most urgent first; the letter stands for it where colour cannot."""

    ENDING = 0
    LAST_TRY = 1
    ACQUIRED = 2
    AGAIN = 3
    AVAILABLE = 4
    UNKNOWN = 5
    ARCHIVED = 6
    ACKNOWLEDGED = 7

    @property
    def glyph(self) -> str:
        return _GLYPHS[self]

    @property
    def word(self) -> str:
        return _WORDS[self]


_GLYPHS: Final = "▓!█a·?x▒"
_WORDS: Final = (
    "acquired, lock ends soon",
    "acquired, last try",
    "acquired",
    "available again",
    "available",
    "delivered, outcome unknown",
    "archived",
    "acknowledged",
)
HELD: Final = frozenset({State.ENDING, State.LAST_TRY, State.ACQUIRED})
SETTLED: Final = frozenset({State.ARCHIVED, State.ACKNOWLEDGED})

# The states of Kafka's share-partitions.
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)


@dataclass(frozen=True, slots=True)
class Column:
    """A stretch of offsets, its most urgent state and its highest delivery count."""

    first: int
    last: int
    state: State
    deliveries: int


def state_of(run: Run, limit: int) -> State:
    """The state of a run as it is drawn."""
    if run.state == ACQUIRED:
        if run.lock_ms < ENDING_MS:
            return State.ENDING
        return State.LAST_TRY if 0 < limit <= run.deliveries else State.ACQUIRED
    if run.state == AVAILABLE:
        return State.AGAIN if run.deliveries else State.AVAILABLE
    if run.state == ACKNOWLEDGED:
        return State.ACKNOWLEDGED
    return State.ARCHIVED if run.state in (ARCHIVING, ARCHIVED) else State.UNKNOWN


def covered(window: ShareWindow) -> list[Run]:
    """Runs that cover start..end, each offset once: gaps are unknown, what lies outside is cut."""
    found: list[Run] = []
    at = window.start
    for run in sorted(window.runs, key=lambda one: one.first):
        first, last = max(run.first, at), min(run.last, window.end - 1)
        if first > last:
            continue
        if first > at:
            found.append(Run(at, first - 1, -1))
        found.append(Run(first, last, run.state, run.deliveries, run.member, run.lock_ms))
        at = last + 1
    if at < window.end:
        found.append(Run(at, window.end - 1, -1))
    return found


def columns(window: ShareWindow, width: int) -> tuple[Column, ...]:
    """At most `width` columns, which cover the window; fewer if it has fewer offsets."""
    size = window.end - window.start
    count = min(width, size)
    if count <= 0:
        return ()
    runs = covered(window)
    drawn: list[Column] = []
    at = 0
    for number in range(count):
        first = window.start + size * number // count
        last = window.start + size * (number + 1) // count - 1
        while runs[at].last < first:
            at += 1
        state, deliveries, index = State.ACKNOWLEDGED, 0, at
        while index < len(runs) and runs[index].first <= last:
            state = min(state, state_of(runs[index], window.limit))
            deliveries = max(deliveries, runs[index].deliveries)
            index += 1
        at = index - 1
        drawn.append(Column(first, last, state, deliveries))
    return tuple(drawn)


def totals(window: ShareWindow) -> Mapping[State, int]:
    """How many offsets are in each state."""
    found: Counter[State] = Counter()
    for run in covered(window):
        found[state_of(run, window.limit)] += run.records
    return dict(found)


def held_by(window: ShareWindow) -> Mapping[str, int]:
    """How many records each member holds; members that hold none are there with 0."""
    found = dict.fromkeys(window.members, 0)
    for run in window.runs:
        if run.state == ACQUIRED and 0 <= run.member < len(window.members):
            found[window.members[run.member]] += run.records
    return found


def is_full(window: ShareWindow) -> bool:
    """Nothing can be delivered: no record is available, and no further one fits in."""
    if not 0 < window.max_locks <= window.end - window.start:
        return False
    found = totals(window)
    return not (found.get(State.AVAILABLE, 0) or found.get(State.AGAIN, 0))


def is_stalled(window: ShareWindow) -> bool:
    """Full, or the start has not moved for twice the lock's time while the log has more."""
    if window.log_end <= window.start:
        return False
    waits = 0 < 2 * window.lock_ms < window.stalled_ms
    return is_full(window) or waits


def why(window: ShareWindow) -> tuple[str, ...]:
    """Why a stalled window does not move, and the ways out; nothing if it is not stalled."""
    if not is_stalled(window):
        return ()
    runs = covered(window)
    if not runs:
        return (_nobody(window),)
    head = runs[0]
    state = state_of(head, window.limit)
    since = figures.duration(window.stalled_ms / 1000) if window.stalled_ms else "a while"
    where = f"offset {head.first:,}"
    said: list[str] = []
    if state in HELD:
        holder = (
            shown(window.members[head.member])
            if 0 <= head.member < len(window.members)
            else "a member"
        )
        left = figures.duration(head.lock_ms / 1000)
        said.append(
            f"{where} is held by {holder}, and the start has not moved for {since}; "
            f"its lock ends in {left}."
        )
        settled = sum(one.records for one in runs if state_of(one, window.limit) in SETTLED)
        if is_full(window):
            said.append(
                f"{settled:,} settled records behind it and those that are held fill the window of "
                f"{window.max_locks:,}."
            )
        said.append(
            f"Ways out: wait; stop {holder}, then its locks go back; "
            "raise share.partition.max.record.locks of the group."
        )
    elif state in (State.AVAILABLE, State.AGAIN):
        said.append(
            f"{where} is available and nobody takes it; the start has not moved for {since}."
        )
        said.append("Ways out: start members of this group.")
    else:
        said.append(f"{where} is {state.word}; the start has not moved for {since}.")
    return tuple(said)


def _nobody(window: ShareWindow) -> str:
    since = figures.duration(window.stalled_ms / 1000)
    return (
        f"The log has {window.log_end - window.start:,} more records and nobody has fetched for "
        f"{since}. Ways out: start members of this group."
    )


def strip(window: ShareWindow, width: int) -> str:
    """The states of the columns as text, for a terminal."""
    return "".join(one.state.glyph for one in columns(window, width))
