"""A line over time, as small as a word; a gap is a gap in the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.svg.markup import element, number, picture

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 80.0
HEIGHT: Final = 16.0


def spark(values: Sequence[float | None], label: str) -> str:
    """The values from left to right, the largest at the top and zero at the bottom."""
    most = max((one for one in values if one is not None), default=0.0) or 1.0
    step = WIDTH / max(1, len(values) - 1)
    parts = []
    run: list[str] = []
    for index, value in enumerate([*values, None]):
        if value is not None:
            y = HEIGHT - HEIGHT * max(0.0, value) / most
            run.append(f"{number(index * step)} {number(y)}")
        elif run:
            if len(run) == 1:  # a single point has no line
                run.append(run[0])
            parts.append(element("path", d="M" + "L".join(run), class_="spark-path"))
            run = []
    return picture(WIDTH, HEIGHT, label, *parts, class_="spark")
