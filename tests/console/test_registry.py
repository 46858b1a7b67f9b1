"""Records by the schemas of the broker's registry; files of them."""

from __future__ import annotations

import asyncio
import io
import json
import struct
from typing import TYPE_CHECKING

import fastavro
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from ottla.client.producer.types import ProducerRecord
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Mask, Settings
from ottla.schemas.registry_client import SchemaRegistry
from ottla.sync import Producer
from ottla.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "n", "type": "long"}, {"name": "shop", "type": "string"}],
}
RECORDS = 700
"""More than are decoded at once."""


async def register(url: str) -> int:
    async with SchemaRegistry(url) as registry:
        return (await registry.register("orders-value", json.dumps(SCHEMA), kind="avro")).id


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as running:
        running.create_topic("orders")
        number = asyncio.run(register(running.registry_url))
        parsed = fastavro.parse_schema(SCHEMA)
        values = []
        for n in range(RECORDS):
            out = io.BytesIO()
            row = {"n": n, "shop": "berlin" if n % 100 == 3 else "rome"}
            fastavro.schemaless_writer(out, parsed, row)
            values.append(b"\0" + struct.pack(">i", number) + out.getvalue())
        with Producer(running.bootstrap) as producer:
            producer.send_many("orders", [ProducerRecord(one, key=b"k") for one in values])
        yield running


def console(broker: EmbeddedBroker, *masks: Mask) -> TestClient:
    settings = Settings(clusters=(ClusterSettings("local", broker.bootstrap, masks=masks),))
    return TestClient(make_app(settings), base_url="http://127.0.0.1:9095")


def test_records_are_shown_searched_and_downloaded_by_their_schema(
    broker: EmbeddedBroker,
) -> None:
    with console(broker) as client:
        page = client.get("/c/local/topics/orders/messages").text
        assert "&#34;n&#34;:699,&#34;shop&#34;:&#34;rome&#34;" in page
        one = client.get("/c/local/topics/orders/messages/0/3").text
        assert "AVRO schema 1" in one
        where = 'value.shop == "berlin" && value.n > 100'
        found = client.get(
            "/api/v1/c/local/topics/orders/messages", params={"from": "oldest", "where": where}
        )
        numbers = [json.loads(one)["value"]["json"]["n"] for one in found.text.splitlines()]
        assert numbers == [103, 203, 303, 403, 503, 603]


def test_case_44_parquet_has_the_same_rows(broker: EmbeddedBroker) -> None:
    with console(broker) as client:
        answer = client.get("/c/local/topics/orders/download?format=parquet")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    table = pq.read_table(io.BytesIO(answer.content))
    rows = table.to_pylist()
    assert [json.loads(one["value"])["n"] for one in rows] == list(range(RECORDS))
    assert {(one["key"], one["value_form"], one["state"]) for one in rows} == {
        ("k", "avro", "committed")
    }
    assert [one["offset"] for one in rows] == list(range(RECORDS))


def test_case_43_a_masked_field_of_a_schema_is_in_no_file(broker: EmbeddedBroker) -> None:
    with console(broker, Mask("orders", ("value.shop",))) as client:
        for form in ("jsonl", "csv", "parquet"):
            answer = client.get(f"/c/local/topics/orders/download?format={form}&from=offset:690")
            text = answer.content
            if form == "parquet":
                text = str(pq.read_table(io.BytesIO(answer.content)).to_pylist()).encode()
            assert b"rome" not in text
            assert b"***" in text
        found = client.get("/c/local/topics/orders/messages?contains=rome").text
        assert "0 found" in found
