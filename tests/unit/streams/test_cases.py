"""Every numbered case and vector of streams and offsets is a test that bears its number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2]
CASES: Final = {f"t{number:02}" for number in range(1, 80)}
VECTORS: Final = {f"v{number}" for number in range(1, 13)}
TEST: Final = re.compile(r"^(?:async )?def test((?:_[tvd]\d+)+)_", re.MULTILINE)
"""The numbers come first in a name; those with a d are defects of others that are not repeated."""


def test_no_case_is_without_a_test() -> None:
    found: set[str] = set()
    for room in ("*/offsets", "*/streams", "faults"):
        for path in TESTS.glob(f"{room}/test_*.py"):
            for numbers in TEST.findall(path.read_text()):
                found |= set(numbers.split("_"))
    missing = (CASES | VECTORS) - found
    assert not missing, sorted(missing)
