"""The window of a queue: a strip of states and a strip of delivery counts.

States have a class and, for those that are not settled, a pattern: colour alone never tells them
apart. Each column has a sentence, which a browser shows under the pointer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.svg.markup import element, picture
from ottla.console.window import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.console.views.queue import WindowView
    from ottla.console.window import Column

WIDTH: Final = 960.0
STATES: Final = 28.0
GAP: Final = 4.0
COUNTS: Final = 12.0
HEIGHT: Final = STATES + GAP + COUNTS

_STROKES: Final = {
    State.ENDING: "M0 6L6 0M-1 1L1 -1M5 7L7 5",
    State.LAST_TRY: "M0 0L6 6M0 6L6 0",
    State.AGAIN: "M3 0V6",
    State.UNKNOWN: "M0 3H6",
    State.ARCHIVED: "M0 0L6 6",
}


def class_of(state: State) -> str:
    """The CSS class of a state."""
    return f"window-{state.name.lower().replace('_', '-')}"


def window(view: WindowView, prefix: str) -> str:
    """The picture of a window; `prefix` keeps the ids of two pictures on a page apart."""
    label = (
        f"window of {view.topic}-{view.partition}: offsets {view.start:,} to {view.end:,}, "
        f"{view.in_flight:,} in flight"
    )
    return strips(view.columns, view.limit, label, prefix)


def strips(columns: Sequence[Column], limit: int, label: str, prefix: str) -> str:
    """The two strips; `limit` is the number of deliveries at most."""
    if not columns:
        return picture(WIDTH, HEIGHT, f"{label}; it is empty", class_="window")
    width = WIDTH / len(columns)
    parts = [element("defs", *(_pattern(state, prefix) for state in _STROKES))]
    for index, column in enumerate(columns):
        parts.append(_column(column, limit, index, width, prefix))
    return picture(WIDTH, HEIGHT, label, *parts, class_="window")


def _pattern(state: State, prefix: str) -> str:
    return element(
        "pattern",
        element("path", d=_STROKES[state], class_="window-stroke"),
        id=f"{prefix}-{class_of(state)}",
        width=6.0,
        height=6.0,
        patternUnits="userSpaceOnUse",
    )


def _column(column: Column, limit: int, index: int, width: float, prefix: str) -> str:
    x = index * width
    state = class_of(column.state)
    drawn = [element("rect", x=x, y=0.0, width=width, height=STATES, class_=state)]
    if column.state in _STROKES:
        fill = f"url(#{prefix}-{state})"
        drawn.append(element("rect", x=x, y=0.0, width=width, height=STATES, fill=fill))
    if column.deliveries and limit:
        tall = COUNTS * min(1.0, column.deliveries / limit)
        is_last = column.deliveries >= limit
        drawn.append(
            element(
                "rect",
                x=x,
                y=HEIGHT - tall,
                width=width,
                height=tall,
                class_="window-last" if is_last else "window-deliveries",
            )
        )
    offsets = f"{column.first:,}"
    if column.last > column.first:
        offsets += f" to {column.last:,}"
    said = f"{offsets}: {column.state.word}"
    if column.deliveries:
        said += f", {column.deliveries} of {limit or '?'} deliveries"
    hit = element("rect", x=x, y=0.0, width=width, height=HEIGHT, class_="window-hit")
    return element("g", element("title", text=said), *drawn, hit, data_first=str(column.first))
