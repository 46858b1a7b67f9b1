"""Links of the pages outside the site lead somewhere; those of the site are checked by mkdocs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_to_files(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text())
    local = [target for target in targets if "://" not in target]
    assert local
    assert [target for target in local if not (ROOT / target).exists()] == []


def test_pages_named_in_the_changelog_exist() -> None:
    named = set(re.findall(r"docs/[a-z/-]+\.md", (ROOT / "CHANGELOG.md").read_text()))
    assert named
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []
