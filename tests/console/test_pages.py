"""Pages of the console: safe headers, hostile names, the gate; what they show."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.routing import BaseRoute, Mount, Route
from starlette.testclient import TestClient

import ottla.console
from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.console.guard import POLICY
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Mask, Settings
from ottla.console.slugs import slug
from ottla.console.text import csv_cell
from tests.console.conftest import URL
from tests.support.tiered_broker import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.embedded import EmbeddedBroker

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    '<div hx-get="/x" hx-trigger="load">',
    "{{7*7}}",
    "\u202egnirts\u200b",
)
GROUPS = ["a/b", "..", ".", " ", "\N{PARTY POPPER}", "=x", "g" * 249, "<script>alert(1)</script>"]


@pytest.fixture(scope="module", autouse=True)
def filled(broker: EmbeddedBroker) -> None:
    for name in ("orders", "hostile", "secret", "payroll"):
        broker.create_topic(name)
    broker.create_topic("kept-1", configs={"cleanup.policy": "compact"})
    broker.create_topic("kept-2", configs={"retention.ms": "7200000"})
    broker.create_topic("kept-3", configs={"retention.ms": "-1"})

    async def fill() -> None:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many(
                "hostile",
                [
                    ProducerRecord(
                        text.encode(), key=text.encode(), headers=[(text, text.encode())]
                    )
                    for text in (*HOSTILE, "=cmd()", "@x", '{"n": 9007199254740993}')
                ],
            )
            await producer.send("orders", b"one")
            await producer.send("secret", b'{"email": "a@b.c", "n": 1}')
            await producer.send("payroll", b"12345")
        async with Admin(broker.bootstrap) as admin:
            for group in GROUPS:
                await admin.alter_group_offsets(group, {("orders", 0): 0})

    asyncio.run(fill())


PAGES = (
    "/c/local/",
    "/c/local/topics",
    "/c/local/topics/orders",
    "/c/local/topics/orders?tab=configs",
    "/c/local/topics/orders?tab=readers",
    "/c/local/topics/orders/messages",
    "/c/local/topics/orders/messages/0/0",
    "/c/local/topics/orders/produce",
    "/c/local/groups",
    "/c/local/groups/nobody",
    "/c/local/queues",
    "/c/local/queues/nobody",
    "/c/local/queues/nobody?tab=settings",
    "/c/local/queues/nobody/letters",
    "/c/local/queues/nobody/orders/0",
    "/c/local/transactions",
    "/c/local/nodes",
)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_comes(console: TestClient, path: str) -> None:
    answer = console.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.text.count("<h1>") == 1
    assert "<title>" in answer.text


@pytest.mark.parametrize("path", [one for one in PAGES if "tab=" not in one])
def test_every_page_has_its_twin_in_json(console: TestClient, path: str) -> None:
    twin = path.replace("/c/local/", "/api/v1/c/local/")
    if twin.endswith("local/"):
        twin += "overview"
    if "messages/0" in twin or "produce" in twin:
        return
    answer = console.get(twin)
    assert answer.status_code == (404 if "nobody" in twin else 200), answer.text
    if "nobody" in twin:
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.text)["title"]


def test_case_1_the_overview_lists_the_topics(console: TestClient) -> None:
    page = console.get("/", follow_redirects=True).text
    for name in ("orders", "hostile", "secret"):
        assert f">{name}</bdi>" in page
    assert "Nothing needs attention" in page


def test_topics_are_filtered_and_sorted_by_the_url(console: TestClient) -> None:
    page = console.get("/c/local/topics?contains=ORD").text
    assert "orders" in page
    assert "hostile</bdi>" not in page
    names = re.findall(
        r'scope="row"><a href="[^"]+"><bdi>(\w+)',
        console.get("/c/local/topics?sort=name&desc=1").text,
    )
    assert names == sorted(names, reverse=True)


def hostile_paths() -> Iterator[str]:
    yield "/c/local/topics/hostile/messages"
    yield "/c/local/topics/hostile/messages?as=text"
    for offset in range(len(HOSTILE)):
        yield f"/c/local/topics/hostile/messages/0/{offset}"
    yield "/c/local/groups"
    yield f"/c/local/groups/{slug(GROUPS[-1])}"
    for text in HOSTILE:
        yield f"/c/local/topics/{slug(text)}"
        yield f"/c/local/queues/{slug(text)}"
        yield f"/c/local/queues/{slug(text)}/{slug(text)}/0"
        yield f"/c/{slug(text)}/topics"


@pytest.mark.parametrize("path", list(hostile_paths()))
def test_case_20_contents_of_strangers_are_text(console: TestClient, path: str) -> None:
    page = console.get(path).text
    for live in ("<script>alert", "<img", "<svg onload", 'hx-get="', 'href="javascript', ">49<"):
        assert live not in page
    assert "\u202e" not in page
    assert "\u200b" not in page


def test_case_21_what_cannot_be_seen_is_written_out(console: TestClient) -> None:
    page = console.get("/c/local/topics/hostile/messages").text
    assert "⟨U+202E⟩gnirts⟨U+200B⟩" in page


def test_case_24_cells_are_no_formulas(console: TestClient) -> None:
    table = console.get("/c/local/topics/hostile/download?format=csv").text
    values = {row["value"] for row in csv.DictReader(io.StringIO(table))}
    assert {"'=cmd()", "'@x"} <= values


def test_every_table_is_a_file_without_formulas(console: TestClient) -> None:
    answer = console.get("/c/local/groups?format=csv&sort=name")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="groups.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row["name"] for row in rows} >= {csv_cell(group) for group in GROUPS}
    assert {row["kind"] for row in rows} == {"classic"}
    for row in rows:
        assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for cell in row.values())
    topics = console.get("/c/local/topics?format=csv&contains=ord").text
    assert [row["name"] for row in csv.DictReader(io.StringIO(topics))] == ["orders"]
    page = console.get("/c/local/topics?contains=ord&sort=name").text
    assert 'href="/c/local/topics?contains=ord&amp;sort=name&amp;format=csv"' in page
    assert 'href="/api/v1/c/local/topics?contains=ord&amp;sort=name"' in page


def test_topics_tell_retention_and_cleanup(console: TestClient) -> None:
    def rows() -> list[dict[str, object]]:
        answer = console.get("/api/v1/c/local/topics?contains=kept-").json()
        found: list[dict[str, object]] = answer["topics"].get("rows", [])
        return found

    eventually(
        lambda: [row["cleanup"] for row in rows()] == ["compact", "delete", "delete"],
        "settings are told",
    )
    assert [(row["name"], row["retention_s"], row["is_tiered"]) for row in rows()] == [
        ("kept-1", None, False),
        ("kept-2", 7200.0, False),
        ("kept-3", -1.0, False),
    ]
    page = console.get("/c/local/topics?contains=kept-").text
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in page.split("<tr>")[2:5]]
    assert [(row[5], row[6]) for row in cells] == [
        ("-", "<bdi>compact</bdi>"),
        ("2 h 00 min", "<bdi>delete</bdi>"),
        ("for ever", "<bdi>delete</bdi>"),
    ]


def test_case_23_digits_in_list_detail_json_and_csv(console: TestClient) -> None:
    number = "9007199254740993"
    for path in (
        "/c/local/topics/hostile/messages",
        "/c/local/topics/hostile/messages/0/9",
        "/api/v1/c/local/topics/hostile/messages",
        "/c/local/topics/hostile/download?format=csv",
    ):
        assert number in console.get(path).text, path


@pytest.mark.parametrize("group", GROUPS)
def test_case_25_every_group_has_a_page(console: TestClient, group: str) -> None:
    listed = console.get("/c/local/groups").text
    href = f"/c/local/groups/{slug(group)}"
    assert f'href="{href}"' in listed
    page = console.get(href)
    assert page.status_code == 200
    assert "no consumer group of this name" not in page.text
    assert "orders" in page.text
    assert json.loads(console.get(f"/api/v1{href}").text)["name"] == group


def test_case_27_other_hosts_are_not_served(console: TestClient) -> None:
    for host in ("evil.example", "evil.example:9095", "127.0.0.1.evil.example", "a@127.0.0.1", ""):
        answer = console.get("/c/local/", headers={"host": host})
        assert answer.status_code == 421, host
    for host in ("localhost:1", "127.0.0.1", "[::1]:9095", "127.0.0.2"):
        assert console.get("/healthz", headers={"host": host}).status_code == 200, host


def all_routes(routes: list[BaseRoute], prefix: str = "") -> Iterator[tuple[str, Route]]:
    for one in routes:
        if isinstance(one, Mount):
            yield from all_routes(list(one.routes or []), prefix + one.path)
        elif isinstance(one, Route):
            yield prefix + one.path, one


def test_case_28_every_answer_has_the_headers(console: TestClient) -> None:
    paths = [
        *PAGES,
        "/",
        "/healthz",
        "/readyz",
        "/theme?to=dark&back=/",
        "/static/console.css",
        "/static/nothing",
        "/nothing",
        "/c/other/",
        "/api/v1/c/local/topics",
        "/c/local/topics/orders/download",
        "/c/local/topics/orders/messages/0/0/raw",
    ]
    for path in paths:
        headers = console.get(path, follow_redirects=False).headers
        assert headers["content-security-policy"] == POLICY, path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "same-origin", path
        assert headers["cross-origin-opener-policy"] == "same-origin", path
        if not path.startswith("/static/console"):
            assert headers["cache-control"] == "no-store", path
    evil = console.get("/", headers={"host": "evil.example"})
    assert evil.headers["content-security-policy"] == POLICY


def test_case_28_every_change_is_behind_the_gate(settings: Settings) -> None:
    found = dict(all_routes(list(make_app(settings).routes)))
    assert "/c/{cluster}/topics/{topic}" in found
    for path, route in found.items():
        if route.methods is None or not route.methods <= {"GET", "HEAD"}:
            assert hasattr(route.endpoint, "role") or path in ("/login", "/logout"), path


def test_case_26_changes_from_elsewhere_are_refused(console: TestClient) -> None:
    ours = {"origin": URL}
    for path in PAGES:
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "http://127.0.0.1:8080"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
        ):
            answer = console.post(path, headers=headers)
            assert answer.status_code == 403, (path, headers)
        if not path.endswith(("/produce", "/topics")):
            assert console.post(path, headers=ours).status_code == 405, path


def test_no_markup_is_made_elsewhere() -> None:
    room = Path(ottla.console.__file__).parent
    makers = {
        str(file.relative_to(room))
        for file in room.rglob("*.py")
        if re.search(r"\bMarkup\(|\|\s*safe\b", file.read_text())
    }
    assert makers <= {"render.py"}
    for file in (room / "templates").rglob("*.html"):
        text = file.read_text()
        assert "|safe" not in text.replace(" ", ""), file
        assert not re.search(r"\sstyle=|\son\w+=|<script>|<style", text), file


@pytest.fixture(scope="module")
def masked(broker: EmbeddedBroker) -> Iterator[TestClient]:
    cluster = ClusterSettings(
        "local", broker.bootstrap, masks=(Mask("secret", ("value.email",)),), hidden=("payroll",)
    )
    with TestClient(make_app(Settings(clusters=(cluster,))), base_url=URL) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "/c/local/topics/secret/messages",
        "/c/local/topics/secret/messages?as=hex",
        "/c/local/topics/secret/messages?as=text",
        "/c/local/topics/secret/messages/0/0",
        "/c/local/topics/secret/messages/0/0?as=hex",
        "/api/v1/c/local/topics/secret/messages",
        "/c/local/topics/secret/download?format=csv",
        "/c/local/topics/secret/download?format=jsonl",
    ],
)
def test_case_43_masked_fields_are_seen_nowhere(masked: TestClient, path: str) -> None:
    answer = masked.get(path)
    assert answer.status_code == 200
    assert "a@b.c" not in answer.text
    assert b"a@b.c".hex(" ") not in answer.text
    assert "***" in answer.text


def test_case_43_masks_cannot_be_asked_out(masked: TestClient) -> None:
    at = "/c/local/topics/secret/messages"
    assert "0 found" in masked.get(f"{at}?contains=a@b").text
    assert "1 found" in masked.get(f"{at}?contains=***").text
    assert "0 found" in masked.get(f"{at}?where=value.email.startsWith('a')").text
    assert masked.get(f"{at}/0/0/raw").status_code == 403
    again = masked.get("/c/local/topics/secret/produce?from=0@0")
    assert again.status_code == 403
    assert "a@b.c" not in again.text
    assert "produce again" not in masked.get(f"{at}/0/0").text


def test_case_43_hidden_topics_are_never_fetched(masked: TestClient) -> None:
    page = masked.get("/c/local/topics/payroll/messages")
    assert "not shown" in page.text
    assert "12345" not in page.text
    for path in ("messages/0/0", "messages/0/0/raw", "download", "produce?from=0@0"):
        assert masked.get(f"/c/local/topics/payroll/{path}").status_code == 403
    assert masked.get("/api/v1/c/local/topics/payroll/messages").status_code == 403


def test_themes_are_kept_in_a_cookie(settings: Settings) -> None:
    with TestClient(make_app(settings), base_url=URL) as client:
        assert 'data-theme="auto"' in client.get("/c/local/topics").text
        answer = client.get("/theme?to=dark&back=/c/local/topics", follow_redirects=False)
        assert answer.headers["location"] == "/c/local/topics"
        assert 'data-theme="dark"' in client.get("/c/local/topics").text
        for evil in ("//evil.example", "https://evil.example", "/\\evil.example"):
            away = client.get("/theme", params={"to": "x", "back": evil}, follow_redirects=False)
            assert away.headers["location"] == "/"


def test_case_32_everything_stays_below_the_base_path(broker: EmbeddedBroker) -> None:
    settings = Settings(base_path="/kafka/", clusters=(ClusterSettings("local", broker.bootstrap),))
    with TestClient(make_app(settings), base_url=URL) as client:
        assert client.get("/", follow_redirects=False).status_code == 404
        for path in PAGES:
            page = client.get(f"/kafka{path}")
            assert page.status_code == 200, path
            for target in re.findall(r'(?:href|src|action)="([^"#]+)"', page.text):
                assert target.startswith(("/kafka/", "data:,")), target
        assert client.get("/kafka/static/console.css").status_code == 200


def test_case_10_one_cluster_away_does_not_hide_the_other(broker: EmbeddedBroker) -> None:
    clusters = (ClusterSettings("local", broker.bootstrap), ClusterSettings("away", "127.0.0.1:1"))
    with TestClient(make_app(Settings(clusters=clusters)), base_url=URL) as client:
        away = client.get("/c/away/")
        assert away.status_code == 200
        assert "No broker has answered" in away.text
        assert "orders" in client.get("/c/local/topics").text
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert list(ready.json()["away"]) == ["away"]
