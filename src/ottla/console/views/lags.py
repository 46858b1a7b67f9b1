"""Lag as pages show it: the fields of `Behind` and `Course` in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.console.missing import Missing

if TYPE_CHECKING:
    from ottla.console.lag import Behind, Course, Trend


@dataclass(frozen=True, slots=True)
class LagView:
    """Records and seconds behind; `seconds` is more than that with `at_least`."""

    records: int
    seconds: float | None
    at_least: bool
    from_future: bool
    lost: int
    trend: Trend
    zero_in_s: float | None


def lag_view(behind: Behind | Missing | None, course: Course) -> LagView | Missing | None:
    """None until it is known."""
    if behind is None or isinstance(behind, Missing):
        return behind
    return LagView(
        behind.records,
        behind.seconds,
        behind.at_least,
        behind.from_future,
        behind.lost,
        course.trend,
        course.zero_in,
    )
