"""Case 62: axe-core finds no violation of WCAG A and AA on any page, light and dark, with data or
without. It is fetched by scripts/install_services.sh --all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scripts.console_axe import DEFAULT, NOTHING, RULES, RUN
from scripts.console_shots import PAGES, stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from ottla.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def axe() -> str:
    if not DEFAULT.is_file():
        pytest.skip("no axe-core; sh scripts/install_services.sh --all fetches it where npm is")
    return DEFAULT.read_text()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Every page has something to show. It is first: it needs a loop of its own for a moment."""
    with stage() as running:
        yield running


@pytest.fixture(scope="module", params=["light", "dark"])
def themed(request: pytest.FixtureRequest, broker: Any, chromium: Browser) -> Iterator[Page]:
    with chromium.new_context(base_url=broker.console_url, color_scheme=request.param) as context:
        yield context.new_page()


@pytest.mark.parametrize("path", [*PAGES.values(), *NOTHING.values()])
def test_case_62_no_page_violates_wcag(themed: Page, axe: str, path: str) -> None:
    themed.goto(path)
    themed.evaluate(axe)
    found = themed.evaluate(RUN, RULES)
    assert found == [], path
