"""Each case of the list that the Spark side was built to has a test named by its number.

Those that have none are in docs/explanation/reliability.md, with the reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
CASES: Final = frozenset(range(1, 57))
# test_case_18_19_25_what_it_says, test_case_10_and_16_...
NAMED: Final = re.compile(r"def test_case((?:_(?:and_)?\d{2})+)_")
# A row of the table on the page: | Spark 40-44 | why |
LEFT_OUT: Final = re.compile(r"^\| Spark (\d+)(?:-(\d+))?,? .*\| not tested.*\|$", re.MULTILINE)


OTHER_LISTS: Final = (
    "test_base_install.py",
    "test_sql.py",
    "test_table",
    "test_top.py",
    "test_typed",
)
"""Files whose cases are those of the tables or of the console."""


def with_tests() -> set[int]:
    places = ("tests/spark", "tests/unit/spark", "tests/integration/spark", "tests/integration/cli")
    return {
        int(number)
        for place in places
        for file in (ROOT / place).rglob("test_*.py")
        if not file.name.startswith(OTHER_LISTS)
        for names in NAMED.findall(file.read_text())
        for number in re.findall(r"\d{2}", names)
    }


def without_tests() -> set[int]:
    page = (ROOT / "docs" / "explanation" / "reliability.md").read_text()
    section = page[page.index("## Numbered cases") :]
    return {
        number
        for first, last in LEFT_OUT.findall(section)
        for number in range(int(first), int(last or first) + 1)
    }


def test_each_case_has_a_test_or_a_reason() -> None:
    assert with_tests() <= CASES
    assert sorted(CASES - with_tests()) == sorted(without_tests())
