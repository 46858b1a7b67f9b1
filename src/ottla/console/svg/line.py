"""A line over time, as small as a word; a gap is a gap in the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.svg.markup import element, number, picture

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 80.0
HEIGHT: Final = 16.0


CHART_WIDTH: Final = 720.0
CHART_HEIGHT: Final = 96.0


def chart(values: Sequence[float | None], label: str) -> str:
    """The same as large as a page is wide, with the surface below the line."""
    return _drawn(values, label, CHART_WIDTH, CHART_HEIGHT, "chart", surface=True)


def spark(values: Sequence[float | None], label: str) -> str:
    """The values from left to right, the largest at the top and zero at the bottom."""
    return _drawn(values, label, WIDTH, HEIGHT, "spark", surface=False)


def _drawn(
    values: Sequence[float | None],
    label: str,
    width: float,
    height: float,
    kind: str,
    *,
    surface: bool,
) -> str:
    most = max((one for one in values if one is not None), default=0.0) or 1.0
    step = width / max(1, len(values) - 1)
    parts = []
    run: list[tuple[float, str]] = []
    for index, value in enumerate([*values, None]):
        if value is not None:
            x, y = index * step, height - height * max(0.0, value) / most
            run.append((x, f"{number(x)} {number(y)}"))
        elif run:
            line = "L".join(place for _, place in run if len(run) > 1) or f"{run[0][1]}L{run[0][1]}"
            if surface:
                first, last = number(run[0][0]), number(run[-1][0])
                below = f"M{first} {number(height)}L{line}L{last} {number(height)}Z"
                parts.append(element("path", d=below, class_=f"{kind}-surface"))
            parts.append(element("path", d=f"M{line}", class_=f"{kind}-path"))
            run = []
    return picture(width, height, label, *parts, class_=kind)
