"""`/api/v1/series`: the history of a figure, from memory and, what is older than a day, from the
file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.console.app import console_of
from ottla.console.history import COARSE_MS, COARSE_SLOTS
from ottla.console.keeping import recent
from ottla.console.problem import Refused
from ottla.console.query import BadPlace, parse_start
from ottla.console.views import series

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.clock import Now
    from ottla.console.app import Console
    from ottla.console.history import Name
    from ottla.console.missing import Missing
    from ottla.console.views.series import SeriesPage, Span
    from ottla.console.watching import Watched

DEFAULT: Final = "ago:1h"
MAX_STEP: Final = 86_400


async def series_view(request: Request) -> SeriesPage:
    console = console_of(request)
    said = request.query_params
    watched = console.cluster_named(request, said.get("cluster", console.names[0]))
    await watched.fresh()
    history = watched.cluster.history
    if not said.get("name"):
        return series.listed(watched.name, history, said.get("contains", "")[:200])
    name = series.parsed(said["name"])
    now = console.clock.now()
    asked = series.span(now, _from_ms(console, said.get("from") or DEFAULT), _step(request))
    found = await _points(console, watched, name, now, asked)
    if not found and name not in history:
        raise Refused(
            404,
            "There is no series of this name; /api/v1/series?cluster=... lists the names.",
        )
    return series.page(watched.name, name, asked, found)


def _from_ms(console: Console, text: str) -> int:
    try:
        start = parse_start(text, console.now())
    except BadPlace as error:
        raise Refused(400, str(error)) from error
    if start.kind == "oldest":
        return 0
    if start.kind != "time":
        raise Refused(400, "from is time:2026-11-14T10:00:00Z, ago:6h or oldest.")
    return start.time_ms


def _step(request: Request) -> int | None:
    text = request.query_params.get("step", "")
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_STEP:
        raise Refused(400, f"step is a number of seconds from 1 to {MAX_STEP}.")
    return int(text)


async def _points(
    console: Console, watched: Watched, name: Name, now: Now, asked: Span
) -> list[tuple[int, float, float]] | Missing:
    history = watched.cluster.history
    if asked.step_ms < COARSE_MS:
        return series.fine(history, name, now)
    kept = recent(history, name, now, COARSE_SLOTS)
    first = asked.first_ms // COARSE_MS
    begins = kept[0].slot if kept else now.wall_ms // COARSE_MS + 1
    older = []
    if console.keeper is not None and watched.cluster.cluster_id is not None and first < begins:
        older = await asyncio.to_thread(
            console.keeper.file.read, watched.cluster.cluster_id, name, first, begins - 1
        )
    return series.coarse([*older, *kept])
