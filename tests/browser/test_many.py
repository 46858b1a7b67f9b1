"""Much of everything: topics, partitions, groups, and records faster than anybody can read."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ottla.sync import Admin
from ottla.testing.embedded import EmbeddedBroker
from tests.support.raw_client import RawClient, batch, now_ms, produce_request
from tests.support.sizes import SOAK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

TOPICS, PARTITIONS, GROUPS = 1_000, 10, 1_000
WIDE = 10_000
TAIL_SECONDS = 60 if SOAK else 8
RATE, BATCH = 50_000, 1_000
WAIT_MS = 60_000
MOST_ELEMENTS = 4_000
"""Of a page. What a browser needs for a page grows with these; a page has 50 rows of them."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("many")


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(directory, console=True) as running:
        with Admin(running.bootstrap) as admin:
            for number in range(TOPICS):
                admin.create_topic(f"topic-{number:04}", partitions=PARTITIONS)
            admin.create_topic("wide", partitions=WIDE)
            admin.create_topic("fast", partitions=1)
            for number in range(GROUPS):
                place = (f"topic-{number:04}", number % PARTITIONS)
                admin.alter_group_offsets(f"group-{number:04}", {place: 0})
        yield running


@pytest.fixture
def page(chromium: Browser, broker: EmbeddedBroker) -> Iterator[Page]:
    with chromium.new_context(base_url=broker.console_url) as context:
        opened = context.new_page()
        opened.set_default_timeout(WAIT_MS)
        yield opened


def says(page: Page, text: str) -> None:
    """Not get_by_text: our field `contains` hides a method that it needs from it."""
    page.wait_for_function("(text) => document.body.innerText.includes(text)", arg=text)


def elements(page: Page) -> int:
    found: int = page.evaluate("document.querySelectorAll('*').length")
    return found


def test_case_11_a_thousand_topics_are_listed_and_looking_makes_nothing(
    page: Page, directory: Path
) -> None:
    page.goto("c/local/topics?internal=1")
    says(page, f"1 to 50 of {TOPICS + 3:,} topics")  # with that of the groups
    assert elements(page) < MOST_ELEMENTS
    page.keyboard.press("]")
    page.wait_for_url("**page=2*")
    page.goto("c/local/topics/topic-0000")
    says(page, f"1 to {PARTITIONS} of {PARTITIONS} partitions")
    page.goto("c/local/")
    says(page, f"{TOPICS * PARTITIONS + WIDE + 1:,} partitions")
    page.wait_for_timeout(12_000)  # the sampler has had a turn
    made = [one.name for one in directory.iterdir() if one.name.startswith(("topic-", "wide-"))]
    assert made == []


def test_case_12_ten_thousand_partitions_are_paged_and_filtered(page: Page) -> None:
    page.goto("c/local/topics/wide")
    says(page, f"1 to 50 of {WIDE:,} partitions")
    assert page.locator("main tbody tr").count() == 50
    assert elements(page) < MOST_ELEMENTS
    page.get_by_label("Partition contains").fill("9999")
    page.keyboard.press("Enter")
    says(page, "1 to 1 of 1 partitions")
    assert page.locator("main tbody th").inner_text() == "9999"


def test_case_13_a_thousand_groups_are_listed(page: Page) -> None:
    page.goto("c/local/groups")
    says(page, f"1 to 50 of {GROUPS:,} groups")
    page.get_by_label("Name contains").fill("group-0999")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="group-0999").click()
    page.get_by_role("cell", name="topic-0999").or_(
        page.get_by_role("rowheader", name="topic-0999")
    ).wait_for()


@contextmanager
def fast(bootstrap: str) -> Iterator[None]:
    """Fifty thousand records a second, as far as the machine can."""
    stop = threading.Event()

    def produce() -> None:
        with RawClient(bootstrap) as client:
            began, sent = time.monotonic(), 0
            while not stop.is_set():
                values = [b'{"n": %d}' % (sent + one) for one in range(BATCH)]
                data = batch(*values, timestamp=now_ms())
                client.ask("produce", 9, produce_request("fast", {0: data}))
                sent += BATCH
                time.sleep(max(0.0, began + sent / RATE - time.monotonic()))

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def heap(page: Page) -> int:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return int(found["JSHeapUsedSize"])


def test_case_37_a_tail_of_a_fast_topic_stays_small(page: Page, broker: EmbeddedBroker) -> None:
    page.goto("c/local/topics/fast/messages")
    page.evaluate(
        """() => { window.came = 0;
            const count = (all) => { for (const one of all) window.came += one.addedNodes.length; };
            const rows = document.querySelector('#rows');
            new MutationObserver(count).observe(rows, {childList: true}); }"""
    )
    with fast(broker.bootstrap):
        page.get_by_role("button", name="Live tail").click()
        says(page, "not shown")
        before, came = heap(page), page.evaluate("window.came")
        page.wait_for_timeout(TAIL_SECONDS * 1_000)
        rows = page.evaluate("window.came") - came
        assert page.locator("#rows tr").count() <= 500
        assert heap(page) < 2 * before
    # A turn has 200 rows at most and takes a second at least; two may be seen at the borders.
    assert 0 < rows <= 200 * (TAIL_SECONDS + 2)


def hide(page: Page, hidden: str) -> None:
    page.evaluate(
        f"""() => {{
            Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {hidden}}});
            document.dispatchEvent(new Event('visibilitychange'));
        }}"""
    )


def test_case_38_a_hidden_tail_closes_its_stream_and_tells_the_gap(
    page: Page, broker: EmbeddedBroker
) -> None:
    def send(text: bytes) -> None:
        with RawClient(broker.bootstrap) as client:
            client.ask("produce", 9, produce_request("fast", {0: batch(text)}))

    page.goto("c/local/topics/fast/messages")
    with page.expect_request("**/tail*"):
        page.get_by_role("button", name="Live tail").click()
    with page.expect_event("requestfailed", lambda one: "/tail" in one.url):
        hide(page, "true")  # the stream is closed
    send(b"while it was hidden")
    with page.expect_response("**/tail*"):
        hide(page, "false")
    says(page, "are not here, the page was hidden")
    end = time.monotonic() + WAIT_MS / 1_000
    while page.locator("#rows").get_by_text("seen again").count() == 0:
        assert time.monotonic() < end
        send(b"seen again")
        page.wait_for_timeout(200)
    assert page.locator("#rows").get_by_text("while it was hidden").count() == 0


def test_case_65_a_seventh_tab_with_a_tail_still_loads(
    chromium: Browser, broker: EmbeddedBroker
) -> None:
    with chromium.new_context(base_url=broker.console_url) as context:
        refused = 0
        for number in range(7):
            tab = context.new_page()
            tab.set_default_timeout(WAIT_MS)
            tab.goto("c/local/topics/fast/messages")
            with tab.expect_response("**/tail*") as answer:
                tab.get_by_role("button", name="Live tail").click()
            if answer.value.status == 429:
                refused += 1
                says(tab, "The live tail was refused")
            else:
                assert number < 4
        assert refused == 3
        last = context.new_page()
        last.goto("c/local/topics")
        last.get_by_role("heading", name="Topics").wait_for()
