"""`/api/v1`: valid, described, and as the description says."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.clock import SYSTEM
from ottla.console.api.changes import CHANGED
from ottla.console.api.openapi import document
from ottla.console.api.routes import SERVED
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.metadata.names import PIPELINES_TOPIC
from ottla.sync import Admin as SyncAdmin
from ottla.sync import Producer as SyncProducer
from ottla.sync import ShareConsumer
from tests.console.conftest import URL
from tests.support.pipeline_run import PipelineRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.embedded import EmbeddedBroker

COMMITTED = Path(__file__).parents[2] / "docs/reference/console-openapi.json"
WAIT = 60.0
REMAKE = "python -m tests.console.test_api writes it anew"


@pytest.fixture(scope="module", autouse=True)
def filled(broker: EmbeddedBroker) -> Iterator[None]:
    broker.create_topic("orders", partitions=2)

    async def fill() -> None:
        async with (
            Producer(broker.bootstrap, transactional_id="t") as producer,
            producer.transaction(),
        ):
            await producer.send("orders", b'{"n": 1}', partition=0)
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_group_offsets("billing", {("orders", 0): 0})

    asyncio.run(fill())
    broker.create_topic(PIPELINES_TOPIC)
    run = PipelineRun(at_ms=SYSTEM.wall_ms())
    run.batch(1)
    with SyncProducer(broker.bootstrap) as telling:
        records = [ProducerRecord(one.value, key=one.key) for one in run.tell()]
        telling.send_many(PIPELINES_TOPIC, records)
    with ShareConsumer(
        broker.bootstrap,
        group="warehouse",
        topics=["orders"],
        ack_mode="explicit",
        auto_offset_reset="earliest",
    ) as worker:
        assert worker.poll(timeout=30)
        yield


def text() -> str:
    return json.dumps(document(SERVED, CHANGED), indent=1, sort_keys=True) + "\n"


def test_case_68_the_committed_description_is_that_of_the_code() -> None:
    assert COMMITTED.read_text() == text(), REMAKE


NAMES = {
    "cluster": "local",
    "topic": "orders",
    "group": "billing",
    "queue": "warehouse",
    "partition": "0",
    "subject": "orders-value",
    "pipeline": "orders",
    "id": "t",
}


@pytest.mark.parametrize("served", SERVED, ids=lambda one: one.path)
def test_case_68_answers_are_as_described(console: TestClient, served: Any) -> None:
    end = time.monotonic() + WAIT
    while (answer := console.get(served.path.format(**NAMES))).status_code != 200:
        # What the cluster has not told yet may be missing.
        assert time.monotonic() < end, answer.text
    described = console.get("/api/v1/openapi.json").json()
    if served.view is None:
        [line] = answer.text.splitlines()
        assert json.loads(line)["value"] == {"json": {"n": 1}}
        return
    [content] = described["paths"][served.path]["get"]["responses"]["200"]["content"].values()
    schema = {**content["schema"], "components": described["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer.json())


@pytest.mark.long
def test_a_series_has_its_points(console: TestClient) -> None:
    """Its name is listed once two samples of a topic have come."""
    end = time.monotonic() + WAIT
    path = "/api/v1/series?cluster=local"
    while "topic/orders/records_per_s" not in (found := console.get(path).json())["names"]:
        assert time.monotonic() < end, found
        time.sleep(0.2)
    answer = console.get(f"{path}&name=topic/orders/records_per_s&from=ago:10m").json()
    assert answer["step_s"] == 10
    assert any(one["value"] is not None for one in answer["points"])
    day = console.get("/api/v1/series?name=topic/orders/records_per_s&from=ago:1d&step=600")
    assert day.json()["step_s"] == 600
    for query, status in (
        ("name=topic/none/x", 404),
        ("name=a//b", 404),
        ("cluster=none", 404),
        ("name=a&from=yesterday", 400),
        ("name=a&from=newest", 400),
        ("name=a&step=0", 400),
    ):
        assert console.get(f"/api/v1/series?{query}").status_code == status, query


def test_errors_are_problems(console: TestClient) -> None:
    for path, status in (
        ("c/local/topics/none", 404),
        ("c/local/tables/none", 404),
        ("c/none/topics", 404),
        ("none", 404),
    ):
        answer = console.get(f"/api/v1/{path}")
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status


def test_letters_of_no_queue_are_not_found(console: TestClient) -> None:
    """Until the cluster has told its groups, the queue may be there."""
    end = time.monotonic() + WAIT
    while (answer := console.get("/api/v1/c/local/queues/none/letters")).status_code != 404:
        assert time.monotonic() < end, answer.text
    assert answer.json()["detail"] == "The cluster has no queue of this name."


@pytest.fixture(scope="module")
def writing(broker: EmbeddedBroker) -> Iterator[TestClient]:
    broker.create_topic("made")
    with SyncAdmin(broker.bootstrap) as admin:
        admin.alter_group_offsets("late", {("made", 0): 0})
    cluster = ClusterSettings("local", broker.bootstrap, write=True)
    with TestClient(make_app(Settings(write=True, clusters=(cluster,))), base_url=URL) as client:
        yield client


def test_changes_do_nothing_unless_dry_run_is_false(
    writing: TestClient, broker: EmbeddedBroker
) -> None:
    def send(path: str, **body: object) -> Any:
        return writing.post(f"/api/v1/c/local/{path}", json=body)

    def ends() -> int:
        with SyncAdmin(broker.bootstrap) as admin:
            return next(iter(admin.list_offsets(["made"]).values())).offset

    record = {"value": '{"a": 1}', "value_as": "json", "headers": {"source": "api"}}
    assert send("topics/made/messages", **record).json() == {"dry_run": True, "size": 8}
    assert ends() == 0
    done = send("topics/made/messages", **record, dry_run=False).json()
    assert done == {"dry_run": False, "partition": 0, "offset": 0}
    assert ends() == 1
    seen = send("groups/late/reset", to="latest").json()
    move = {"topic": "made", "partition": 0, "before": 0, "after": 1}
    assert (seen["moves"], seen["skipped"], seen["dry_run"]) == ([move], 1, True)
    assert send("groups/late/reset", to="latest", dry_run=False).json()["moves"] == [move]
    with SyncAdmin(broker.bootstrap) as admin:
        [offset] = admin.list_group_offsets("late")
    assert offset.offset == 1
    key = {"key": "retention.ms", "value": "1000"}
    assert send("topics/made/configs", **key).json()["before"] == "604800000"
    assert send("topics/made/configs", **key, dry_run=False).json()["after"] == "1000"
    assert send("topics/made/configs", **key).json()["before"] == "1000"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("topics/made/messages", {"vaule": "x", "dry_run": False}, 400),
        ("topics/none/messages", {"value": "x"}, 404),
        ("topics/made/messages", {"value": 1}, 400),
        ("topics/made/messages", {"value": "{", "value_as": "json"}, 400),
        ("topics/made/messages", {"dry_run": "no"}, 400),
        ("topics/made/configs", {"key": "retention.ms", "value": "soon"}, 400),
        ("topics/made/configs", {"key": "retention.ms"}, 400),
        ("groups/late/reset", {"to": "nowhere"}, 400),
        ("groups/late/reset", {"to": "time", "at": "yesterday"}, 400),
        ("queues/none/letters/redrive", {"letters": "all"}, 409),
        ("transactions/none/fence", {}, 409),
    ],
)
def test_wrong_changes_are_problems(
    writing: TestClient, path: str, body: dict[str, Any], status: int
) -> None:
    answer = writing.post(f"/api/v1/c/local/{path}", json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_case_26_changes_of_the_api_cannot_come_from_other_sites(
    writing: TestClient, console: TestClient
) -> None:
    path = "/api/v1/c/local/topics/orders/messages"
    body = {"value": "x", "dry_run": False}
    assert writing.post(path, json=body, headers={"origin": "http://evil"}).status_code == 403
    form = writing.post(path, data=body)  # what a page may send without asking
    assert form.status_code == 415
    text = writing.post(path, content='{"value": "x"}', headers={"content-type": "text/plain"})
    assert text.status_code == 415
    refused = console.post(path, json=body)
    assert refused.status_code == 403
    assert "read-only" in refused.json()["detail"]


if __name__ == "__main__":
    COMMITTED.write_text(text())
