"""Measuring fairly: peers take turns in one run, a figure is a median with its range.

Every benchmark prints a table of `Row`s. A row compares two measurements made in the same run, so
that a busy machine slows both; it passes when its ratio reaches the target that was set for it.

`python -m benchmarks` runs all scripts and gathers what they print into RESULTS.md: it names a
directory in BENCHMARKS_DIR, and every table, plot and skipped row is left there as JSON.

A script of several parts runs each through `part`: one that fails costs its own rows only, and
`--only=TEXT` (may be repeated) runs those whose name has that text. With `--help` a script prints
its docstring when it imports this module, and measures nothing.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUNDS = 7
ONLY = [each.removeprefix("--only=") for each in sys.argv if each.startswith("--only=")]


def _help_if_asked() -> None:
    main = sys.modules["__main__"]
    name = "" if main.__spec__ is None else main.__spec__.name
    is_script = name.startswith("benchmarks.") and not name.endswith("__main__")
    if is_script and {"-h", "--help"} & set(sys.argv[1:]):
        print((main.__doc__ or "").strip())
        sys.exit()


_help_if_asked()


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, over several rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Row:
    what: str
    ours: str
    peer: str
    ratio: float
    spread: tuple[float, float]
    target: float | None  # None: nobody has set one
    at_most: bool = False

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        reached = self.ratio <= self.target if self.at_most else self.ratio >= self.target
        return "ok" if reached else "MISSED"


@dataclass(frozen=True)
class Plot:
    """Lines of points, both axes logarithmic: (x as it is written, y)."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: dict[str, list[tuple[str, float]]]


def take_turns(
    *candidates: Callable[[], object], calls: int = 1, rounds: int = ROUNDS
) -> list[Timing]:
    """Time each candidate `rounds` times, in turns, `calls` calls at a time."""
    seconds: list[list[float]] = [[] for _ in candidates]
    for candidate in candidates:
        candidate()  # compiles, imports and fills caches
    for _ in range(rounds):
        for index, candidate in enumerate(candidates):
            gc.collect()
            start = time.perf_counter()
            for _ in range(calls):
                candidate()
            seconds[index].append((time.perf_counter() - start) / calls)
    return [Timing(tuple(values)) for values in seconds]


def faster(
    what: str, ours: Timing, peer: Timing, target: float | None, show: Callable[[Timing], str]
) -> Row:
    """A row that says how many times faster we are; the range is over pairs of rounds."""
    ratios = [theirs / own for own, theirs in zip(ours.seconds, peer.seconds, strict=True)]
    return Row(
        what,
        show(ours),
        show(peer),
        peer.median / ours.median,
        (min(ratios), max(ratios)),
        target,
    )


def micros(timing: Timing) -> str:
    return f"{timing.median * 1e6:.1f} us"


def rate(records: int) -> Callable[[Timing], str]:
    return lambda timing: f"{records / timing.median / 1e6:.2f} M rec/s"


def wanted(*parts: str) -> bool:
    """Whether one of these parts was asked for."""
    return not ONLY or any(text in what for text in ONLY for what in parts)


def part(what: str, measure: Callable[[], Sequence[Row]]) -> list[Row]:
    """The rows of one part of a script; none if it fails, or was not asked for."""
    if not wanted(what):
        return []
    try:
        return list(measure())
    except Exception as error:  # noqa: BLE001  # whatever it is, the other parts still count
        traceback.print_exc()
        skipped(what, str(error).strip().partition("\n")[0] or type(error).__name__)
        return []


def until_clear(
    one_round: Callable[[int], None], rows: Callable[[], list[Row]], least: int, most: int
) -> list[Row]:
    """Rows of as many rounds as it takes until no range holds both more and less than its claim."""
    for turn in range(most):
        one_round(turn)
        if turn + 1 >= least and not any(map(_is_open, rows())):
            break
    return rows()


def _is_open(row: Row) -> bool:
    """Without a target the claim is which of the two is better."""
    least, most = row.spread
    return least < (1.0 if row.target is None else row.target) < most


def skipped(what: str, why: str) -> None:
    """Say that a part of a benchmark was not run, and why."""
    print(f"skipped: {what}: {why}", flush=True)
    _leave("skipped", {"what": what, "why": why})


def plotted(plot: Plot) -> None:
    """Print the points of a plot; RESULTS.md shows it drawn."""
    print(f"\n{plot.title} ({plot.y_label} by {plot.x_label})")
    for name, points in plot.lines.items():
        print(f"  {name}: " + ", ".join(f"{x}: {y:.4g}" for x, y in points))
    sys.stdout.flush()
    _leave("plot", asdict(plot))


def _leave(kind: str, content: object) -> None:
    directory = os.environ.get("BENCHMARKS_DIR")
    if directory:
        script = Path(sys.argv[0]).stem
        path = Path(directory) / f"{script}.{time.time_ns()}.{kind}.json"
        path.write_text(json.dumps(content))


def report(title: str, rows: Sequence[Row], packages: Sequence[str]) -> None:
    """Print the table, and what it was measured on."""
    table = [("what", "ours", "peer", "ratio", "range", "target", "")]
    for row in rows:
        bound = "at most" if row.at_most else "at least"
        table.append(
            (
                row.what,
                row.ours,
                row.peer,
                f"{row.ratio:.2f}x",
                f"{row.spread[0]:.2f}-{row.spread[1]:.2f}",
                "" if row.target is None else f"{bound} {row.target:g}x",
                row.verdict,
            )
        )
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    print(f"\n{title}")
    for line in table:
        print("  " + "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)))
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    print(f"  Python {platform.python_version()}, {os.cpu_count()} cores; {versions}")
    sys.stdout.flush()
    _leave("table", {"title": title, "versions": versions, "lines": table})
