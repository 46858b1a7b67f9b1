"""Open and hanging transactions: what they hold back, and how they are ended."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from ottla import Producer
from ottla.client.transactions.types import ProducerFenced
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.testing.embedded import EmbeddedBroker
from tests.console.conftest import URL
from tests.support.raw_client import RawClient, batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long
OURS = {"origin": URL}
VERIFY = "transaction.partition.verification.enable"
ID = "billing 1"
PAGE = "/c/local/transactions/=YmlsbGluZyAx"
WAIT = 60.0
TIMEOUT_MS = 600_000
"""Of the transaction: nothing but the console ends it."""


@pytest.fixture(scope="module")
def writing(broker: EmbeddedBroker) -> Iterator[TestClient]:
    broker.create_topic("orders", partitions=2)
    cluster = ClusterSettings("local", broker.bootstrap, write=True)
    made = make_app(Settings(write=True, clusters=(cluster,)))
    with TestClient(made, base_url=URL, follow_redirects=False) as client:
        yield client


def until(client: TestClient, path: str, text: str) -> str:
    end = time.monotonic() + WAIT
    while text not in (page := client.get(path).text):
        assert time.monotonic() < end, page
        time.sleep(0.1)
    return page


def post(client: TestClient, path: str, **form: str) -> Any:
    found = re.search(r'name="token" value="(\w+)"', client.get("/c/local/topics/any/produce").text)
    assert found is not None
    data = {"token": found[1], **form}
    return client.post(path, data=data, headers=OURS)


async def test_case_58_an_open_transaction_is_shown_with_what_it_holds_back_and_fenced(
    writing: TestClient, broker: EmbeddedBroker
) -> None:
    async def fenced(producer: Producer) -> None:
        async with producer.transaction():
            for _ in range(3):
                await producer.send("orders", b"x", partition=1)
            view = until(writing, "/api/v1" + PAGE, '"state":"Ongoing"')
            assert '"held_back":3' in view
            page = until(writing, "/c/local/transactions", f'href="{PAGE}"')
            assert "<b>1</b> open" in page
            assert post(writing, f"{PAGE}/fence", name="billing").status_code == 400
            assert post(writing, f"{PAGE}/fence", name=ID).status_code == 303

    async with Producer(
        broker.bootstrap, transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS
    ) as producer:
        with pytest.raises(ProducerFenced):
            await fenced(producer)
    view = until(writing, "/api/v1" + PAGE, '"open_s":null')
    assert '"held_back":null' in view
    until(writing, "/c/local/transactions", "<b>0</b> open")


def test_case_58_an_unknown_id_and_nothing_that_hangs(writing: TestClient) -> None:
    until(writing, "/c/local/transactions/none", "No coordinator knows this transactional id")
    assert post(writing, "/c/local/transactions/none/fence", name="none").status_code == 409
    until(writing, "/c/local/transactions?hanging=0", "None hangs.")
    form = {"topic": "orders", "partition": "0", "start": "0"}
    abort = "/c/local/transactions/hanging/abort"
    assert post(writing, abort, **form, name="orders").status_code == 400
    assert post(writing, abort, **form, name="orders-0").status_code == 409


def test_case_58_a_hanging_transaction_is_found_and_aborted() -> None:
    with EmbeddedBroker(config={VERIFY: "false"}) as broker:
        broker.create_topic("stuck")
        data = batch(b"x", producer_id=4711, producer_epoch=0, base_sequence=0, transactional=True)
        request = produce_request("stuck", {0: data})._replace(transactional_id="nobody")
        with RawClient(broker.bootstrap) as raw:
            answer = raw.ask("produce", 9, request)
        assert answer.responses[0].partition_responses[0].error_code == 0
        cluster = ClusterSettings("local", broker.bootstrap, write=True)
        made = make_app(Settings(write=True, clusters=(cluster,)))
        with TestClient(made, base_url=URL, follow_redirects=False) as client:
            page = until(client, "/c/local/transactions?hanging=0", ">stuck-0<")
            assert "4711/0" in page
            assert "None hangs." in client.get("/c/local/transactions?hanging=20").text
            form = {"topic": "stuck", "partition": "0", "start": "0", "name": "stuck-0"}
            abort = "/c/local/transactions/hanging/abort"
            assert post(client, abort, **form).status_code == 303
            assert "None hangs." in client.get("/c/local/transactions?hanging=0").text
            assert post(client, abort, **form).status_code == 409
