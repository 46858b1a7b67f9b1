"""Every example runs: those of the public classes, and the Python blocks of the pages."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.examples import examples_of, run_docstring, run_page

if TYPE_CHECKING:
    import doctest

MODULES = (
    "ottla.client.admin.admin",
    "ottla.client.admin.configs",
    "ottla.client.admin.groups",
    "ottla.client.admin.log_dirs",
    "ottla.client.admin.offsets",
    "ottla.client.admin.resets",
    "ottla.client.admin.topics",
    "ottla.client.consumer.consumer",
    "ottla.client.producer.producer",
    "ottla.client.reader.reader",
    "ottla.client.share.consumer",
    "ottla.sync",
    "ottla.sync.admin",
    "ottla.sync.consumer",
    "ottla.sync.producer",
    "ottla.sync.reader",
    "ottla.sync.share_consumer",
    "ottla.tier.catalogue.topic_rlmm",
)
EXAMPLES = [one for name in MODULES for one in examples_of(import_module(name))]
DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "how-to/clients",
    "how-to/coming-from-java-share-consumer",
    "how-to/coming-from-krabka",
    "how-to/coming-from-lance",
    "how-to/coming-from-python-clients",
    "how-to/coming-from-seastreamer",
    "how-to/transactions",
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
def test_docstring(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write files beside them
    assert run_docstring(example, monkeypatch) == ""


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files beside them
    assert run_page(DOCS / f"{page}.md") > 0
