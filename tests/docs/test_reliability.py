"""The counts on the page about reliability are those that the tests pin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "reliability.md").read_text()
UNIT = ROOT / "tests" / "unit"


@pytest.mark.parametrize(
    ("machine", "source", "pinned"),
    [
        ("idempotent producer state", "log/test_producer_state.py", r"^SEARCH_STATES = (\d+)$"),
        ("consumer group", "coordination/test_reconcile_search.py", r"(?:True|False), ([\d_]+)\)"),
        (
            "share partition",
            "sharing/test_partition_search.py",
            r"^    Setting\(\s*\"[^\"]*\",\s*(\d+_\d+)",
        ),
        (
            "share group state",
            "coordination/test_share_books_search.py",
            r"^SETTINGS = \[\(2, (\d+)",
        ),
    ],
)
def test_states_searched(machine: str, source: str, pinned: str) -> None:
    every_run, _, _ = (UNIT / source).read_text().partition('"soak"')
    found = re.findall(pinned, every_run, re.MULTILINE)
    states = sum(int(count.replace("_", "")) for count in found)
    assert re.search(rf"^\| {machine}.* \| {states:,} \|$", PAGE, re.MULTILINE), states


@pytest.mark.parametrize(
    "source",
    [
        "faults/test_kill.py",
        "faults/test_share_kills.py",
        "faults/test_streams_kills.py",
        "spark/test_chaos.py",
    ],
)
def test_kills(source: str) -> None:
    text = (ROOT / "tests" / source).read_text()
    found = re.search(r"^KILLS: Final = ([\d_]+) if soak\(\) else (\d+)$", text, re.MULTILINE)
    assert found is not None
    line = next(line for line in PAGE.splitlines() if f"`{source}`)" in line)
    assert line.endswith(f"| {found[2]} kills | {int(found[1]):,} |")


@pytest.mark.parametrize(
    ("source", "setting", "shown"),
    [
        ("faults/test_hostile_bytes.py", r"INPUTS: Final = ([\d_]+) if soak\(\) else ([\d_]+)", ""),
        ("faults/test_offsets_kills.py", r"RANDOM_KILLS: Final = (\d+) if soak\(\) else (\d+)", ""),
        (
            "faults/test_offsets_kills.py",
            r"SECONDS: Final = (\d+)\.0 if soak\(\) else ([\d.]+)",
            " s",
        ),
    ],
)
def test_other_counts(source: str, setting: str, shown: str) -> None:
    found = re.search(setting, (ROOT / "tests" / source).read_text())
    assert found is not None
    long, short = (
        f"{float(each.replace('_', '')):,.1f}".removesuffix(".0") for each in found.groups()
    )
    lines = [line for line in PAGE.splitlines() if f"`{source}`)" in line]
    cells = [line.split(" | ")[-2:] for line in lines]
    matching = [f"{short}{shown}" in left and f"{long}{shown}" in right for left, right in cells]
    assert sum(matching) == 1


def test_points_of_a_batch() -> None:
    text = (ROOT / "tests" / "support" / "spark_driver.py").read_text()
    points = re.search(r"^POINTS: Final = \((.*)\)$", text, re.MULTILINE)
    assert points is not None
    line = next(line for line in PAGE.splitlines() if "`spark/test_kills.py`)" in line)
    # The short run's, then every point of two batches.
    assert line.endswith(f"| 1 kill | {1 + 2 * len(points[1].split(','))} |")


def test_the_tests_it_names_exist() -> None:
    named = set(re.findall(r"`((?:faults|unit|conformance|spark|e2e)/[\w/]+\.py)`", PAGE))
    assert named
    assert [path for path in sorted(named) if not (ROOT / "tests" / path).is_file()] == []
