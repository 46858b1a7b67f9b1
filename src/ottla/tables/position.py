"""The position of a table: offsets as JSON, holes, and what a failed commit means. Pure.

The position is in the table and moves with its rows, so nobody else decides what has been taken.
After a commit that failed, or was never answered, the table is loaded again, and `settle` decides:

    what the table says                                   verdict
    my commit is its last one, or a snapshot has it       DONE
    another topic id                                      TOPIC_REPLACED
    its position is behind its own, or behind my start    ROLLED_BACK
    its position is my start                              AGAIN, on the new parent
    its position is beyond my start                       TAKEN by another worker
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.tables.errors import TableError
from ottla.tables.format import META_COLUMNS, Commit, Hole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.tables.format import DataFile, Offsets, TableState

DROPPED: Final = "ottla.dropped"
"""The property with offsets below which the table's retention may have removed rows."""


class Verdict(Enum):
    """What became of a commit whose fate was unknown."""

    DONE = "done"
    AGAIN = "again"
    TAKEN = "taken"
    ROLLED_BACK = "RolledBack"
    TOPIC_REPLACED = "TopicReplaced"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a table is paused: a name for programs, and a sentence."""

    name: str
    sentence: str


def dump_offsets(offsets: Offsets) -> str:
    """Compact JSON, partitions in numeric order."""
    return json.dumps({str(one): offsets[one] for one in sorted(offsets)}, separators=(",", ":"))


def dropped_below(files: Iterable[DataFile], before: Offsets) -> dict[int, int]:
    """The offsets below which rows may be gone once these files have left the table."""
    found = dict(before)
    for file in files:
        if file.partitions is None or file.offsets is None:
            continue  # rows of others, which have no offsets
        least, greatest = file.partitions
        for number in range(least, greatest + 1):
            found[number] = max(found.get(number, 0), file.offsets[1] + 1)
    return found


def load_offsets(text: str) -> dict[int, int]:
    """The offsets of such a text; `TableError` if it is not one."""
    try:
        found = {int(number): offset for number, offset in json.loads(text).items()}
    except (ValueError, AttributeError, RecursionError):
        raise _no_offsets(text) from None
    for number, offset in found.items():
        if number < 0 or type(offset) is not int or offset < 0:
            raise _no_offsets(text)
    return found


def _no_offsets(text: str) -> TableError:
    return TableError(f'expected offsets like {{"0":1200}}, got {text[:200]!r}')


def dump_holes(holes: Iterable[Hole]) -> str:
    """Compact JSON: partition, start, end, reason of each."""
    return json.dumps(
        [[one.partition, one.start, one.end, one.reason] for one in holes], separators=(",", ":")
    )


def load_holes(text: str) -> tuple[Hole, ...]:
    """The holes of such a text; `TableError` if it is not one."""
    try:
        return tuple(
            Hole(int(partition), int(start), int(end), str(reason))
            for partition, start, end, reason in json.loads(text)
        )
    except (ValueError, TypeError, RecursionError):
        raise TableError(f"expected holes like [[0,10,20,'deleted']], got {text[:200]!r}") from None


def trouble(
    state: TableState, topic_id: str, needed: Sequence[str] = META_COLUMNS
) -> Trouble | None:
    """What keeps the worker from taking records into this table, None if nothing does."""
    if state.topic_id != topic_id:
        return replaced(state, topic_id)
    if is_rolled_back(state):
        return Trouble(
            "RolledBack",
            f"table {state.table} was rolled back: its position is {dump_offsets(state.next)}, "
            f"its newest snapshot ends at {dump_offsets(state.line_next or {})}; "
            "take the rows again with ottla table resume --replay, or go on without, with --accept",
        )
    if state.has_deletes:
        return Trouble(
            "ForeignDeletes",
            f"table {state.table} has delete files, which readers of plain files would not see; "
            "have the engine that wrote them rewrite these data files",
        )
    if state.partition is None:
        return Trouble(
            "PartitionChanged",
            f"table {state.table} was given a partition spec that the worker cannot fill; "
            "set one of day, hour or month of _timestamp, or none",
        )
    if state.renamed:
        return Trouble("ColumnsChanged", renamed_sentence(state.table, state.renamed))
    missing = [one for one in needed if one not in state.columns.names]
    if missing:
        return Trouble(
            "ColumnsChanged",
            f"table {state.table} has lost its columns {', '.join(missing)}; "
            "add or rename them back",
        )
    return None


def replaced(state: TableState, topic_id: str) -> Trouble | None:
    """The trouble of a table, or of dead letters, that belongs to another topic id."""
    if state.topic_id == topic_id:
        return None
    made_by = f"belongs to topic id {state.topic_id}" if state.topic_id else "is not a topic's"
    return Trouble(
        "TopicReplaced",
        f"table {state.table} {made_by}, and topic {state.topic or '?'} is {topic_id} now; "
        f"set the table aside with ottla table retire {state.topic or 'TOPIC'}, or set "
        "ottla.table.name to another name",
    )


def renamed_sentence(table: str, renamed: Sequence[tuple[str, str]]) -> str:
    """What to do about columns whose files have other names."""
    told = ", ".join(f"{old} to {new}" for old, new in renamed)
    return (
        f"columns of table {table} were renamed ({told}), and its files, which are read by name, "
        "have the old names; rename them back"
    )


def is_rolled_back(state: TableState) -> bool:
    """Whether `main` is at a snapshot that has fewer rows than the position says."""
    line = state.line_next
    return line is not None and any(
        line.get(number, state.first.get(number, offset)) < offset
        for number, offset in state.next.items()
    )


def settle(state: TableState, mine: Commit, topic_id: str) -> Verdict:
    """What became of my commit, by what the table says now."""
    if mine.id == state.commit or mine.id in state.commits:
        return Verdict.DONE
    if state.topic_id != topic_id:
        return Verdict.TOPIC_REPLACED
    if is_rolled_back(state) or is_behind(state.next, mine.start):
        return Verdict.ROLLED_BACK
    return Verdict.AGAIN if dict(state.next) == dict(mine.start) else Verdict.TAKEN


def resumption(state: TableState, commit: str, *, replay: bool) -> Commit:
    """How a table goes on that was rolled back.

    With `replay` at the end of its rows, so that they are taken again; else where it was, and the
    rows that are gone are a hole.
    """
    line = state.line_next or {}
    ends = {one: line.get(one, state.first.get(one, at)) for one, at in state.next.items()}
    if replay:
        return Commit(commit, state.next, ends, state.first, state.holes, ())
    gone = tuple(
        Hole(one, ends[one], at, "rolled back")
        for one, at in sorted(state.next.items())
        if ends[one] < at
    )
    return Commit(commit, state.next, state.next, state.first, state.holes + gone, ())


def is_behind(one: Offsets, other: Offsets) -> bool:
    """Whether a partition of `other` is further than in `one`."""
    return any(one.get(number, -1) < offset for number, offset in other.items())
