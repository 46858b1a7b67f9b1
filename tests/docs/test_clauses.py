"""The table of clauses is complete: every test says which behaviour it shows, once."""

from __future__ import annotations

from collections import Counter

import pytest

from scripts import docs_clauses
from scripts.docs_clauses import DIFFERS, System, clauses_page, read_systems

AT_LEAST = 25

SYSTEMS = read_systems()


def test_all_five_systems_are_there() -> None:
    folders = {path.name for path in docs_clauses.CLAUSES.iterdir() if path.is_dir()}
    assert tuple(system.name for system in SYSTEMS) == docs_clauses.SYSTEMS
    assert {*docs_clauses.SYSTEMS} == folders - {"__pycache__"}


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_a_system_has_its_clauses(system: System) -> None:
    clauses = [clause for section in system.sections for clause in section.clauses]
    assert len(clauses) >= AT_LEAST
    assert system.title
    assert system.notes
    assert all(section.heading for section in system.sections)
    for clause in clauses:
        assert clause.says.endswith("."), clause
        assert DIFFERS not in clause.says, clause
    names = Counter(clause.test for clause in clauses)
    assert [name for name, times in names.items() if times > 1] == []


def test_the_page_has_a_row_for_every_clause() -> None:
    page = clauses_page().replace("<wbr>", "")
    for system in SYSTEMS:
        for section in system.sections:
            for clause in section.clauses:
                assert f"<code>{clause.test}</code> |" in page
