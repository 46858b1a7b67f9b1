"""One module reads the wall clock, so that one argument changes what time it is."""

from __future__ import annotations

import re
from pathlib import Path

import ottla
from ottla.clock import SYSTEM

SOURCES = Path(ottla.__file__).parent
READS_THE_WALL = re.compile(
    r"\btime\.time(_ns)?\b|from time import .*\btime(_ns)?\b"
    r"|\bdatetime\.(now|utcnow|today)\b|\bdate\.today\b|CLOCK_REALTIME"
)


def test_no_other_module_reads_the_wall_clock() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{number}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES) != Path("clock.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if READS_THE_WALL.search(line)
    ]
    assert found == []


def test_the_clocks_agree_about_the_unit() -> None:
    before, now, after = SYSTEM.wall_ns(), SYSTEM.now(), SYSTEM.wall_ns()
    assert before // 1_000_000 <= now.wall_ms <= after // 1_000_000
    assert now.ms <= SYSTEM.monotonic() * 1000
    assert now.ms / 1000 <= SYSTEM.monotonic() <= SYSTEM.boot() + 1
