"""All benchmarks, one after the other, and their tables in one page.

    python -m benchmarks [--quick] [--only=TEXT] [--into=DIRECTORY] [NAME ...]

Writes RESULTS.md and its plots beside this file, and the figures of README.md. A script that fails,
or takes longer than LIMIT_SECONDS, is named there with its last line, and the run goes on: one
missing peer must not cost the other figures. The sections of scripts that were not run stay as they
are, each with its date: scripts can be run one at a time, each in the size that there is time for.
What they find is kept in a temporary directory, or with `--into` in one that stays. Flags go to the
scripts as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ottla import __version__
from scripts.docs_figures import main as write_figures

HERE: Final = Path(__file__).parent
PLOTS: Final = HERE / "plots"
LIMIT_SECONDS: Final = 1800
INTRODUCTION: Final = """\
# Results

Written by `make bench`; do not edit. Each row compares two measurements of the same run on the same
machine; a ratio is of medians, its range is over pairs of rounds. Sections that name no machine ran
on 2 cores (AMD EPYC), 24 GiB, Linux, Python 3.11.7.

Missed targets: {missed}
"""
EXAMPLES: Final = """\
Each script may take 30 minutes; RESULTS.md says how long each took. A missing peer
(Apache Kafka needs Java, SeaStreamer needs cargo, Redis and S3 their servers) is skipped with a
reason. Headline figures need full runs on a quiet machine.

examples:
  python -m benchmarks                            all of them
  python -m benchmarks --quick broker client      two of them, with less data
  python -m benchmarks.spark --only=exactly       one script alone; writes no page
  python -m benchmarks.spark --help               what a script measures, and its options
  python -m benchmarks.compare /tmp/before .      two source trees, processor time per record
"""
HEADING: Final = re.compile(r"^## \[(\w+)\]\(\w+\.py\)$", re.MULTILINE)
MISSED_ROW: Final = re.compile(
    r"^\| (.+?) \| .+? \| .+? \| (.+?) \| .+? \| (.+?) \| MISSED \|$", re.MULTILINE
)
QUICK_NOTE: Final = "A quick run: less data, fewer rounds.\n"


def main() -> None:
    names, flags = _arguments(sys.argv[1:])
    into = [each.removeprefix("--into=") for each in flags if each.startswith("--into=")]
    failed = False
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: the script goes, too
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as temporary:
        directory = Path(into[-1] if into else temporary).absolute()
        directory.mkdir(exist_ok=True)
        for name in names:
            for old in directory.glob(f"{name}.*.json"):
                old.unlink()
            began = time.monotonic()
            why = _run(name, flags, directory)
            failed = failed or why is not None
            minutes = round((time.monotonic() - began) / 60, 1)
            run = {"why": why, "quick": "--quick" in flags, "minutes": minutes}
            (directory / f"{name}.run.json").write_text(json.dumps(run))
            # After each: a run that is broken off leaves what it has.
            page = HERE / "RESULTS.md"
            page.write_text(results_page(directory, page.read_text()))
            write_figures()
    print(f"written: {HERE / 'RESULTS.md'}")
    sys.exit(1 if failed else 0)


def _arguments(given: list[str]) -> tuple[list[str], list[str]]:
    """Names of scripts, all unless some are given, and the flags for them."""
    known = sorted(path.stem for path in HERE.glob("[a-z]*.py"))
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description="Run benchmarks, and write RESULTS.md, its plots and the figures of README.md.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(known)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="use less data and fewer rounds")
    parser.add_argument(
        "--only", metavar="TEXT", help="run only measurements with this in their name"
    )
    parser.add_argument(
        "--into", metavar="DIRECTORY", help="keep the raw results in this directory"
    )
    found, others = parser.parse_known_args(given)
    unknown = sorted(set(found.names) - set(known))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; choose from {', '.join(known)}")
    flags = [*(["--quick"] if found.quick else []), *others]
    flags += [f"--only={found.only}"] if found.only else []
    flags += [f"--into={found.into}"] if found.into else []
    return found.names or known, flags


def _run(name: str, flags: list[str], directory: Path) -> str | None:
    """The last line of a script that failed."""
    print(f"== {name}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{name}", *flags],
            cwd=HERE.parent,
            env={**os.environ, "BENCHMARKS_DIR": str(directory)},
            stderr=stderr,
            start_new_session=True,
        )
        why = None
        try:
            process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            why = f"it was stopped after {LIMIT_SECONDS} s"
        finally:
            # Its brokers and JVMs are of its group.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        stderr.seek(0)
        said = stderr.read()
    print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)
    if why is None and process.returncode == 0:
        return None
    sys.stderr.write(said)
    return why or (said.strip().splitlines() or [f"status {process.returncode}"])[-1]


def results_page(directory: Path, before: str = "") -> str:
    """What the scripts have left in the directory, and the other sections of the page before."""
    sections = _sections(before)
    for path in sorted(directory.glob("*.run.json")):
        name = path.name.split(".")[0]
        sections[name] = _new_section(directory, name, json.loads(path.read_text()))
    missed = [
        f"\n- {what}: {ratio}, {target} wanted"
        for section in sections.values()
        for what, ratio, target in MISSED_ROW.findall(section)
    ]
    introduction = INTRODUCTION.format(missed="\n" + "".join(missed) if missed else "none.")
    return "\n".join([introduction, *(sections[name] for name in sorted(sections))])


def _sections(page: str) -> dict[str, str]:
    """Each with its heading, by the name of its script."""
    found = list(HEADING.finditer(page))
    ends = [*(heading.start() for heading in found), len(page)]
    return {
        heading[1]: page[heading.start() : end].rstrip() + "\n"
        for heading, end in zip(found, ends[1:], strict=True)
    }


def _new_section(directory: Path, name: str, run: Any) -> str:
    when = (
        f"{time.strftime('%Y-%m-%d')}, Ottla {__version__}, {run['minutes']} minutes, {_machine()}."
    )
    parts = [f"## [{name}]({name}.py)\n", f"{when}\n"]
    if run["quick"]:
        parts.append(QUICK_NOTE)
    parts += [_section(kind, content) for kind, content in _found(directory, name)]
    if run["why"] is not None:
        parts.append(f"This script ended with an error: `{run['why']}`\n")
    return "\n".join(parts)


def _found(directory: Path, name: str) -> list[tuple[str, Any]]:
    """(kind, content) of what a script left, in the order it left them."""
    paths = sorted(directory.glob(f"{name}.*.*.json"))
    return [(path.name.split(".")[2], json.loads(path.read_text())) for path in paths]


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
