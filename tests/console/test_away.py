"""Changes of a cluster that is away: told as such, with what to do."""

from __future__ import annotations

import re
import time

import pytest
from starlette.testclient import TestClient

from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.testing.embedded import EmbeddedBroker
from tests.console.conftest import URL

pytestmark = pytest.mark.long
WAIT = 60.0


def test_case_15_a_change_while_the_broker_is_down_is_a_503_with_a_sentence() -> None:
    broker = EmbeddedBroker().start()
    try:
        broker.create_topic("orders")
        cluster = ClusterSettings("local", broker.bootstrap, write=True)
        with TestClient(
            make_app(Settings(write=True, clusters=(cluster,))), base_url=URL
        ) as client:
            end = time.monotonic() + WAIT
            while ">orders<" not in client.get("/c/local/topics").text:
                assert time.monotonic() < end
            page = client.get("/c/local/topics/orders/produce").text
            found = re.search(r'name="token" value="(\w+)"', page)
            assert found is not None
            broker.stop()
            for path, form in (
                ("topics/orders/produce", {"value": "x"}),
                ("topics/orders/configs/preview", {"key": "retention.ms", "value": "1"}),
                ("groups/billing/reset-preview", {"to": "earliest"}),
            ):
                answer = client.post(
                    f"/c/local/{path}",
                    data={"token": found[1], **form},
                    headers={"origin": URL},
                )
                assert answer.status_code == 503, answer.text
                assert "retry-after" in answer.headers
                assert "Error 503" in answer.text
    finally:
        broker.stop()
