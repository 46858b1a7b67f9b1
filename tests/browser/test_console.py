"""The console in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Dialog, Page

    from ottla.testing.embedded import EmbeddedBroker

PAGES = (
    "c/local/",
    "c/local/topics",
    "c/local/topics/orders",
    "c/local/topics/orders?tab=configs",
    "c/local/topics/orders?tab=readers",
    "c/local/topics/orders/messages",
    "c/local/topics/orders/messages/0/1",
    "c/local/topics/orders/produce",
    "c/local/groups",
    "c/local/groups/billing",
    "c/local/queues",
    "c/local/queues/warehouse",
    "c/local/queues/warehouse/orders/0",
    "c/local/transactions",
    "c/local/queues/warehouse/letters",
    "c/local/tier",
    "c/local/tables",
    "c/local/tables/orders",
    "c/local/pipelines",
    "c/local/pipelines/orders",
    "c/local/schemas",
    "c/local/schemas/orders-value",
    "c/local/security",
    "c/local/doctor",
)


def test_case_20_hostile_contents_do_nothing(page: Page) -> None:
    dialogs: list[str] = []
    said: list[str] = []
    asked: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    paths = ["c/local/topics/hostile/messages", "c/local/groups"]
    paths += [f"c/local/topics/hostile/messages/0/{offset}" for offset in range(len(HOSTILE))]
    for path in paths:
        page.goto(path)
        page.wait_for_load_state("networkidle")
    assert dialogs == []
    assert [text for text in said if "Content Security Policy" in text or "Refused" in text] == []
    assert [url for url in asked if url.endswith("/x") or "evil" in url] == []
    page.goto("c/local/topics/hostile/messages")
    assert page.locator("#rows").get_by_text(HOSTILE[0]).first.is_visible()


@pytest.fixture
def without_scripts(chromium: Browser, broker: EmbeddedBroker) -> Iterator[Page]:
    with chromium.new_context(base_url=broker.console_url, java_script_enabled=False) as context:
        yield context.new_page()


def test_case_33_everything_can_be_read_without_javascript(without_scripts: Page) -> None:
    page = without_scripts
    page.goto("")
    page.get_by_role("link", name="orders").first.click()
    page.get_by_role("link", name="Messages", exact=True).click()
    first = page.locator("#rows tr").count()
    assert first == 50
    page.get_by_role("link", name="older records").click()
    assert page.locator("#rows tr").count() == 50
    page.get_by_label("Contains").fill("A-77")
    page.get_by_role("button", name="Show").click()
    assert page.locator("#rows tr").count() == 1
    page.get_by_role("link", name="Groups", exact=True).click()
    page.get_by_role("link", name="billing").click()
    assert page.get_by_role("heading", level=1).inner_text() == "billing"


@pytest.mark.parametrize("path", PAGES)
def test_case_63_nothing_scrolls_sideways_at_360_pixels(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    small = page.evaluate(
        """() => [...document.querySelectorAll('header a, main button, .pages a, .tabs a')]
            .map((one) => [one.textContent.trim(), one.getBoundingClientRect()])
            .filter(([, box]) => box.width > 0 && box.height < 24).map(([text]) => text)"""
    )
    assert small == []


def choose_first_row(page: Page) -> None:
    """By its key, once there are rows: a page comes at once, its figures may follow."""
    page.locator("main tbody tr a").first.wait_for()
    page.keyboard.press("j")
    page.wait_for_function("document.activeElement.closest('tbody tr') !== null")


def test_case_61_keys_alone_lead_from_the_overview_to_a_record_and_back(page: Page) -> None:
    page.goto("c/local/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/queues")
    choose_first_row(page)
    page.keyboard.press("Enter")
    page.wait_for_url("**/queues/warehouse")
    page.get_by_role("link", name="orders-0").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/queues/warehouse/orders/0")
    choose_first_row(page)
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders/messages/0/*")
    page.go_back()
    page.wait_for_url("**/queues/warehouse/orders/0")
    page.goto("c/local/topics")
    page.keyboard.press("/")
    page.keyboard.type("ord")
    page.keyboard.press("Enter")
    page.wait_for_url("**contains=ord*")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()


def test_case_61_focus_can_be_seen(page: Page) -> None:
    page.goto("c/local/topics")
    choose_first_row(page)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_case_64_a_live_swap_keeps_what_the_visitor_did(page: Page) -> None:
    page.goto("c/local/")
    page.locator("#live summary").first.click()
    page.evaluate(
        """() => {
            const cell = document.querySelector('#live tbody th');
            getSelection().selectAllChildren(cell);
            document.querySelector('#live tbody a').focus();
            document.querySelector('#live h2').dataset.same = 'yes';
        }"""
    )
    with page.expect_response(lambda answer: answer.url.endswith("/c/local/")):
        pass
    page.wait_for_function("!document.querySelector('#live h2').dataset.same")
    assert page.evaluate("document.querySelector('#live details').open")
    assert page.evaluate("document.activeElement.closest('tbody') !== null")
    assert page.evaluate("getSelection().toString()").strip() != ""


def test_case_15_a_page_whose_console_is_gone_says_so_and_stays(page: Page) -> None:
    page.goto("c/local/queues/warehouse")
    page.route("**/*", lambda route: route.abort())
    page.get_by_text("stale since").wait_for()
    assert page.get_by_role("heading", name="Windows").is_visible()
    page.unroute("**/*")
    page.get_by_text("stale since").wait_for(state="detached")


def test_pages_name_their_things_for_screen_readers(page: Page) -> None:
    """Case 62, as far as it goes without axe: names, headings, languages, cells, contrast."""
    for path in PAGES:
        page.goto(path)
        problems = page.evaluate(
            """() => {
                const found = [];
                const all = (selector) => [...document.querySelectorAll(selector)];
                const check = (is, words) => { if (!is) found.push(words); };
                check(document.documentElement.lang, 'no language');
                check(all('h1').length === 1, 'not one h1');
                const levels = all('h1,h2,h3').map((one) => +one.tagName[1]);
                check(levels.every((one, i) => !i || one <= levels[i - 1] + 1), 'headings');
                const ids = all('[id]').map((one) => one.id);
                check(new Set(ids).size === ids.length, 'ids that repeat');
                const name = (one) => one.textContent.trim() || one.getAttribute('aria-label');
                for (const one of all('a, button')) check(name(one), one.outerHTML);
                for (const one of all('input:not([type=hidden]), select, textarea')) {
                    check(one.labels?.length, 'no label: ' + one.name);
                }
                for (const one of all('th')) check(one.scope, 'no scope: ' + one.textContent);
                for (const one of all('svg:not([aria-hidden])')) {
                    check(one.getAttribute('aria-label'), 'a picture without a name');
                }
                return found;
            }"""
        )
        assert problems == [], path


def test_a_search_shows_its_progress_and_then_the_page_without_a_reload(page: Page) -> None:
    page.goto("c/local/topics/orders/messages")
    page.evaluate("window.stays = true")
    page.get_by_label("Contains").fill("A-42")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**contains=A-42**")
    page.locator("#found").get_by_text("1 found").wait_for()
    assert page.locator("#rows tr").count() == 1
    assert page.evaluate("window.stays") is True
    page.go_back()
    page.wait_for_url("**/messages")
    page.locator("#rows tr").nth(40).wait_for()


def test_case_55_the_page_of_letters_says_why_there_are_none(page: Page) -> None:
    page.goto("c/local/queues/warehouse")
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_text("set errors.deadletterqueue.topic.name of the share group").wait_for()
