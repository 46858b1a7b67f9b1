"""All benchmarks, one after the other, and their tables in one page.

    python -m benchmarks [--quick] [NAME ...]

Writes RESULTS.md and its plots beside this file. A script that fails is named there with its last
line, and the run goes on: one missing peer must not cost the other figures.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ottla import __version__

HERE = Path(__file__).parent
PLOTS = HERE / "plots"
INTRODUCTION = """\
# Results

Written by `make bench`; do not edit. Each row compares two measurements of the same run on the same
machine; a ratio is of medians, its range is over pairs of rounds. *MISSED* marks a target that was
set and is not met: {missed}.

- {machine}
- {when}, Ottla {version}{quick}
"""


def main() -> None:
    arguments = sys.argv[1:]
    flags = [each for each in arguments if each.startswith("-")]
    names = [each for each in arguments if not each.startswith("-")]
    names = names or sorted(path.stem for path in HERE.glob("[a-z]*.py"))
    found: dict[str, list[tuple[str, Any]]] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        for name in names:
            why = _run(name, flags, directory)
            if why is not None:
                failed[name] = why
            found[name] = _found(Path(directory), name)
            # After each: a run that is broken off leaves what it has.
            _write(found, failed, quick="--quick" in flags)
    print(f"written: {HERE / 'RESULTS.md'}")
    sys.exit(1 if failed else 0)


def _run(name: str, flags: list[str], directory: str) -> str | None:
    """The last line of a script that failed."""
    print(f"== {name}", flush=True)
    environment = {**os.environ, "BENCHMARKS_DIR": directory}
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *flags],
        cwd=HERE.parent,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    sys.stderr.write(done.stderr)
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]


def _found(directory: Path, name: str) -> list[tuple[str, Any]]:
    """(kind, content) of what a script left, in the order it left them."""
    paths = sorted(directory.glob(f"{name}.*.json"))
    return [(path.name.split(".")[2], json.loads(path.read_text())) for path in paths]


def _write(found: dict[str, list[tuple[str, Any]]], failed: dict[str, str], quick: bool) -> None:
    tables = [entry for entries in found.values() for kind, entry in entries if kind == "table"]
    missed = [line[0] for table in tables for line in table["lines"][1:] if line[-1] == "MISSED"]
    parts = [
        INTRODUCTION.format(
            missed="; ".join(missed) or "none",
            machine=_machine(),
            when=time.strftime("%Y-%m-%d"),
            version=__version__,
            quick=", quick run: less data, fewer rounds" if quick else "",
        )
    ]
    for name, entries in found.items():
        parts.append(f"## [{name}]({name}.py)\n")
        parts += [_section(kind, content) for kind, content in entries]
        if name in failed:
            parts.append(f"This script ended with an error: `{failed[name]}`\n")
    (HERE / "RESULTS.md").write_text("\n".join(parts))


def _section(kind: str, content: Any) -> str:
    if kind == "skipped":
        return f"Skipped: {content['what']}: {content['why']}\n"
    if kind == "plot":
        return _draw(content)
    heads, *lines = content["lines"]
    rows = [heads, ["---"] * len(heads), *lines]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"**{content['title']}** ({content['versions']})\n\n{table}\n"


def _draw(plot: Any) -> str:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=120)
    for name, points in plot["lines"].items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
    axes.set_yscale("log")
    axes.set_xlabel(plot["x_label"])
    axes.set_ylabel(plot["y_label"])
    axes.set_title(plot["title"])
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"{plot['name']}.png")
    pyplot.close(figure)
    return f"![{plot['title']}](plots/{plot['name']}.png)\n"


def _machine() -> str:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    python = platform.python_version()
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {platform.system()}, Python {python}"
    )


if __name__ == "__main__":
    main()
