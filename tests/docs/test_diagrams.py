"""The diagrams of the pages are drawn by a script, and shown without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.docs_diagrams import DIAGRAMS, IMAGES

PAGES = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_file_is_what_the_script_draws(name: str) -> None:
    drawn = DIAGRAMS[name]().svg()
    assert (IMAGES / f"{name}.svg").read_text() == drawn, "run python scripts/docs_diagrams.py"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_each_is_on_a_page(name: str) -> None:
    assert [path for path in PAGES.rglob("*.md") if f"images/{name}.svg)" in path.read_text()]


def test_no_page_leaves_drawing_to_a_script_from_elsewhere() -> None:
    assert [path.name for path in PAGES.rglob("*.md") if "```mermaid" in path.read_text()] == []
