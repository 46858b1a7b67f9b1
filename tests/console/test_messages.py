"""Records in the console: the right ones, each once, in order; filters; files."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from typing import TYPE_CHECKING

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from ottla.testing.embedded import EmbeddedBroker

BASE_MS = 1_700_000_000_000
RECORDS = 130
"""More than two pages."""


def value(number: int) -> bytes:
    return json.dumps({"n": number, "shop": "berlin" if number % 10 == 3 else "rome"}).encode()


@pytest.fixture(scope="module", autouse=True)
def filled(broker: EmbeddedBroker) -> None:
    """`orders`: three partitions, whose times interleave."""
    broker.create_topic("orders", partitions=3)
    broker.create_topic("empty", partitions=2)
    broker.create_topic("expired")
    broker.create_topic("ledger")

    async def fill() -> None:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many(
                "orders",
                [
                    ProducerRecord(
                        value(number),
                        key=f"k{number}".encode(),
                        headers=[("source", b"web" if number % 2 else b"app")],
                        timestamp_ms=BASE_MS + number * 1000,
                        partition=number % 3,
                    )
                    for number in range(RECORDS)
                ],
            )
            await producer.send_many("expired", [ProducerRecord(b"x")] * 3)
        async with Producer(broker.bootstrap, transactional_id="t") as producer:
            for name, fails in (("a", False), ("b", True), ("c", False)):
                try:
                    async with producer.transaction():
                        await producer.send("ledger", f"kept-{name}".encode())
                        if fails:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_records({("expired", 0): -1})

    asyncio.run(fill())


def numbers(console: TestClient, query: str) -> tuple[list[int], str | None]:
    """The records of a page of the API, and where the next one begins."""
    answer = console.get(f"/api/v1/c/local/topics/orders/messages?{query}")
    assert answer.status_code == 200, answer.text
    found = [json.loads(one)["value"]["json"]["n"] for one in answer.text.splitlines()]
    return found, answer.headers.get("ottla-next")


def walk(console: TestClient, query: str) -> list[int]:
    found, onward = numbers(console, query)
    while onward is not None:
        more, onward = numbers(console, f"{query}&{onward}")
        found += more
    return found


def test_case_34_newest_and_oldest_give_each_record_once_in_order(console: TestClient) -> None:
    assert walk(console, "from=newest") == list(reversed(range(RECORDS)))
    assert walk(console, "from=oldest") == list(range(RECORDS))


def test_case_34_offset_time_and_one_partition(console: TestClient) -> None:
    assert walk(console, "from=oldest&p=1") == list(range(1, RECORDS, 3))
    assert walk(console, "from=offset:40&p=0") == list(range(120, RECORDS, 3))
    time = "2023-11-14T22:15:00Z"  # 100 s after the first
    assert numbers(console, f"from=time:{time}&rows=5")[0] == [100, 101, 102, 103, 104]
    assert walk(console, "from=ago:1m") == []


def links(page: str) -> dict[str, str]:
    return {
        rel: re.sub("&amp;", "&", href)
        for rel, href in re.findall(r'<a rel="(prev|next)" href="([^"]+)"', page)
    }


def offsets(page: str) -> list[tuple[str, str]]:
    return re.findall(r"/messages/(\d+)/(\d+)\"", page)


def test_case_34_pages_lead_to_the_next_and_back(console: TestClient) -> None:
    first = console.get("/c/local/topics/orders/messages").text
    second = console.get(links(first)["next"]).text
    third = console.get(links(second)["next"]).text
    seen = offsets(first) + offsets(second) + offsets(third)
    assert len(seen) == len(set(seen)) == RECORDS
    assert "next" not in links(third)
    back = console.get(links(third)["prev"]).text
    assert offsets(back) == offsets(second)
    # The URL repeats it.
    assert offsets(console.get(links(first)["next"]).text) == offsets(second)


def test_case_34_a_record_has_a_page_of_its_own(console: TestClient) -> None:
    page = console.get("/c/local/topics/orders/messages/0/1").text
    assert "&#34;n&#34;: 3" in page
    assert "source" in page
    for form, shown in (("hex", "7b 22 6e 22"), ("text", "&#34;n&#34;")):
        assert shown in console.get(f"/c/local/topics/orders/messages/0/1?as={form}").text
    raw = console.get("/c/local/topics/orders/messages/0/1/raw")
    assert raw.content == value(3)
    assert raw.headers["content-disposition"] == 'attachment; filename="record-0-1.bin"'
    assert raw.headers["content-type"] == "application/octet-stream"


def test_case_35_aborted_records_are_left_out_or_marked(console: TestClient) -> None:
    committed = console.get("/c/local/topics/ledger/messages").text
    assert ("kept-a" in committed, "kept-b" in committed, "kept-c" in committed) == (
        True,
        False,
        True,
    )
    every = console.get("/c/local/topics/ledger/messages?isolation=uncommitted").text
    rows = re.findall(r"<tr.*?</tr>", every, re.DOTALL)
    [aborted] = [row for row in rows if "kept-b" in row]
    assert "aborted" in aborted
    assert all("aborted" not in row for row in rows if "kept-a" in row or "kept-c" in row)
    # Offset 1 marks the end of the first transaction.
    assert "holds no record" in console.get("/c/local/topics/ledger/messages/0/1").text


def test_case_36_pages_without_records_say_why(console: TestClient) -> None:
    def page(path: str) -> str:
        return console.get(f"/c/local/topics/{path}").text

    assert "The topic is empty" in page("empty/messages")
    assert "All records have expired: before offset 3" in page("expired/messages")
    assert "beyond the end; the last is 43" in page("orders/messages?from=offset:5000&p=0")
    assert "beyond the end" in page("orders/messages/0/5000")
    assert "has expired" in page("expired/messages/0/1")
    assert "Nothing was written after" in page("orders/messages?from=ago:1m")
    assert "no topic of this name" in page("nothing/messages")
    assert "has no partition 7" in page("orders/messages?p=7")
    assert "from is newest, oldest" in page("orders/messages?from=yesterday")


def test_case_40_filters_find_what_a_plain_filter_finds(console: TestClient) -> None:
    berlin = [number for number in range(RECORDS) if number % 10 == 3]
    assert walk(console, "from=oldest&contains=berlin") == berlin
    assert walk(console, "from=newest&contains=berlin&rows=4") == berlin[::-1]
    where = "value.n%20%3E%2050%20%26%26%20headers.source%20%3D%3D%20%22web%22"
    wanted = [number for number in range(RECORDS) if number > 50 and number % 2]
    assert walk(console, f"from=oldest&where={where}") == wanted
    both = walk(console, f"from=oldest&where={where}&contains=berlin")
    assert both == [number for number in wanted if number % 10 == 3]
    assert walk(console, "from=oldest&contains=app&p=0") == list(range(0, RECORDS, 6))


def test_case_40_the_page_says_what_it_scanned(console: TestClient) -> None:
    page = console.get("/c/local/topics/orders/messages?contains=berlin").text
    assert re.search(rf"scanned {RECORDS} of {RECORDS} records", page)
    assert "13 found" in page
    assert "reached <time" in page
    errors = console.get("/c/local/topics/orders/messages?where=value.absent%20%3E%201").text
    assert f"where failed for {RECORDS} records" in errors


def test_case_41_a_wrong_expression_is_told_on_the_page(console: TestClient) -> None:
    page = console.get("/c/local/topics/orders/messages?where=value.n%20%3E")
    assert page.status_code == 200
    assert "where is not an expression" in page.text
    answer = console.get("/api/v1/c/local/topics/orders/messages?where=value.n%20%3E")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("said", ["as=zzz", "isolation=zzz"])
def test_a_choice_that_does_not_exist_is_refused(console: TestClient, said: str) -> None:
    """Fault: it was taken for the default."""
    for path in ("/c/local/topics/orders/messages", "/api/v1/c/local/topics/orders/messages"):
        answer = console.get(f"{path}?{said}")
        assert (answer.status_code, "zzz" in answer.text) == (400, True)


def test_case_44_downloads_have_the_same_rows(console: TestClient) -> None:
    answer = console.get("/c/local/topics/orders/download?format=jsonl")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert "attachment" in answer.headers["content-disposition"]
    lines = [json.loads(one) for one in answer.text.splitlines()]
    assert sorted(one["value"]["json"]["n"] for one in lines) == list(range(RECORDS))
    table = console.get("/c/local/topics/orders/download?format=csv&contains=berlin").text
    rows = list(csv.DictReader(io.StringIO(table)))
    assert sorted(json.loads(row["value"])["n"] for row in rows) == list(range(3, RECORDS, 10))
    assert console.get("/c/local/topics/orders/download?format=xml").status_code == 400
