"""Changes from pages: behind one gate, as previewed, and told in the audit log."""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from ottla.console.guard import MAX_FIELDS
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.console.snapshot import Kind
from ottla.console.views.frame import PAGE_ROWS
from ottla.sync import Admin, Consumer, Producer, Reader, ShareConsumer
from ottla.testing.embedded import EmbeddedBroker
from tests.console.conftest import URL

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = {"origin": URL}
WAIT = 30.0


@pytest.fixture(scope="module", autouse=True)
def filled(broker: EmbeddedBroker) -> None:
    broker.create_topic("orders", partitions=2)
    with Producer(broker.bootstrap) as producer:
        for number in range(20):
            producer.send("orders", b"%d" % number, partition=number % 2)


@pytest.fixture(scope="module")
def writing(broker: EmbeddedBroker) -> Iterator[TestClient]:
    cluster = ClusterSettings("local", broker.bootstrap, write=True)
    with TestClient(make_app(Settings(write=True, clusters=(cluster,))), base_url=URL) as client:
        yield client


def token(client: TestClient, path: str) -> str:
    found = re.search(r'name="token" value="(\w+)"', client.get(path).text)
    assert found is not None
    return found[1]


def post(client: TestClient, path: str, page: str = "", **form: str) -> Any:
    data = {"token": token(client, page or path), **form}
    return client.post(path, data=data, headers=OURS, follow_redirects=False)


PRODUCE = "/c/local/topics/orders/produce"
TOPICS = "/c/local/topics"
GROUP = "/c/local/groups/billing"
QUEUE = "/c/local/queues/warehouse"
FORMS = {
    PRODUCE: PRODUCE,
    "/c/local/topics/orders/configs/preview": "/c/local/topics/orders?tab=configs",
    "/c/local/topics/orders/configs/apply": "/c/local/topics/orders?tab=configs",
    "/c/local/topics/orders/partitions": "/c/local/topics/orders?tab=configs",
    "/c/local/topics/orders/delete": "/c/local/topics/orders?tab=configs",
    TOPICS: TOPICS,
    f"{GROUP}/reset-preview": GROUP,
    f"{GROUP}/reset": GROUP,
    f"{GROUP}/forget": GROUP,
    f"{GROUP}/delete": GROUP,
    f"{QUEUE}/reset-preview": f"{QUEUE}?tab=settings",
    f"{QUEUE}/reset": f"{QUEUE}?tab=settings",
    f"{QUEUE}/forget": f"{QUEUE}?tab=settings",
    f"{QUEUE}/delete": f"{QUEUE}?tab=settings",
    f"{QUEUE}/configs/preview": f"{QUEUE}?tab=settings",
    f"{QUEUE}/configs/apply": f"{QUEUE}?tab=settings",
    "/c/local/nodes/drain": PRODUCE,
    "/c/local/nodes/move": PRODUCE,
    "/c/local/nodes/elect": PRODUCE,
    "/c/local/security/preview": "/c/local/security",
    "/c/local/security/apply": "/c/local/security",
    "/c/local/schemas/change/preview": PRODUCE,
    "/c/local/schemas/change/apply": PRODUCE,
    "/c/local/transactions/t/fence": PRODUCE,
    "/c/local/transactions/hanging/abort": PRODUCE,
}


