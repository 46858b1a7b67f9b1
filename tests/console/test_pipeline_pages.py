"""Pipelines on a real broker: the topic is switched on, filled, read on and deleted."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from ottla.client.security import PLAINTEXT
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.metadata.names import PIPELINES_TOPIC
from ottla.spark.pipelines.publishing import Publisher, find_outlet
from ottla.sync import Admin, Producer
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.secured import Secured
from tests.support.pipeline_run import PipelineRun

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long
URL = "http://127.0.0.1:9095"
WAIT = 60.0
CONFIGS = {"cleanup.policy": "compact,delete", "retention.ms": "604800000"}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[TestClient]:
    settings = Settings(clusters=(ClusterSettings("local", broker.bootstrap),))
    with TestClient(make_app(settings), base_url=URL) as found:
        yield found


def until(client: TestClient, path: str, *texts: str) -> str:
    end = time.monotonic() + WAIT
    while not all(text in (page := client.get(path).text) for text in texts):
        assert time.monotonic() < end, page
        time.sleep(0.2)
    return page


def test_case_60_from_nothing_to_a_failed_flow(client: TestClient, broker: EmbeddedBroker) -> None:
    until(client, "/c/local/pipelines", "ottla topic create ottla.pipelines")
    assert client.get("/api/v1/c/local/pipelines/orders").status_code == 404
    run = PipelineRun(at_ms=time.time_ns() // 1_000_000)
    publisher = Publisher(
        run.announcer, run.board, lambda: find_outlet(broker.bootstrap, PLAINTEXT)
    )
    publisher.round()
    with Admin(broker.bootstrap) as admin:
        assert PIPELINES_TOPIC not in {one.name for one in admin.list_topics()}, "not made unasked"
        admin.create_topic(PIPELINES_TOPIC, 1, configs=CONFIGS)
    with Producer(broker.bootstrap) as producer:
        producer.send(PIPELINES_TOPIC, b"<script>alert(1)</script>", key=b"stranger")
    run.board.enter("valid", "running")
    run.batch(7)
    publisher = Publisher(
        run.announcer, run.board, lambda: find_outlet(broker.bootstrap, PLAINTEXT)
    )
    publisher.round()
    page = until(client, "/c/local/pipelines", '<a href="/c/local/pipelines/orders">')
    assert "1 records of the topic are none" in page
    view = json.loads(until(client, "/api/v1/c/local/pipelines/orders", '"batch":7'))
    assert view["row"]["host"] == "host-a"
    assert "<svg" in until(client, "/c/local/pipelines/orders", "amount &lt; 0", "bad-orders")
    run.board.enter("valid", "failed", "no such <column>")
    publisher.round()
    until(client, "/c/local/pipelines/orders", "no such &lt;column&gt;")
    until(client, "/api/v1/c/local/attention", "failed for good: no such <column>")
    assert client.get("/c/local/pipelines/none").status_code == 200
    assert client.get("/api/v1/c/local/pipelines/none").status_code == 404

    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([PIPELINES_TOPIC])
        run.board.enter("sales", "running")
        publisher.round()
        assert PIPELINES_TOPIC not in {one.name for one in admin.list_topics()}, "not made again"
    publisher.close()
    until(client, "/c/local/pipelines", "ottla topic create ottla.pipelines")


def test_a_user_without_the_right_to_write_is_told_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    acls = ["allow bob describe topic:*"]
    with EmbeddedBroker(security=Secured(users={"bob": "hunter22hunter22"}, acls=acls)) as secured:
        secured.create_topic(PIPELINES_TOPIC)
        run = PipelineRun(at_ms=time.time_ns() // 1_000_000)
        security = secured.security("bob")
        publisher = Publisher(
            run.announcer, run.board, lambda: find_outlet(secured.bootstrap, security)
        )
        publisher.attempt()
        publisher.close()
    assert "needs Describe and Write on topic 'ottla.pipelines'" in caplog.text
