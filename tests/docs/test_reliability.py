"""The counts on the page about reliability are those that the tests pin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
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


def test_the_tests_it_names_exist() -> None:
    named = set(re.findall(r"`((?:faults|unit|conformance|spark)/[\w/]+\.py)`", PAGE))
    assert named
    assert [path for path in sorted(named) if not (ROOT / "tests" / path).is_file()] == []