@pytest.fixture(autouse=True)
def group(broker: EmbeddedBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets("billing", {("orders", 0): 5, ("orders", 1): 10})
        admin.alter_share_group_offsets("warehouse", {("orders", 0): 4, ("orders", 1): 6})


def ends(broker: EmbeddedBroker) -> int:
    with Admin(broker.bootstrap) as admin:
        return sum(one.offset for one in admin.list_offsets(["orders"]).values())


@pytest.mark.parametrize("path", FORMS)
def test_case_26_a_change_needs_a_token_and_our_origin(
    writing: TestClient, broker: EmbeddedBroker, path: str
) -> None:
    before = ends(broker)
    right = token(writing, FORMS[path])
    form = {"value": "x", "name": "orders", "key": "retention.ms", "to": "earliest"}
    for data, headers in (
        (form, OURS),
        ({**form, "token": "0" * 64}, OURS),
        ({**form, "token": right}, {"origin": "http://evil.example"}),
        ({**form, "token": right}, {"origin": "http://127.0.0.1:8080"}),
        ({**form, "token": right}, {"sec-fetch-site": "cross-site"}),
    ):
        assert writing.post(path, data=data, headers=headers).status_code == 403
    if path not in (PRODUCE, TOPICS):  # which are pages, too
        assert writing.get(path).status_code in (404, 405)
    other = TestClient(writing.app, base_url=URL)
    assert other.post(path, data={**form, "token": right}, headers=OURS).status_code == 403
    assert ends(broker) == before


@pytest.mark.parametrize("path", FORMS)
def test_case_29_a_console_that_reads_changes_nothing(console: TestClient, path: str) -> None:
    page = console.get(FORMS[path]).text
    for button in re.findall(r"<button[^>]*>", page.partition("<main")[2]):
        if "plain" not in button:
            assert "disabled" in button
    assert "ottla " in page
    answer = post(console, path, FORMS[path], name="orders", value="x")
    assert answer.status_code == 403
    assert "read-only" in answer.text


@pytest.mark.parametrize(
    ("encoding", "text", "shown"),
    [
        ("text", "hello", "hello"),
        ("json", '{"n": 9007199254740993}', "9007199254740993"),
        ("base64", base64.b64encode(b"\x00\xff").decode(), "00 ff"),
        ("null", "ignored", "null"),
    ],
)
def test_case_45_a_record_is_produced_and_shown(
    writing: TestClient, encoding: str, text: str, shown: str
) -> None:
    answer = post(
        writing,
        PRODUCE,
        value=text,
        value_as=encoding,
        key="k",
        headers="source: web",
        partition="1",
    )
    assert answer.status_code == 303, answer.text
    assert "/messages/1/" in answer.headers["location"]
    page = writing.get(answer.headers["location"]).text
    assert shown in page
    assert "source" in page


@pytest.mark.parametrize(
    "form",
    [
        {"value": "{", "value_as": "json"},
        {"value": "%", "value_as": "base64"},
        {"value": "x", "value_as": "xml"},
        {"value": "x", "headers": "no colon"},
    ],
)
def test_case_45_what_is_not_so_is_refused(writing: TestClient, form: dict[str, str]) -> None:
    assert post(writing, PRODUCE, **form).status_code == 400


def moves(page: str) -> str:
    found = re.search(r'name="moves" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def committed(broker: EmbeddedBroker) -> dict[int, int]:
    with Admin(broker.bootstrap) as admin:
        return {one.partition: one.offset for one in admin.list_group_offsets("billing")}


def test_case_48_a_reset_is_applied_as_previewed(
    writing: TestClient, broker: EmbeddedBroker
) -> None:
    page = post(writing, f"{GROUP}/reset-preview", GROUP, to="earliest").text
    assert "<b>15</b> records are read again, <b>0</b> are skipped" in page
    assert committed(broker) == {0: 5, 1: 10}
    assert post(writing, f"{GROUP}/reset", GROUP, moves=moves(page)).status_code == 303
    assert committed(broker) == {0: 0, 1: 0}
    shifted = post(writing, f"{GROUP}/reset-preview", GROUP, to="shift", at="3").text
    assert "<b>6</b> are skipped" in shifted


def test_case_48_a_group_with_members_refuses(writing: TestClient, broker: EmbeddedBroker) -> None:
    page = post(writing, f"{GROUP}/reset-preview", GROUP, to="latest").text
    with Consumer(broker.bootstrap, group="billing", topics=["orders"]) as consumer:
        consumer.poll(timeout=10)
        answer = post(writing, f"{GROUP}/reset", GROUP, moves=moves(page))
        assert answer.status_code == 409
        assert "member(s); stop them" in answer.text
        again = post(writing, f"{GROUP}/reset-preview", GROUP, to="latest")
        assert again.status_code == 409


def test_case_48_a_group_that_has_moved_refuses(
    writing: TestClient, broker: EmbeddedBroker
) -> None:
    """Fault: what was previewed as read again was something else by then."""
    page = post(writing, f"{GROUP}/reset-preview", GROUP, to="earliest").text
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets("billing", {("orders", 0): 4})
    answer = post(writing, f"{GROUP}/reset", GROUP, moves=moves(page))
    assert (answer.status_code, "have changed since the preview" in answer.text) == (409, True)
    assert committed(broker) == {0: 4, 1: 10}
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets("billing", {("orders", 0): 5})
    assert post(writing, f"{GROUP}/reset", GROUP, moves=moves(page)).status_code == 303


def test_case_48_moves_cannot_be_forged(writing: TestClient, broker: EmbeddedBroker) -> None:
    page = post(writing, f"{GROUP}/reset-preview", GROUP, to="latest").text
    mark = moves(page).partition(".")[0]
    forged = base64.urlsafe_b64encode(json.dumps(["billing", [["orders", 0, 5, 1]]]).encode())
    for text in ("", mark, f"{mark}.{forged.decode()}"):
        answer = post(writing, f"{GROUP}/reset", GROUP, moves=text)
        assert answer.status_code == 409
    other = "/c/local/groups/other"
    assert post(writing, f"{other}/reset", GROUP, moves=moves(page)).status_code == 409
    assert committed(broker) == {0: 5, 1: 10}


def applied(client: TestClient, path: str, page: str, **form: str) -> Any:
    """The change of a preview, as its form has it."""
    shown = post(client, f"{path}/preview", page, **form)
    assert shown.status_code == 200, shown.text
    found = re.search(r'name="change" value="([^"]+)"', shown.text)
    assert found is not None
    return shown.text, post(client, f"{path}/apply", page, change=found[1])


def test_a_setting_is_checked_and_previewed_before_it_is_changed(
    writing: TestClient, broker: EmbeddedBroker
) -> None:
    path, page = "/c/local/topics/orders/configs", "/c/local/topics/orders?tab=configs"
    wrong = post(writing, f"{path}/preview", page, key="retention.ms", value="soon")
    assert wrong.status_code == 400
    text, answer = applied(writing, path, page, key="retention.ms", value="86400000")
    assert "retention.ms=604800000 (default)" in text
    assert "retention.ms=86400000" in text
    assert "topic alter --config retention.ms=86400000" in text
    assert answer.status_code == 303
    assert "86400000" in writing.get(page).text
    _, answer = applied(writing, path, page, key="retention.ms", default="1")
    assert answer.status_code == 303
    with Admin(broker.bootstrap) as admin:
        [found] = admin.describe_configs("topic", "orders", ["retention.ms"])
    assert found.is_default
    forged = post(writing, f"{path}/apply", page, change="0.W10=")
    assert forged.status_code == 409


def test_a_retention_says_what_becomes_deletable(
    writing: TestClient, broker: EmbeddedBroker
) -> None:
    """All records are younger than an hour and older than a millisecond."""
    broker.create_topic("old", partitions=1)
    with Producer(broker.bootstrap) as producer:
        for _ in range(10):
            producer.send("old", b"x" * 1000)
    page = "/c/local/topics/old?tab=configs"
    end = time.monotonic() + WAIT
    while "KiB" not in writing.get("/c/local/topics/old").text:  # the size is known
        assert time.monotonic() < end
        writing.app.state.console.clusters["local"].snapshot.forget(Kind.LOG_DIRS)  # type: ignore[attr-defined]
    path = "/c/local/topics/old/configs/preview"
    young = post(writing, path, page, key="retention.ms", value="3600000").text
    assert "About 0 B of" in young
    every = post(writing, path, page, key="retention.ms", value="1").text
    assert re.search(r"About (\d+\.\d KiB) of \1 become deletable", every)
    half = post(writing, path, page, key="retention.bytes", value="5000").text
    assert re.search(r"About \d\.\d KiB of 1\d\.\d KiB become deletable", half)


def test_a_topic_is_created_and_its_page_is_there(
    writing: TestClient, broker: EmbeddedBroker
) -> None:
    form = {"name": "new", "partitions": "3", "configs": "retention.ms=1000\n\n"}
    answer = post(writing, TOPICS, **form)
    assert answer.headers["location"] == "/c/local/topics/new"
    assert "<b>3</b> partitions" in writing.get(answer.headers["location"]).text
    with Admin(broker.bootstrap) as admin:
        [found] = admin.describe_configs("topic", "new", ["retention.ms"])
    assert found.value == "1000"
    assert post(writing, TOPICS, **form).status_code == 409  # there is one
    for wrong in ({"name": ""}, {"name": "a", "configs": "nonsense"}):
        assert post(writing, TOPICS, **wrong).status_code == 400
    assert post(writing, TOPICS, name="a/b").status_code in (400, 409)


def test_partitions_are_added(writing: TestClient, broker: EmbeddedBroker) -> None:
    broker.create_topic("small")
    path, page = "/c/local/topics/small/partitions", PRODUCE
    assert post(writing, path, page, total="3").status_code == 303
    assert "<b>3</b> partitions" in writing.get("/c/local/topics/small").text
    assert post(writing, path, page, total="2").status_code == 409
    assert post(writing, path, page, total="many").status_code == 404


def starts(broker: EmbeddedBroker) -> dict[int, int | None]:
    with Admin(broker.bootstrap) as admin:
        found = admin.list_share_group_offsets("warehouse")
    return {one.partition: one.start_offset for one in found}


def test_case_48_a_queue_is_reset_as_previewed(writing: TestClient, broker: EmbeddedBroker) -> None:
    page = f"{QUEUE}?tab=settings"
    text = post(writing, f"{QUEUE}/reset-preview", page, to="earliest").text
    assert "<b>10</b> records are delivered again, <b>0</b> are skipped" in text
    assert starts(broker) == {0: 4, 1: 6}
    other = post(writing, f"{GROUP}/reset", GROUP, moves=moves(text))
    assert other.status_code == 409  # of another group, and of another kind
    with ShareConsumer(broker.bootstrap, group="warehouse", topics=["orders"]) as worker:
        worker.poll(timeout=10)
        answer = post(writing, f"{QUEUE}/reset", page, moves=moves(text))
        assert answer.status_code == 409
        assert "member(s); stop them" in answer.text
    assert post(writing, f"{QUEUE}/reset", page, moves=moves(text)).status_code == 303
    assert starts(broker) == {0: 0, 1: 0}
    assert "start <b>0</b>" in writing.get(QUEUE).text


def test_settings_of_a_queue(writing: TestClient, broker: EmbeddedBroker) -> None:
    page, key = f"{QUEUE}?tab=settings", "share.record.lock.duration.ms"
    assert key in writing.get(page).text
    text, answer = applied(writing, f"{QUEUE}/configs", page, key=key, value="20000")
    assert f"share-group alter --config {key}=20000" in text
    assert answer.status_code == 303
    with Admin(broker.bootstrap) as admin:
        [found] = admin.describe_configs("group", "warehouse", [key])
    assert found.value == "20000"
    _, answer = applied(writing, f"{QUEUE}/configs", page, key=key, default="1")
    assert answer.status_code == 303


def test_offsets_in_a_topic_are_forgotten(writing: TestClient, broker: EmbeddedBroker) -> None:
    assert post(writing, f"{GROUP}/forget", GROUP, name="").status_code == 400
    assert post(writing, f"{GROUP}/forget", GROUP, name="none").status_code == 404
    assert post(writing, f"{GROUP}/forget", GROUP, name="orders").status_code == 303
    assert committed(broker) == {}
    page = f"{QUEUE}?tab=settings"
    assert post(writing, f"{QUEUE}/forget", page, name="orders").status_code == 303
    assert starts(broker) == {}
    assert post(writing, f"{QUEUE}/delete", page, name="other").status_code == 400
    assert post(writing, f"{QUEUE}/delete", page, name="warehouse").status_code == 303
    with Admin(broker.bootstrap) as admin:
        assert "warehouse" not in [one.id for one in admin.list_groups()]
    assert "warehouse</bdi>" not in writing.get("/c/local/queues").text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"k", b'{"a": 1}\n'),
        (None, None),
        (b"", "\u202e \u00fc".encode()),
        (b"\xff\x00", b"a\r\nb"),
        (b"k", b"\nfirst line is empty"),
    ],
)
def test_case_45_produce_again_sends_the_same_record(
    writing: TestClient, broker: EmbeddedBroker, key: bytes | None, value: bytes | None
) -> None:
    headers = [("source", b"web"), ("bytes", b"\xff"), ("null", None)]
    with Producer(broker.bootstrap) as producer:
        first = producer.send("orders", value, key=key, headers=headers, partition=1)
    page = f"{PRODUCE}?from=1@{first.offset}"
    text = writing.get(page).text
    assert "2 header(s) of the record are no text" in text
    form = {
        name: html.unescape(found[1])
        for name in ("key", "value", "headers")
        if (found := re.search(rf'<textarea name="{name}"[^>]*>(.*?)</textarea>', text, re.DOTALL))
    }
    for name in ("key", "value"):
        chosen = re.search(rf'<select name="{name}_as">.*?<option selected>(\w+)', text, re.DOTALL)
        assert chosen is not None
        form[f"{name}_as"] = chosen[1]
    answer = post(writing, PRODUCE, page, **form, partition="1")
    assert answer.status_code == 303
    with Reader(broker.bootstrap, "orders", start={1: first.offset + 1}, partitions=[1]) as reader:
        [again] = reader.read_many(1)
    assert (again.key, again.value, list(again.headers)) == (key, value, headers[:1])
    assert writing.get(f"{PRODUCE}?from=1@99999").status_code == 404
    assert writing.get(f"{PRODUCE}?from=nonsense").status_code == 404


