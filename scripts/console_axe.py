"""Accessibility of every page of the console: `python -m scripts.console_axe`.

Runs axe-core in chromium over the pages that `console_shots.py` shows, light and dark, and prints
what violates WCAG A and AA; the status is 1 if something does. axe-core (MPL-2.0) is not part of
this repository: `sh scripts/install_services.sh --all` fetches it where npm is installed. Another
file can be given.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from scripts.console_shots import PAGES, chromium, stage

if TYPE_CHECKING:
    from playwright.sync_api import Page

DEFAULT = Path.home() / ".cache" / "ottla-axe" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
RUN = """rules => axe.run(document, {runOnly: rules}).then(found => found.violations.map(
    one => [one.id, one.help, one.nodes.slice(0, 5).map(node => node.html.slice(0, 200))]))"""
NOTHING = {
    "topic (none)": "c/local/topics/none",
    "messages (none)": "c/local/topics/telemetry/messages",
    "group (none)": "c/local/groups/none",
    "queue (none)": "c/local/queues/none",
    "letters (none)": "c/local/queues/none/letters",
    "produce": "c/local/topics/orders/produce",
    "readers": "c/local/topics/orders?tab=readers",
    "nodes": "c/local/nodes",
    "table (none)": "c/local/tables/none",
    "schema (none)": "c/local/schemas/none",
    "no such page": "c/local/nothing",
}
"""Pages without data, and forms."""


def look(page: Page, source: str, path: str) -> list[Any]:
    page.goto(path)
    page.evaluate(source)
    found: list[Any] = page.evaluate(RUN, RULES)
    return found


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    if not file.is_file():
        sys.exit(f"no {file}; sh scripts/install_services.sh --all fetches it with npm")
    source, wrong, looked = file.read_text(), 0, 0
    with stage() as broker, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for theme in ("light", "dark"):
            with browser.new_context(base_url=broker.console_url, color_scheme=theme) as context:
                page = context.new_page()
                for name, path in {**PAGES, **NOTHING}.items():
                    looked += 1
                    for rule, words, nodes in look(page, source, path):
                        wrong += 1
                        print(f"{name}, {theme}: {rule}: {words}", *nodes, sep="\n    ")
        browser.close()
    print(f"{looked} pages, {wrong} violations")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
