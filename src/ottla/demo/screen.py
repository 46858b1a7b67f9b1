"""Show progress: a live screen on a terminal, plain lines elsewhere, and the summary."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ottla.demo.figures import Figures
from ottla.demo.stage import NODES

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from rich.console import RenderableType

    from ottla.demo.checks import Check, Expected

LAST_EVENTS: Final = 7
PLAIN_EVERY_SECONDS: Final = 5.0
BAR_WIDTH: Final = 22
PICTURE_WIDTH: Final = 122
MIB: Final = 1024 * 1024


@dataclass(slots=True)
class Scene:
    """The current state to show."""

    title: str
    expected: Expected
    figures: Figures = field(default_factory=Figures)
    seconds: float = 0.0
    events: list[tuple[float, str]] = field(default_factory=list)
    """What happened when, in seconds since the beginning."""


class Screen(Protocol):
    """Where a scene is shown, again and again."""

    def show(self, scene: Scene) -> None: ...

    def close(self) -> None: ...


class LiveScreen:
    """A live screen on a terminal."""

    def __init__(self) -> None:
        self._live = Live(auto_refresh=False)
        self._live.start()

    def show(self, scene: Scene) -> None:
        self._live.update(draw(scene), refresh=True)

    def close(self) -> None:
        self._live.stop()


class PlainScreen:
    """A line for each event, and now and then one with the figures."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._printed = 0
        self._next = PLAIN_EVERY_SECONDS

    def show(self, scene: Scene) -> None:
        for at, text in scene.events[self._printed :]:
            self._print(at, text)
        self._printed = len(scene.events)
        if scene.seconds >= self._next:
            self._next = scene.seconds + PLAIN_EVERY_SECONDS
            rows = rows_of(scene.figures, scene.expected)
            said = "; ".join(f"{row.name} {row.done:,}/{row.total:,}" for row in rows)
            self._print(scene.seconds, said)

    def _print(self, seconds: float, text: str) -> None:
        self._out.write(f"{seconds:6.1f} s  {text}\n")
        self._out.flush()

    def close(self) -> None:
        """Lines need no end."""


class Row(NamedTuple):
    """One line: progress, total and remarks."""

    name: str
    done: int
    total: int
    text: str


def rows_of(figures: Figures, expected: Expected) -> list[Row]:
    """The parts in the order of the way that an order takes."""
    count = len(expected.values)
    reported = sum(orders for orders, _ in expected.sales.values())
    crashes = figures.crashes
    return [
        Row(
            "orders",
            figures.produced,
            count,
            f"over TLS, synced to disk before the answer; {figures.kills} of {NODES} nodes killed",
        ),
        Row(
            "shipped",
            figures.shipped,
            len(expected.sound),
            f"share group: {crashes['worker']} crashes, {figures.repeated:,} orders redelivered",
        ),
        Row("dead letters", figures.dead, len(expected.poison), "poison, kept with the reason"),
        Row(
            "ledger",
            figures.booked,
            count,
            f"offsets in SQLite: {crashes['ledger']} crashes in a transaction",
        ),
        Row(
            "tier",
            figures.only_in_tier,
            count,
            f"{figures.tier_objects} segments, {figures.tier_bytes / MIB:.1f} MiB;"
            f" {figures.local_bytes / MIB:.1f} MiB left on local disk",
        ),
        Row("table", figures.tabled, count, "Iceberg, written by a worker of the broker"),
        Row("Spark", figures.reported, reported, _spark(figures)),
    ]


def _spark(figures: Figures) -> str:
    if not figures.sales:
        return figures.spark
    return f"{len(figures.sales)} windows by shop, {figures.revenue_cents / 100:,.0f} €"


def draw(scene: Scene) -> RenderableType:
    """The live picture."""
    table = Table.grid(padding=(0, 2))
    for row in rows_of(scene.figures, scene.expected):
        table.add_row(
            Text(row.name, style="bold"),
            ProgressBar(total=max(row.total, 1), completed=row.done, width=BAR_WIDTH),
            Text(f"{row.done:,} / {row.total:,}", justify="right"),
            Text(row.text, style="dim", no_wrap=True, overflow="ellipsis"),
        )
    said = Table.grid(padding=(0, 2))
    for at, text in scene.events[-LAST_EVENTS:]:
        said.add_row(
            Text(f"{at:5.1f} s", style="cyan"), Text(text, no_wrap=True, overflow="ellipsis")
        )
    return Panel(
        Group(table, Text(), said),
        title=scene.title,
        subtitle=f"{scene.seconds:.0f} s",
        box=ROUNDED,
        padding=1,
    )


def draw_summary(checks: list[Check], seconds: float) -> RenderableType:
    """The summary: a line for each check."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", "what", "expected", "found", "read from"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = Text("ok", style="green") if check.holds else Text("FAILED", style="bold red")
        style = "" if check.holds else "red"
        table.add_row(
            mark,
            Text(check.what),
            Text(check.expected, style=style),
            Text(check.found, style=style),
            Text(check.by, style="dim"),
        )
    held = sum(check.holds for check in checks)
    verdict = Text(
        f"{held} of {len(checks)} checks hold, after {seconds:.0f} s",
        style="bold green" if held == len(checks) else "bold red",
    )
    return Group(table, verdict)


def print_summary(checks: list[Check], seconds: float) -> None:
    """Print to stdout; without a terminal there is no limit on the width."""
    console = Console(width=None if sys.stdout.isatty() else PICTURE_WIDTH)
    console.print(draw_summary(checks, seconds))


def save_picture(file: Path, scene: Scene, checks: list[Check]) -> None:
    """The last scene and the summary as SVG."""
    console = Console(record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(draw(scene))
    console.print(draw_summary(checks, scene.seconds))
    console.save_svg(str(file), title="ottla demo")
