"""Changes in a browser: records, resets, letters; a queue that stalls; what a reader is shown."""

from __future__ import annotations

import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.client.producer.types import ProducerRecord
from ottla.sync import Admin, Producer, Reader, ShareConsumer
from ottla.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

WRITE = "ottla.console.write"
WAIT_MS = 30_000
LETTERS = 41
LOCKS = 100


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(console=True, config={WRITE: "true"}) as running:
        running.create_topic("orders", partitions=2)
        running.create_topic("dlq.orders")
        with Producer(running.bootstrap) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number, partition=number % 2)
            producer.send_many("dlq.orders", [letter(number) for number in range(LETTERS)])
        with Admin(running.bootstrap) as admin:
            admin.alter_group_offsets("billing", {("orders", 0): 5, ("orders", 1): 10})
            admin.alter_share_group_offsets("warehouse", {("orders", 0): 4})
            topic = {"errors.deadletterqueue.topic.name": "dlq.orders"}
            admin.alter_configs("group", "warehouse", topic)
        yield running


def letter(number: int) -> ProducerRecord:
    """Of two reasons; the last one's record is gone."""
    is_rejected = number % 4
    reason = (
        "Offset rejected by client."
        if is_rejected
        else "Offset delivery count exceeded the threshold."
    )
    offset = 5_000 if number == LETTERS - 1 else number % 10
    told = {"topic": "orders", "partition": 0, "offset": offset, "group": "warehouse"}
    told |= {"delivery.count": 1 if is_rejected else 5, "message": reason}
    headers = [(f"__dlq.errors.{key}", str(value).encode()) for key, value in told.items()]
    return ProducerRecord(b"letter %d" % number, key=b"k%d" % number, headers=headers)


@pytest.fixture
def page(chromium: Browser, broker: EmbeddedBroker) -> Iterator[Page]:
    with chromium.new_context(base_url=broker.console_url) as context:
        opened = context.new_page()
        opened.set_default_timeout(WAIT_MS)
        yield opened


@pytest.mark.parametrize(
    ("encoding", "typed", "value"),
    [
        ("text", "plain text", b"plain text"),
        ("json", '{"a": 1}', b'{"a": 1}'),
        ("base64", "AAEC/w==", b"\x00\x01\x02\xff"),
        ("null", "", None),
    ],
)
def test_case_45_records_are_produced_and_shown_with_their_offset(
    page: Page, broker: EmbeddedBroker, encoding: str, typed: str, value: bytes | None
) -> None:
    page.goto("c/local/topics/orders/produce")
    page.get_by_label("Key", exact=True).fill("k")
    page.get_by_label("Value", exact=True).fill(typed)
    page.get_by_label("Value as").select_option(encoding)
    page.get_by_label("Headers").fill("source: browser")
    page.get_by_label("Partition").fill("1")
    page.get_by_role("button", name="Produce").click()
    page.wait_for_url("**/topics/orders/messages/1/*")
    offset = int(page.url.rpartition("/")[2])
    assert page.get_by_role("heading", name=f"Partition 1, offset {offset}").is_visible()
    assert page.get_by_role("cell", name="browser").is_visible()
    with Reader(broker.bootstrap, "orders", start={1: offset}, partitions=[1]) as reader:
        [record] = reader.read_many(1)
    assert (record.key, record.value) == (b"k", value)
    page.get_by_role("link", name="produce again").click()
    page.get_by_role("button", name="Produce").click()
    page.wait_for_url(f"**/topics/orders/messages/1/{offset + 1}")


