"""A graph from left to right: flows are boxes, topics rounded, tables have a double line. Pure.

A node stands one column right of the last one that leads to it. Cycles, which only records of
strangers have, are cut: after as many rounds as there are nodes nothing moves any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.svg.markup import element, number
from ottla.console.text import name as shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.console.views.pipelines import GraphEdge, GraphNode

WIDE: Final = 150
HIGH: Final = 32
ACROSS: Final = 64
DOWN: Final = 20
EDGE: Final = 6
"""Around the picture: lines are not cut at its border."""
LABEL: Final = 20
"""Characters of a name that fit a box."""
MOST_NODES: Final = 100
"""More cannot be read; the list below has all."""
WORD: Final = 10


def columns(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The column of each node."""
    found = [0] * count
    for _ in range(count):
        moved = False
        for source, target in edges:
            at = found[source] + 1
            if source != target and found[target] < at < count:
                found[target], moved = at, True
        if not moved:
            break
    return found


def graph(nodes: Sequence[GraphNode], edges: Sequence[GraphEdge]) -> str:
    """The picture; empty if there is nothing to draw, or too much."""
    if not nodes or len(nodes) > MOST_NODES:
        return ""
    column = columns(len(nodes), [(one.source, one.target) for one in edges])
    filled: dict[int, int] = {}
    places = []
    for at in column:
        row = filled[at] = filled.get(at, -1) + 1
        places.append((EDGE + at * (WIDE + ACROSS), EDGE + row * (HIGH + DOWN)))
    wide = 2 * EDGE + max(column) * (WIDE + ACROSS) + WIDE
    high = 2 * EDGE + max(filled.values()) * (HIGH + DOWN) + HIGH
    parts = [_line(places[one.source], places[one.target], one.word) for one in edges]
    parts += [_box(node, *place) for node, place in zip(nodes, places, strict=True)]
    count = sum(one.kind == "flow" for one in nodes)
    return element(
        "svg",
        *parts,
        class_="graph",
        width=wide,
        height=high,
        viewBox=f"0 0 {number(wide)} {number(high)}",
        role="img",
        aria_label=f"graph of {count} flows; the list below has every edge",
    )


def _box(node: GraphNode, x: float, y: float) -> str:
    is_bad = node.state in ("failed", "silent")
    style = f"graph-node graph-{node.kind}" + (" graph-bad" if is_bad else "")
    round_by = 4 if node.kind == "flow" else HIGH / 2
    parts = [_rect(style, x, y, WIDE, HIGH, round_by)]
    if node.kind == "table":
        parts.append(_rect(style, x + 3, y + 3, WIDE - 6, HIGH - 6, round_by - 3))
    words = shown(node.name, LABEL) + (f" ({node.state})" if is_bad else "")
    label = element("text", text=words, class_="graph-label", x=x + WIDE / 2, y=y + HIGH / 2 + 4)
    title = element("title", text=f"{node.kind} {shown(node.name)}")
    return element("g", title, *parts, label)


def _rect(style: str, x: float, y: float, width: float, height: float, rx: float) -> str:
    return element("rect", class_=style, x=x, y=y, width=width, height=height, rx=rx)


def _line(start: tuple[float, float], end: tuple[float, float], word: str) -> str:
    x, y = start[0] + WIDE, start[1] + HIGH / 2
    to_x, to_y = end[0], end[1] + HIGH / 2
    middle = (x + to_x) / 2
    way = (
        f"M{number(x)} {number(y)}C{number(middle)} {number(y)} {number(middle)} {number(to_y)} "
        f"{number(to_x)} {number(to_y)}"
    )
    head = (
        f"M{number(to_x - 7)} {number(to_y - 4)}L{number(to_x)} {number(to_y)}"
        f"L{number(to_x - 7)} {number(to_y + 4)}"
    )
    style = "graph-line graph-reject" if word == "reject" else "graph-line"
    parts = [element("path", class_=style, d=way), element("path", class_=style, d=head)]
    if word:
        above = (y + to_y) / 2 - 5
        label = element("text", text=shown(word, WORD), class_="graph-word", x=middle, y=above)
        parts.append(label)
    return element("g", *parts)
