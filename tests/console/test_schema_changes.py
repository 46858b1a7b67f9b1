"""Schemas are checked, registered and deleted as previewed."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.testing.embedded import EmbeddedBroker
from tests.console.conftest import URL

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long
OURS = {"origin": URL}
SUBJECT = "orders-value"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with EmbeddedBroker(registry=True) as broker:
        cluster = ClusterSettings(
            "local", broker.bootstrap, write=True, registry=broker.registry_url
        )
        made = make_app(Settings(write=True, clusters=(cluster,)))
        with TestClient(made, base_url=URL, follow_redirects=False) as found:
            yield found


def schema(*names: str, default: bool = True) -> str:
    given = {"default": ""} if default else {}
    fields = [{"name": one, "type": "string", **given} for one in names]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def post(client: TestClient, step: str, **form: str) -> Any:
    page = client.get("/c/local/topics/x/produce").text
    found = re.search(r'name="token" value="(\w+)"', page)
    assert found is not None
    data = {"token": found[1], **form}
    return client.post(f"/c/local/schemas/change/{step}", data=data, headers=OURS)


def change(client: TestClient, **form: str) -> Any:
    seen = post(client, "preview", **form)
    assert seen.status_code == 200, seen.text
    found = re.search(r'name="change" value="([^"]+)"', seen.text)
    assert found is not None, seen.text
    answer = post(client, "apply", change=found[1])
    assert answer.status_code == 303, answer.text
    return seen.text


def versions(client: TestClient) -> list[int]:
    found = client.get(f"/api/v1/c/local/schemas/{SUBJECT}").json()
    return [one["version"] for one in found["versions"]]


def test_case_74_schemas_are_checked_registered_and_deleted(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    form = {"do": "register", "subject": SUBJECT, "kind": "avro"}
    assert "The subject is new." in change(client, **form, schema=schema("a"))
    assert versions(client) == [1]
    seen = change(client, **form, schema=schema("a", "b"))
    assert "It may follow version 1." in seen
    assert 'class="added">+' in seen
    assert versions(client) == [2, 1]

    wrong = post(client, "preview", **form, schema=schema("a", "b", "c", default=False))
    assert wrong.status_code == 200
    assert "It may not follow the versions" in wrong.text
    assert 'name="change" value=""' in wrong.text, "there is nothing to apply"
    for text in ("{", '{"type": "planet"}'):
        assert post(client, "preview", **form, schema=text).status_code == 422

    seen = change(client, do="level", subject=SUBJECT, level="NONE")
    assert "BACKWARD" in seen
    assert client.get(f"/api/v1/c/local/schemas/{SUBJECT}").json()["level"] == "NONE"
    change(client, **form, schema=schema("a", "b", "c", default=False))
    assert versions(client) == [3, 2, 1]

    gone = {"do": "delete", "subject": SUBJECT}
    assert post(client, "preview", **gone, name="orders").status_code == 400
    change(client, **gone, name=SUBJECT, version="3")
    assert versions(client) == [2, 1]
    change(client, **gone, name=SUBJECT)
    assert client.get(f"/api/v1/c/local/schemas/{SUBJECT}").status_code == 404

    lines = [json.loads(one.message) for one in caplog.records if one.name == "ottla.audit"]
    done = [(one["operation"], one["resource"]) for one in lines if "cluster" in one]
    assert done == [
        ("Write", f"subject {SUBJECT}"),
        ("Write", f"subject {SUBJECT}"),
        ("AlterConfigs", f"compatibility of subject {SUBJECT}"),
        ("Write", f"subject {SUBJECT}"),
        ("Delete", f"subject {SUBJECT} version 3"),
        ("Delete", f"subject {SUBJECT}"),
    ]
    assert "Order" not in str(lines)


def test_case_74_a_registry_that_is_away_is_a_503_and_none_a_409() -> None:
    away = ClusterSettings("local", "127.0.0.1:1", write=True, registry="http://127.0.0.1:1")
    none = ClusterSettings("local", "127.0.0.1:1", write=True)
    for cluster, status in ((away, 503), (none, 409)):
        settings = Settings(write=True, clusters=(cluster,))
        with TestClient(make_app(settings), base_url=URL) as client:
            answer = post(client, "preview", do="level", level="FULL")
            assert answer.status_code == status, answer.text