def test_cases_48_and_61_a_reset_by_keys_alone(page: Page, broker: EmbeddedBroker) -> None:
    page.goto("c/local/groups")
    page.locator("main tbody tr a").first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups/billing")
    tab_to(page, page.locator("select[name=to]"))
    page.keyboard.type("earliest")
    tab_to(page, page.get_by_role("button", name="Preview"))
    page.keyboard.press("Enter")
    page.get_by_text("records are read again").wait_for()
    tab_to(page, page.get_by_role("button", name="Apply"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups/billing")
    with Admin(broker.bootstrap) as admin:
        found = {one.partition: one.offset for one in admin.list_group_offsets("billing")}
    assert found == {0: 0, 1: 0}
    # At once, not when the last answer has grown old.
    shown = page.locator("main tbody tr td:nth-of-type(3)").all_inner_texts()
    assert [one.strip() for one in shown] == ["0", "0"]


def tab_to(page: Page, wanted: Locator) -> None:
    """By the key alone; where the focus is can be seen all the way."""
    for _ in range(100):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement !== document.body"):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if wanted.evaluate("(one) => one === document.activeElement"):
            return
    raise AssertionError(f"the key Tab does not lead to {wanted}")


def test_case_51_a_stall_is_told_with_its_holder_and_clears_by_itself(
    page: Page, broker: EmbeddedBroker
) -> None:
    broker.create_topic("jobs")
    with Admin(broker.bootstrap) as admin:
        setting = {"share.partition.max.record.locks": str(LOCKS)}
        admin.alter_configs("group", "workers", setting)
    with Producer(broker.bootstrap) as producer:
        producer.send_many("jobs", [ProducerRecord(b"%d" % one) for one in range(3 * LOCKS)])
    with ShareConsumer(
        broker.bootstrap,
        group="workers",
        topics=["jobs"],
        ack_mode="explicit",
        auto_offset_reset="earliest",
        client_id="worker-3",
    ) as worker:
        records = worker.poll(timeout=30)
        for record in records[1:]:
            worker.acknowledge(record)
        worker.commit()
        page.goto("c/local/queues/workers/jobs/0")
        stalled = page.locator("ul.facts .pill.warn", has_text=re.compile("^STALLED"))
        stalled.wait_for()
        why = page.locator(".why").inner_text()
        assert "offset 0 is held by" in why
        with Admin(broker.bootstrap) as admin:
            [group] = admin.describe_share_groups(["workers"])
        assert group.members[0].id in why or "worker-3" in why
        page.goto("c/local/")
        page.locator(".findings").get_by_text("queue workers").first.wait_for()
        page.goto("c/local/queues/workers/jobs/0")
        worker.acknowledge(records[0])
        worker.commit()
        stalled.wait_for(state="detached")


def test_case_61_arrows_move_along_the_columns_and_enter_opens_the_record(
    page: Page, broker: EmbeddedBroker
) -> None:
    with ShareConsumer(
        broker.bootstrap,
        group="readers",
        topics=["orders"],
        ack_mode="explicit",
        auto_offset_reset="earliest",
    ) as worker:
        records = worker.poll(timeout=30)
        partition = records[0].partition
        for record in records[2:5]:
            worker.acknowledge(record)
        worker.commit()
        path = f"c/local/queues/readers/orders/{partition}"
        page.goto(path)
        strip = page.locator(".window-box[data-record] svg")
        strip.wait_for()
        tab_to(page, strip)
        before = strip.get_attribute("aria-valuetext")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        told = strip.get_attribute("aria-valuetext")
        assert told != before
        assert page.locator(".column").inner_text().startswith(str(told))
        for _ in range(2):
            with page.expect_response(lambda answer: answer.url.endswith(path)):
                pass  # live swaps
        assert strip.evaluate("(one) => one === document.activeElement")
        assert strip.get_attribute("aria-valuetext") == told
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/topics/orders/messages/{partition}/*")
        page.go_back()
        page.wait_for_url(f"**/{path}")
        page.get_by_role("link", name="start", exact=True).click()
        page.wait_for_url("**zoom=start")
        strip.wait_for()


def test_case_55_letters_are_grouped_and_lead_to_their_records(
    page: Page, broker: EmbeddedBroker
) -> None:
    page.goto("c/local/queues/warehouse/letters")
    told = f"{LETTERS} of this queue in the last hour"
    page.wait_for_function("(text) => document.body.innerText.includes(text)", arg=told)
    facts = page.locator("main ul.facts").first.inner_text()
    limit = len([one for one in range(LETTERS) if one % 4 == 0])
    assert f"{limit}" in facts
    assert f"{LETTERS - limit}" in facts
    page.get_by_role("link", name="orders-0@3").first.click()
    page.wait_for_url("**/topics/orders/messages/0/3")
    assert page.locator("main pre code").first.inner_text() == "6"
    page.go_back()
    page.get_by_role("link", name=f"orders-0@{5_000:,}".replace(",", "")).first.click()
    page.get_by_text("is beyond the end").wait_for()
    page.go_back()
    page.get_by_label("letter 0@3", exact=True).check()
    page.locator("form[action$=redrive-preview] button").click()
    page.get_by_role("button", name="Send 1 letter(s)").click()
    done = "Redrive done"
    page.wait_for_function("(text) => document.body.innerText.includes(text)", arg=done)
    with Reader(broker.bootstrap, "orders", stop="latest") as reader:
        values = [one.value for one in reader.records()]
    assert values.count(b"letter 3") == 1


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
    "c/local/queues/warehouse?tab=settings",
    "c/local/queues/warehouse/letters",
    "c/local/transactions",
    "c/local/doctor",
)
LAST = ("group delete", "share-group delete", "group forget", "share-group forget", "topic delete")
PLACES = {
    "KEY=VALUE": "retention.ms=86400000",
    "TOPIC": "orders",
    "N": "4",
    "TOPIC:PARTITION": "orders:0",
}


def place_of(command: str) -> int:
    """Those that delete come last, and the topic after its groups."""
    return next((n for n, last in enumerate(LAST, 1) if f"ottla {last}" in command), 0)


def test_case_29_a_reader_can_change_nothing_and_every_command_runs_as_printed(
    chromium: Browser,
) -> None:
    with EmbeddedBroker(console=True) as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("dlq.orders")
        with Producer(broker.bootstrap) as producer:
            for number in range(4):
                producer.send("orders", b"%d" % number, partition=number % 2)
        with Admin(broker.bootstrap) as admin:
            admin.alter_group_offsets("billing", {("orders", 0): 1})
            admin.alter_share_group_offsets("warehouse", {("orders", 0): 1})
            topic = {"errors.deadletterqueue.topic.name": "dlq.orders"}
            admin.alter_configs("group", "warehouse", topic)
        commands: dict[str, None] = {}
        with chromium.new_context(base_url=broker.console_url) as context:
            page = context.new_page()
            page.goto("c/local/queues")
            page.get_by_role("link", name="warehouse").wait_for()
            for path in PAGES:
                page.goto(path)
                enabled = page.evaluate(
                    "[...document.querySelectorAll('main form[method=post] button')]"
                    ".filter((one) => !one.disabled).map((one) => one.outerHTML)"
                )
                assert enabled == [], path
                for form in page.locator("main form[method=post]").all():
                    shown = form.locator("xpath=following::details[contains(@class, 'command')]")
                    assert shown.count() > 0, (path, form.inner_html())
                for one in page.locator("details.command code").all():
                    commands[one.text_content() or ""] = None
        lines = sorted(commands, key=place_of)
        assert len(lines) > 15
        one_thread = ThreadPoolExecutor(1)
        for line in lines:
            if place_of(line):  # each of these has something to delete
                with Admin(broker.bootstrap) as admin:
                    admin.alter_group_offsets("billing", {("orders", 0): 1})
                    admin.alter_share_group_offsets("warehouse", {("orders", 0): 1})
            words = [PLACES.get(word, word) for word in shlex.split(line)]
            if "topic create" in line:
                words = ["another" if word == "orders" else word for word in words]
            if "share-group alter" in line:
                words = [re.sub("^retention.*", "share.delivery.count.limit=4", w) for w in words]
            if words[1] == "transaction" and "abort" in words:
                continue  # there is none
            # In a thread of its own: the browser is driven by a loop in this one.
            result = one_thread.submit(CliRunner().invoke, app, words[1:], input="").result()
            assert result.exit_code == 0, (line, result.output)
