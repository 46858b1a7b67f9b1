"""The threat model names cases, each of them a test; SECURITY.md names a test of each threat."""

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
    "tests/integration/client",
    "tests/integration/http",
    "tests/conformance/security",
    "tests/faults/test_strangers.py",
    "tests/spark/test_security.py",
)
THREAT = re.compile(r"^\| ([A-Z]\d) \| ([^|]+) \|(.*)\|$", re.MULTILINE)
TEST = re.compile(r" `([\w/]+\.py)::(test_\w+)` ")
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


def test_each_threat_has_a_test_that_exists() -> None:
    listed = THREAT.findall((ROOT / "SECURITY.md").read_text())
    known = THREAT.findall(PAGE.read_text())
    assert [row[:2] for row in listed] == [row[:2] for row in known]
    for _, threat, test in listed:
        named = TEST.fullmatch(test)
        assert named is not None, threat
        file, name = named.groups()
        assert name in NAME.findall((ROOT / "tests" / file).read_text()), threat