def test_deleting_asks_for_the_name(
    writing: TestClient, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("doomed")
    path = "/c/local/topics/doomed/delete"
    page = "/c/local/topics/orders?tab=configs"
    caplog.set_level(logging.INFO, "ottla.audit")
    assert post(writing, path, page, name="orders").status_code == 400
    assert post(writing, path, page, name="doomed").status_code == 303
    with Admin(broker.bootstrap) as admin:
        assert "doomed" not in [one.name for one in admin.list_topics()]
    assert post(writing, f"{GROUP}/delete", GROUP, name="billing").status_code == 303
    lines = [json.loads(one.message) for one in caplog.records if one.name == "ottla.audit"]
    assert [(one["operation"], one["resource"], one["outcome"]) for one in lines] == [
        ("Delete", "topic doomed", "done"),
        ("Delete", "group billing", "done"),
    ]
    assert {one["cluster"] for one in lines} == {"local"}


def test_audit_lines_have_no_contents(
    writing: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    post(writing, PRODUCE, value="very secret", key="hidden key")
    [line] = [one.message for one in caplog.records if one.name == "ottla.audit"]
    assert "secret" not in line
    assert "hidden" not in line
    assert json.loads(line)["resource"] == "topic orders"


def test_a_page_of_letters_that_are_all_chosen_is_a_form(writing: TestClient) -> None:
    """It has as many fields as a page has letters, and some more."""
    chosen = {f"l:0@{one}": "1" for one in range(PAGE_ROWS)}
    more = {"which": "chosen", "how": "key", "to": "", "rate": "500", "force": "1"}
    path = "/c/local/queues/warehouse/letters/redrive-preview"
    answer = post(writing, path, PRODUCE, **chosen, **more)
    assert answer.status_code == 409, answer.text
    assert "There are no letters" in answer.text
    many = {f"l:0@{one}": "1" for one in range(MAX_FIELDS)}
    assert post(writing, path, PRODUCE, **many).status_code == 400


def test_preferred_nodes_lead_although_another_one_is_down() -> None:
    with EmbeddedBroker(nodes=3) as broker:
        broker.create_topic("orders", partitions=6)
        cluster = ClusterSettings("local", broker.bootstrap, write=True)
        app = make_app(Settings(write=True, clusters=(cluster,)))
        with Admin(broker.bootstrap) as admin, TestClient(app, base_url=URL) as client:
            first = {one.leader for one in admin.describe_topics(["orders"])[0].partitions}
            assert first == {1, 2, 3}
            broker.stop_node(3)
            answer = post(client, "/c/local/nodes/elect", "/c/local/nodes")
            assert answer.status_code == 303, answer.text
