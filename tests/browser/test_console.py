"""The console in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin

import pytest

from ottla.console.slugs import slug
from ottla.sync import Producer
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
    "c/local/queues/warehouse?tab=settings",
    "c/local/queues/warehouse/letters",
    "c/local/nodes",
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


def hostile_paths() -> list[str]:
    """Every page that shows something of strangers."""
    records = [f"c/local/topics/hostile/messages/0/{offset}" for offset in range(len(HOSTILE))]
    names = [slug(text) for text in HOSTILE]
    named = [
        path.format(name)
        for name in names
        for path in (
            "c/local/groups/{}",
            "c/local/queues/{}",
            "c/local/queues/{}?tab=settings",
            "c/local/queues/{}/hostile/0",
            "c/local/queues/{}/letters",
            "c/local/transactions/{}",
            "c/local/pipelines/{}",
            "c/local/tables/{}",
            "c/local/schemas/{}",
            "c/local/topics/{}",
            "c/local/topics/{}/messages",
            "c/{}/topics",
        )
    ]
    asked = [
        f"c/local/{page}?contains={quote(text)}"
        for text in HOSTILE
        for page in ("topics", "groups", "queues", "transactions", "topics/hostile/messages")
    ]
    forms = [f"c/local/topics/hostile/produce?from=0@{offset}" for offset in range(len(HOSTILE))]
    return [*PAGES, "c/local/topics/hostile/messages", *records, *named, *asked, *forms]


def test_case_20_hostile_contents_do_nothing_on_any_page(
    page: Page, broker: EmbeddedBroker
) -> None:
    dialogs: list[str] = []
    said: list[str] = []
    asked: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    opened = hostile_paths()
    for path in opened:
        page.goto(path, wait_until="load")
        live = page.evaluate("document.querySelectorAll('script:not([src]), main img').length")
        assert live == 0, path
    assert dialogs == []
    assert [text for text in said if "Content Security Policy" in text or "Refused" in text] == []
    # The pages themselves, their style and their script; nothing that a record names.
    wanted = {urljoin(broker.console_url, path) for path in opened}
    assert {url for url in asked if "/static/" not in url and url != "data:,"} <= wanted
    page.goto("c/local/topics/hostile/messages")
    assert page.locator("#rows").get_by_text(HOSTILE[0]).first.is_visible()
    page.goto("c/local/groups")
    page.get_by_role("link", name=HOSTILE[1]).wait_for()
    page.get_by_role("link", name=HOSTILE[1]).click()
    page.get_by_role("rowheader", name=HOSTILE[0]).wait_for()  # the client of its member
    page.goto("c/local/queues")
    page.get_by_role("link", name=HOSTILE[2]).click()
    page.get_by_role("rowheader", name=HOSTILE[0]).wait_for()
    page.goto("c/local/transactions")
    page.get_by_role("link", name=HOSTILE[4]).wait_for()


ODD = ("\u202eevil", "a\u200bb\u2060c", "\u05e9\u05dc\u05d5\u05dd", "e" + "\u0301" * 10_000)


def test_case_21_odd_characters_are_visible_and_other_cells_keep_their_place(
    page: Page, broker: EmbeddedBroker
) -> None:
    broker.create_topic("odd")
    with Producer(broker.bootstrap) as producer:
        for text in ("plain", *ODD):
            producer.send("odd", text.encode(), key=text.encode()[:4000])
    page.goto("c/local/topics/odd/messages?from=oldest")
    page.locator("#rows tr").nth(len(ODD)).wait_for()
    rows = page.locator("#rows tr").all_inner_texts()
    assert "\u27e8U+202E\u27e9evil" in rows[1]
    assert "a\u27e8U+200B\u27e9b\u27e8U+2060\u27e9c" in rows[2]
    assert "more marks\u27e9" in rows[4]
    places = page.evaluate(
        """() => [...document.querySelectorAll('#rows tr')].map((row) => [0, 1, 2, 5].map(
            (number) => Math.round(row.cells[number].getBoundingClientRect().left)))"""
    )
    assert all(one == places[0] for one in places)
    heights = page.evaluate(
        "[...document.querySelectorAll('#rows tr')].map((row) => row.offsetHeight)"
    )
    assert max(heights) < 3 * min(heights)


@pytest.fixture
def without_scripts(chromium: Browser, broker: EmbeddedBroker) -> Iterator[Page]:
    with chromium.new_context(base_url=broker.console_url, java_script_enabled=False) as context:
        yield context.new_page()


def test_case_33_everything_can_be_read_without_javascript(without_scripts: Page) -> None:
    page = without_scripts
    page.goto("")
    page.get_by_role("link", name="orders", exact=True).first.click()
    page.get_by_role("link", name="Messages", exact=True).click()
    first = page.locator("#rows tr").count()
    assert first == 50
    page.get_by_role("link", name="older records").click()
    assert page.locator("#rows tr").count() == 50
    page.get_by_label("Contains").fill("A-77")
    page.get_by_role("button", name="Show").click()
    assert page.locator("#rows tr").count() == 1
    for name in ("JSON lines", "CSV"):  # case 44
        with page.expect_download() as file:
            page.get_by_role("link", name=name).first.click()
        assert b"A-77" in file.value.path().read_bytes()
    page.get_by_role("link", name="Groups", exact=True).click()
    page.get_by_role("link", name="billing").click()  # case 46
    assert page.get_by_role("heading", level=1).inner_text() == "billing"
    assert re.search(r"[1-9]\d* records behind", page.locator("ul.facts").first.inner_text())
    page.get_by_role("link", name="Queues", exact=True).click()
    page.get_by_role("link", name="warehouse").click()
    page.get_by_role("link", name="Dead letters").click()  # case 55
    page.get_by_text("set errors.deadletterqueue.topic.name of the share group").wait_for()
    page.goto("c/local/?refresh=1")
    with page.expect_navigation():
        pass  # by the page itself


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
    page.keyboard.press("/")
    page.keyboard.type("warehouse")
    page.keyboard.press("Enter")
    page.wait_for_url("**contains=warehouse*")
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


def test_case_64_a_live_swap_keeps_what_is_being_typed(page: Page) -> None:
    page.goto("c/local/groups/billing")
    field = page.get_by_label("Topics", exact=True)
    field.fill("ord")
    field.press("End")
    with page.expect_response(lambda answer: answer.url.endswith("/groups/billing")):
        pass
    page.keyboard.type("ers")
    assert field.input_value() == "orders"
    assert field.evaluate("(one) => one === document.activeElement")


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
