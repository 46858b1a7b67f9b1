"""Every numbered behaviour of share groups is a test that bears its number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2]
NUMBERED: Final = re.compile(r"^(?:async )?def test((?:_\d\d)+)_", re.MULTILINE)
BROKER: Final = {*range(1, 61), 67}  # the others are the client's


def test_no_case_of_the_broker_is_without_a_test() -> None:
    found: set[int] = set()
    for path in (*TESTS.rglob("test_share*.py"), *(TESTS / "unit" / "sharing").glob("test_*.py")):
        for numbers in NUMBERED.findall(path.read_text()):
            found |= {int(number) for number in numbers.split("_")[1:]}
    assert found >= BROKER, sorted(BROKER - found)
