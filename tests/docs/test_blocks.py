"""No command on a page goes untried: each is typed by a test, or counted here with the reason.

`console` and `python` blocks are typed (`tests.support.desk`, `tests.support.examples`); a page
that has such a block and no test, or a test that leaves one out, fails. Other languages are shown
only: output and files need no reason, commands and programs do.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.docs.test_examples import PAGES
from tests.support.desk import ROOT, TYPED, blocks_of

SHOWN: Final = {"text", "properties", "toml", "yaml", "diff", "java", "rust"}
"""Output, files, and programs in other languages."""
NOT_TYPED: Final = {
    ("how-to/pipelines", "bash"): (1, "packs an environment for a Spark cluster"),
    ("how-to/pipelines", "py"): (3, "flows of a file; tests/spark/pipelines runs all of these"),
    ("how-to/query-tables", "py"): (1, "a table in S3; tests/spark/test_tables_s3.py reads one"),
    ("how-to/quotas", "bash"): (1, "Kafka's tools; tests/conformance/security runs them"),
    ("how-to/secure-a-broker", "bash"): (2, "Kafka's tools; tests/conformance/security runs them"),
    ("how-to/spark", "py"): (
        5,
        "sources and sinks without their data; tests/spark runs all of these",
    ),
    ("how-to/tables", "py"): (1, "a path that ottla table show prints"),
}
FILES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES: Final = [
    "README" if path.name == "README.md" else str(path.relative_to(ROOT / "docs").with_suffix(""))
    for path in FILES
]


@pytest.mark.parametrize("page", NAMES)
def test_commands_of_a_page_are_typed_by_a_test(page: str) -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_typed_*.py"))
    languages = {block.language for block in blocks_of(page)}
    by_desk = f'Desk("{page}"' in tests
    assert by_desk or "console" not in languages
    assert by_desk or page in PAGES or "python" not in languages


def test_what_is_only_shown_is_counted() -> None:
    counted = Counter((block.page, block.language) for page in NAMES for block in blocks_of(page))
    shown = {key: count for key, count in counted.items() if key[1] not in {*TYPED, *SHOWN}}
    assert shown == {key: count for key, (count, _) in NOT_TYPED.items()}


@pytest.mark.parametrize("page", NAMES)
def test_commands_are_not_disguised_as_output(page: str) -> None:
    """A block of output begins with no command; a synopsis has upper-case words for arguments."""
    commands = [
        line
        for block in blocks_of(page)
        if block.language in SHOWN
        for line in block.text.splitlines()
        if re.match(r"(\$ )?(ottla|pip) [a-z]", line) and not re.search(r"\b[A-Z]{3,}\b|: ", line)
    ]
    assert commands == []
