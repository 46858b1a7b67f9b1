"""The dead letters of a queue: what was given up, why, and what became of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.console.missing import Missing
from ottla.console.views.frame import PAGE_ROWS, Frame, frame
from ottla.console.views.table import Query, Table, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.console.attention import Attention
    from ottla.console.letters import Entry, Letter
    from ottla.console.look import Look
    from ottla.console.redrive import Progress
    from ottla.console.views.messages import Shown

ROWS: Final = 40
"""Letters on a page: a form takes 50 fields."""
HOUR_MS: Final = 3_600_000
MOST_TEXT: Final = 400
"""Characters of a key or a value in a row."""
NAMED: Final = 5
"""Origins that the summary names."""


@dataclass(frozen=True, slots=True)
class LetterRow:
    """A letter; `place` is `partition@offset` in the topic of letters."""

    place: str
    partition: int
    offset: int
    time_ms: int
    reason: str
    tries: int | None
    origin: str
    """Where it came from, as `topic-partition@offset`; empty if it does not say."""
    origin_topic: str
    """Empty: it does not say, or that topic is gone."""
    origin_partition: int
    origin_offset: int
    is_copy: bool
    count: int
    again: str
    """`redriven` or `dismissed`; empty: nothing was done yet."""
    again_times: int
    again_ms: int | None
    key: str | None
    value: str | None
    """The beginning of what is shown; None: a null."""


@dataclass(frozen=True, slots=True)
class RedriveView:
    """The last redrive that was started here."""

    state: str
    total: int
    done: int
    passed: int
    refused: tuple[tuple[str, str], ...]
    more_refused: int
    error: str


@dataclass(frozen=True, slots=True)
class LettersPage:
    """The letters of a queue."""

    frame: Frame
    queue: str
    topic: str
    """Where they are; empty if the queue has no topic for them."""
    problem: str
    """Why there are none; empty if there are."""
    in_topic: int
    """Records of the topic, those of other queues included."""
    last_hour: int
    by_reason: tuple[tuple[str, int], ...]
    by_origin: tuple[tuple[str, int], ...]
    letters: Table[LetterRow]
    redrive: RedriveView | None


def page(
    look: Look,
    attention: Attention,
    queue: str,
    topic: str | Missing,
    letters: Sequence[Letter],
    entries: Mapping[str, Entry],
    in_topic: int,
    redrive: Progress | None,
    query: Query,
    *,
    problem: str = "",
    reason: str = "",
) -> LettersPage:
    """The page; `reason` leaves only letters of one reason."""
    where = "" if isinstance(topic, Missing) else topic
    if isinstance(topic, Missing):
        problem = problem or topic.reason
    rows = [_row(look, where, one, entries) for one in letters]
    wanted = query.contains.casefold()
    chosen = [
        one
        for one in rows
        if (not reason or one.reason == reason)
        and (not wanted or wanted in f"{one.origin} {one.key} {one.value}".casefold())
    ]
    since = look.now.wall_ms - HOUR_MS
    origins = Counter(
        f"{one.about.origin.topic}-{one.about.origin.partition}"
        for one in letters
        if one.about.origin is not None
    )
    limited = replace(query, rows=ROWS) if query.rows == PAGE_ROWS else query
    return LettersPage(
        frame=frame(look, attention),
        queue=queue,
        topic=where,
        problem=problem,
        in_topic=in_topic,
        last_hour=sum(one.time_ms >= since for one in rows),
        by_reason=tuple(Counter(one.about.reason for one in letters).most_common()),
        by_origin=tuple(origins.most_common(NAMED)),
        letters=table(chosen, limited, "-time_ms", lambda one: one.place),
        redrive=None if redrive is None else _redrive(redrive),
    )


def _row(look: Look, topic: str, letter: Letter, entries: Mapping[str, Entry]) -> LetterRow:
    told, place = letter.about, letter.place
    entry = entries.get(place.named(topic))
    origin = told.origin
    return LetterRow(
        place=f"{place.partition}@{place.offset}",
        partition=place.partition,
        offset=place.offset,
        time_ms=letter.message.timestamp_ms,
        reason=told.reason,
        tries=told.tries,
        origin="" if origin is None else str(origin),
        origin_topic=origin.topic if origin and origin.topic in look.data.topics else "",
        origin_partition=0 if origin is None else origin.partition,
        origin_offset=0 if origin is None else origin.offset,
        is_copy=letter.is_copy,
        count=told.count,
        again="" if entry is None else ("redriven" if entry.to else "dismissed"),
        again_times=0 if entry is None else entry.times,
        again_ms=None if entry is None else entry.at_ms,
        key=_text(letter.message.key),
        value=_text(letter.message.value),
    )


def _text(shown: Shown) -> str | None:
    return None if shown.form == "null" else shown.text[:MOST_TEXT]


def _redrive(progress: Progress) -> RedriveView:
    shown = progress.refused[:20]
    return RedriveView(
        progress.state,
        progress.total,
        progress.done,
        progress.passed,
        tuple((one.letter, one.reason) for one in shown),
        len(progress.refused) - len(shown),
        progress.error,
    )
