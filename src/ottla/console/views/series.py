"""Series of the history as points: steps of the wall clock, gaps as gaps. Pure.

A series is named by its parts with slashes between them, each as in URLs:
`topic/orders/records_per_s`, `group/billing/orders/lag_s`, `flow/orders/valid/rows_per_s`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console.history import COARSE_MS, FINE_MS, FINE_SLOTS
from ottla.console.missing import Known, Missing
from ottla.console.slugs import slug, unslug
from ottla.console.views.frame import time_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from ottla.clock import Now
    from ottla.console.history import History, Name
    from ottla.console.history_file import Point

MOST_POINTS: Final = 2_000
"""In one answer: a longer time has larger steps."""
MOST_NAMES: Final = 1_000
KEPT_MS: Final = 14 * 86_400_000
"""Two weeks: nothing is older."""
FINE_FOR_MS: Final = FINE_MS * (FINE_SLOTS - 1)
"""For so long steps of 10 s are kept; before, those of 2 min."""


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """A step that begins `at`; a gap has no value. `most` is the largest value in it."""

    at: datetime
    value: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class SeriesPage:
    """The points of one series; without a name the names of those that there are."""

    cluster: str
    name: str
    step_s: float | None
    points: Known[tuple[SeriesPoint, ...]]
    names: tuple[str, ...]
    more_names: int
    """Names beyond those listed."""


@dataclass(frozen=True, slots=True)
class Span:
    """What is asked for, by the wall clock: both ends are at borders of steps."""

    first_ms: int
    last_ms: int
    step_ms: int


def written(name: Name) -> str:
    return "/".join(slug(part) for part in name)


def parsed(text: str) -> Name:
    """The parts of a name; raises `BadSlug`."""
    return tuple(unslug(part) for part in text.split("/"))


def span(now: Now, from_ms: int, step_s: int | None) -> Span:
    """Steps of 10 s within the last hour, else of 2 min; larger where it would be too many."""
    first = min(max(0, now.wall_ms - KEPT_MS, from_ms), now.wall_ms)
    least = FINE_MS if now.wall_ms - first <= FINE_FOR_MS else COARSE_MS
    step = max(least, (step_s or 0) * 1000)
    step = max(step, (now.wall_ms - first) // (MOST_POINTS - 2))
    step = -(-step // least) * least
    return Span(first // step * step, now.wall_ms // step * step, step)


def listed(cluster: str, history: History, contains: str) -> SeriesPage:
    """The names that contain the text."""
    wanted = contains.casefold()
    names = sorted(text for one in history.names() if wanted in (text := written(one)).casefold())
    more = max(0, len(names) - MOST_NAMES)
    return SeriesPage(cluster, "", None, (), tuple(names[:MOST_NAMES]), more)


def page(
    cluster: str,
    name: Name,
    asked: Span,
    found: Iterable[tuple[int, float, float]] | Missing,
) -> SeriesPage:
    """`found` are wall times with the mean and the maximum of what was sampled then."""
    if isinstance(found, Missing):
        return SeriesPage(cluster, written(name), asked.step_ms / 1000, found, (), 0)
    steps: dict[int, tuple[float, int, float]] = {}
    for at, mean, most in found:
        step = at // asked.step_ms * asked.step_ms
        if asked.first_ms <= step <= asked.last_ms:
            total, count, largest = steps.get(step, (0.0, 0, most))
            steps[step] = total + mean, count + 1, max(largest, most)
    points = tuple(
        SeriesPoint(time_of(at), known[0] / known[1], known[2])
        if (known := steps.get(at)) is not None
        else SeriesPoint(time_of(at), None, None)
        for at in range(asked.first_ms, asked.last_ms + 1, asked.step_ms)
    )
    return SeriesPage(cluster, written(name), asked.step_ms / 1000, points, (), 0)


def fine(history: History, name: Name, now: Now) -> list[tuple[int, float, float]] | Missing:
    """The last hour in steps of 10 s, by wall time."""
    found = history.fine(name, now.ms)
    if isinstance(found, Missing):
        return found
    last = now.ms // FINE_MS
    shift = now.wall_ms - now.ms
    return [
        (shift + (last - len(found) + 1 + index) * FINE_MS, value, value)
        for index, value in enumerate(found)
        if value is not None
    ]


def coarse(points: Sequence[Point]) -> list[tuple[int, float, float]]:
    """Steps of 2 min, by wall time."""
    return [(one.slot * COARSE_MS, one.mean, one.most) for one in points]
