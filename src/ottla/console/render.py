"""Templates, and how figures, names and times look in them. `Markup` is made here and in `svg`.

Names and contents of strangers take `name`, `text` or `lines`: made visible (`text.py`), escaped,
and kept apart from the text around them by `<bdi>`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import jinja2
from markupsafe import Markup, escape

from ottla.console import figures, text
from ottla.console.missing import Missing
from ottla.console.svg import graph as svg_graph
from ottla.console.svg import line as svg_line
from ottla.console.svg import tier as svg_tier
from ottla.console.svg import window as svg_window
from ottla.console.views.messages import moment
from ottla.console.window import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.console.views.pipelines import PipelinePage
    from ottla.console.views.queue import Past, WindowView
    from ottla.console.views.tier import TierRow

LIST_TEXT: Final = 400
"""Characters of a value in a row of a list; more do not fit."""


def _bdi(shown: str) -> Markup:
    return Markup("<bdi>{}</bdi>").format(shown)


def name(value: object, most: int = 80) -> Markup:
    """The name of something, on one line."""
    return _bdi(text.name(str(value), most))


def one_line(value: str, most: int = LIST_TEXT) -> Markup:
    """Contents on one line, cut."""
    return _bdi(text.shortened(text.visible(value[: most + 1]), most))


def lines(value: str) -> Markup:
    """Contents in a box of their own."""
    return _bdi(text.visible(value, lines=True))


def figure(form: Callable[[Any], str]) -> Callable[[Any], Markup]:
    """A filter for a figure that may be missing: then its reason is shown."""

    def shown(value: Any) -> Markup:
        if isinstance(value, Missing):
            return Markup('<span class="missing">{}</span>').format(text.visible(value.reason))
        return escape(form(value))

    return shown


def time(value: datetime | int | None) -> Markup:
    """A moment in UTC, to the millisecond."""
    at = moment(value) if isinstance(value, int) else value
    if at is None:
        return Markup("-") if value is None else escape(f"{value} ms")
    at = at.astimezone(UTC)
    shown = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"
    full = at.isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}">{}</time>').format(full, shown)


def spark(values: Sequence[float | None], label: str) -> Markup:
    """A small line; nothing while no value is known."""
    if all(one is None for one in values):
        return Markup("")
    return Markup(svg_line.spark(values, text.name(label)))


def chart(values: Sequence[float | None], label: str) -> Markup:
    """A line as wide as the page; nothing while fewer than two values are known."""
    if sum(one is not None for one in values) < 2:
        return Markup("")
    return Markup(svg_line.chart(values, text.name(label, 200)))


def window(view: WindowView, number: int = 0) -> Markup:
    """The picture of a window; `number` keeps several on a page apart."""
    return Markup(svg_window.window(view, f"w{number}"))


def past_window(past: Past, limit: int) -> Markup:
    """The picture of a window as it was."""
    label = f"the window {figures.duration(past.ago_s)} ago: offsets {past.start:,} to {past.end:,}"
    return Markup(svg_window.strips(past.columns, limit, label, "past"))


def tier_strip(row: TierRow) -> Markup:
    """Where the parts of a log are."""
    return Markup(svg_tier.strip(row))


def graph(page: PipelinePage) -> Markup:
    """What a pipeline reads and writes."""
    return Markup(svg_graph.graph(page.nodes, page.edges))


def legend() -> list[tuple[str, str, str]]:
    """Of each state: its CSS class, the letter that stands for it in tables, and the word."""
    return [(svg_window.class_of(one), one.glyph, one.word) for one in State]


class Renderer:
    """The templates of the console."""

    def __init__(self) -> None:
        self._env = jinja2.Environment(
            loader=jinja2.PackageLoader("ottla.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._env.filters |= {
            "name": name,
            "label": text.name,
            "text": one_line,
            "lines": lines,
            "whole": figure(figures.whole),
            "count": figure(figures.count),
            "size": figure(figures.size),
            "duration": figure(figures.duration),
            "time": time,
        }
        self._env.globals |= {
            "spark": spark,
            "chart": chart,
            "window": window,
            "legend": legend,
            "past_window": past_window,
            "tier_strip": tier_strip,
            "graph": graph,
        }
        self._env.tests["missing"] = lambda value: isinstance(value, Missing)

    def page(self, template: str, context: Mapping[str, object]) -> str:
        return self._env.get_template(template).render(context)
