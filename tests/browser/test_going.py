"""A broker that goes away and comes back while a page is open; base paths; nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ottla.sync import Admin, Producer
from ottla.testing.embedded import EmbeddedBroker
from tests.support.console_process import console_process
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Request

WAIT_MS = 60_000


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        yield page


def test_cases_15_and_16_a_broker_goes_away_and_comes_back_with_other_topics(
    tab: Page, tmp_path: Path
) -> None:
    port = free_port()
    first = EmbeddedBroker(port=port).start()
    try:
        first.create_topic("orders")
        with console_process(tmp_path, first.bootstrap) as (url, _):
            tab.goto(f"{url}c/local/topics/orders")
            other = tab.context.new_page()
            other.goto(f"{url}c/local/")
            other.get_by_role("link", name="orders").first.wait_for()
            asked: list[str] = []
            other.on("request", lambda request: asked.append(request.url))
            first.stop()
            # Case 15: said, and what was known stays.
            for page in (tab, other):
                page.locator("#stale").get_by_text("No broker has answered for").wait_for()
            assert other.get_by_role("link", name="orders").first.is_visible()
            assert tab.get_by_role("heading", name="orders").is_visible()
            began = len(asked)
            other.wait_for_timeout(3_000)
            assert len(asked) - began <= 3  # one a second at most
            # Case 16: it recovers by itself, and does not mix the two clusters up.
            with EmbeddedBroker(port=port) as second:
                second.create_topic("payments")
                other.get_by_role("link", name="payments").first.wait_for()
                other.locator("#stale").get_by_text("No broker").wait_for(state="detached")
                assert other.get_by_role("link", name="orders").count() == 0
                assert other.get_by_text("Another cluster answers under this name").is_visible()
                tab.get_by_text("The cluster has no topic of this name").wait_for()
    finally:
        first.stop()


def test_case_32_everything_stays_below_the_base_path(tab: Page, tmp_path: Path) -> None:
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        with Producer(broker.bootstrap) as producer:
            for number in range(5):
                producer.send("orders", b"A-%d" % number)
        with console_process(tmp_path, broker.bootstrap, "--base-path", "/kafka/", "--write") as (
            url,
            _,
        ):
            tab.on("request", note)
            tab.goto(url)
            tab.get_by_role("link", name="orders", exact=True).first.click()
            tab.get_by_role("link", name="Messages", exact=True).click()
            with tab.expect_request("**/tail*"):
                tab.get_by_role("button", name="Live tail").click()
            tab.get_by_role("button", name="Stop the live tail").click()
            tab.get_by_label("Contains").fill("A-3")
            with tab.expect_request("**/search?*"):
                tab.get_by_role("button", name="Show").click()
            tab.locator("#found").get_by_text("1 found").wait_for()
            tab.get_by_role("link", name="Produce", exact=True).click()
            tab.get_by_label("Value", exact=True).fill("made here")
            tab.get_by_role("button", name="Produce").click()
            tab.get_by_text("made here").wait_for()
            tab.get_by_role("link", name="dark theme").click()
            assert tab.locator("html").get_attribute("data-theme") == "dark"
            tab.keyboard.press("g")
            tab.keyboard.press("t")
            tab.wait_for_url("**/kafka/c/local/topics")
            with tab.expect_response("**/kafka/c/local/topics"):
                pass  # the live region
    paths = {re.sub(r"^http://127\.0\.0\.1:\d+", "", one) for one in asked}
    assert [one for one in paths if not one.startswith(("/kafka/", "data:"))] == []


def test_case_73_a_node_goes_and_comes_back_and_one_is_drained_from_the_page(
    tab: Page, tmp_path: Path
) -> None:
    settings = "[attention]\nnode_s = 1\n"
    with EmbeddedBroker(nodes=3) as broker:
        broker.create_topic("orders", partitions=6)
        with console_process(tmp_path, broker.bootstrap, "--write", settings=settings) as (url, _):
            tab.goto(f"{url}c/local/nodes")
            row = tab.get_by_role("row").filter(has=tab.get_by_role("rowheader", name="3"))
            row.get_by_text("active").wait_for()
            broker.kill_node(3)
            broker.stop_node(3)  # given up: it is down, and the others take over
            row.get_by_text("fenced").wait_for()
            tab.goto(f"{url}c/local/")
            tab.locator(".findings").get_by_text("NODE", exact=True).first.wait_for()
            broker.start_node(3)
            tab.locator(".findings").get_by_text("NODE", exact=True).first.wait_for(
                state="detached"
            )
            tab.goto(f"{url}c/local/nodes")
            tab.locator("form[action$=drain] select").select_option("2")
            tab.get_by_role("button", name="Drain").click()
            tab.wait_for_url("**/nodes")
            second = tab.get_by_role("row").filter(has=tab.get_by_role("rowheader", name="2"))
            second.get_by_text("draining").wait_for()
            tab.wait_for_function(
                """() => [...document.querySelectorAll('#live tbody tr')].some(({cells}) =>
                    cells[0].innerText.trim() == '2' && cells[4].innerText.trim() == '0')"""
            )
            with Admin(broker.bootstrap) as admin:
                led = {one.broker.id: one.leaders for one in admin.describe_nodes()}
            assert led[2] == 0
            tab.locator("form[action$=drain] select").select_option("2")
            tab.get_by_role("button", name="Back").click()
            second.get_by_text("active").wait_for()
