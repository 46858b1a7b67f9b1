"""Changes from pages: behind one gate, as previewed, and told in the audit log."""

from __future__ import annotations

import base64
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from ottla.console.guard import MAX_FIELDS
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.console.views.frame import PAGE_ROWS
from ottla.sync import Admin, Consumer, Producer
from tests.console.conftest import URL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.embedded import EmbeddedBroker

OURS = {"origin": URL}


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
GROUP = "/c/local/groups/billing"
FORMS = {
    PRODUCE: PRODUCE,
    "/c/local/topics/orders/configs": "/c/local/topics/orders?tab=configs",
    "/c/local/topics/orders/delete": "/c/local/topics/orders?tab=configs",
    f"{GROUP}/reset-preview": GROUP,
    f"{GROUP}/reset": GROUP,
    f"{GROUP}/delete": GROUP,
    "/c/local/nodes/drain": PRODUCE,
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
    if path != PRODUCE:  # which has a page of its own
        assert writing.get(path).status_code == 405
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


def test_a_setting_is_checked_before_it_is_changed(
    writing: TestClient, broker: EmbeddedBroker
) -> None:
    path, page = "/c/local/topics/orders/configs", "/c/local/topics/orders?tab=configs"
    assert post(writing, path, page, key="retention.ms", value="soon").status_code == 400
    assert post(writing, path, page, key="retention.ms", value="86400000").status_code == 303
    assert "86400000" in writing.get(page).text
    assert post(writing, path, page, key="retention.ms", default="1").status_code == 303
    with Admin(broker.bootstrap) as admin:
        [found] = admin.describe_configs("topic", "orders", ["retention.ms"])
    assert found.is_default


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
