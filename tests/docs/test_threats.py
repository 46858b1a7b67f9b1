"""The threat model names cases; each of them is a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
PLACES = (
    "tests/unit/security",
    "tests/unit/broker",
    "tests/unit/client",
    "tests/unit/http",
    "tests/unit/metadata",
    "tests/unit/test_redaction.py",
    "tests/integration/security",
    "tests/integration/broker",
    "tests/integration/http",
    "tests/conformance/security",
)
NAME = re.compile(r"def (test_\w+)")
NUMBERS = re.compile(r"(?:^test_|cases?_)(\d+(?:_(?:and_|to_)?\d+)*)(?:_|$)")


def known_cases() -> set[int]:
    found: set[int] = set()
    for place in PLACES:
        path = ROOT / place
        for file in [path] if path.is_file() else path.rglob("test_*.py"):
            for name in NAME.findall(file.read_text()):
                for numbers in NUMBERS.findall(name):
                    found |= {int(number) for number in re.findall(r"\d+", numbers)}
    return found


def test_every_case_of_the_threat_model_is_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = {
        int(number)
        for row in rows
        for number in re.findall(r"\d+", row.rstrip("| ").split("|")[-1])
    }
    assert named
    assert sorted(named - known_cases()) == []
