"""Tables, schemas, security and doctor on a real broker."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from ottla.client.producer.types import ProducerRecord
from ottla.console.serve import make_app
from ottla.console.settings import ClusterSettings, Settings
from ottla.schemas.registry_client import SchemaRegistry
from ottla.sync import Admin, Producer
from ottla.tables.pointer import Pointer, encode_pointer
from ottla.testing.embedded import EmbeddedBroker
from ottla.testing.secured import Secured

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long
URL = "http://127.0.0.1:9095"
WAIT = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as running:
        running.create_topic("orders", partitions=2)
        with Admin(running.bootstrap) as admin:
            admin.create_topic("ottla.tables", 1, configs={"cleanup.policy": "compact"})
        pointer = Pointer("orders", "id", "ottla.orders", "file:///m", "iceberg", 7, {0: 3, 1: 0})
        with Producer(running.bootstrap) as producer:
            producer.send_many("orders", [ProducerRecord(b"x", partition=0)] * 10)
            producer.send("ottla.tables", b"not a pointer", key=b"broken")
            producer.send("ottla.tables", encode_pointer(pointer), key=b"orders")

        async def register() -> None:
            async with SchemaRegistry(running.registry_url) as registry:
                for names in (["a"], ["a", "b"]):
                    fields = [{"name": one, "type": "string", "default": ""} for one in names]
                    text = json.dumps({"type": "record", "name": "Order", "fields": fields})
                    await registry.register("orders-value", text, kind="avro")

        asyncio.run(register())
        yield running


@pytest.fixture(scope="module")
def client(broker: EmbeddedBroker) -> Iterator[TestClient]:
    settings = Settings(clusters=(ClusterSettings("local", broker.bootstrap),))
    with TestClient(make_app(settings), base_url=URL) as found:
        yield found


def until(client: TestClient, path: str, *texts: str) -> str:
    """The page once it has these texts; what the cluster has not told yet is missing on it."""
    end = time.monotonic() + WAIT
    while not all(text in (page := client.get(path).text) for text in texts):
        assert time.monotonic() < end, page
    return page


def test_case_74_tables_are_as_their_pointers_say(client: TestClient) -> None:
    view = until(client, "/api/v1/c/local/tables", '"lag_records":7')
    [row] = json.loads(view)["tables"]["rows"]
    assert (row["topic"], row["name"]) == ("orders", "ottla.orders")
    until(client, "/c/local/tables", '<a href="/c/local/tables/orders">')
    until(client, "/c/local/tables/orders", "file:///m")
    until(client, "/c/local/tables/payments", "no worker has named a table")


def test_case_74_schemas_are_as_the_registry_says(
    client: TestClient, broker: EmbeddedBroker
) -> None:
    subject = '<a href="/c/local/schemas/orders-value">'
    # Navigation shows what the cluster has.
    nav = ('href="/c/local/schemas"', 'href="/c/local/tables"')
    until(client, "/c/local/schemas", broker.registry_url, subject, *nav)
    until(client, "/c/local/schemas/orders-value", "compared with 1", 'class="added">+')
    first = until(client, "/c/local/schemas/orders-value?version=1", "<h2>Version 1</h2>")
    assert "compared with" not in first
    until(client, "/c/local/schemas/none", "error code 40401")
    until(client, "/api/v1/c/local/schemas/none", '"status":404', "error code 40401")


def test_the_doctor_tells_what_the_console_may_do_and_gives_a_report(client: TestClient) -> None:
    until(client, "/c/local/doctor", "read-only: start it with --write", "ListOffsets")
    report = client.get("/c/local/doctor/report")
    assert "attachment" in report.headers["content-disposition"]
    assert report.json()["own"]["may_write"] is False
    assert report.json()["own"]["resident_bytes"] > 0


def test_without_a_registry_and_tables_pages_say_how_to_get_them() -> None:
    with EmbeddedBroker() as plain:
        settings = Settings(clusters=(ClusterSettings("local", plain.bootstrap),))
        with TestClient(make_app(settings), base_url=URL) as client:
            until(client, "/c/local/schemas", "start the broker with --registry")
            page = until(client, "/c/local/tables", "No tables")
            assert 'href="/c/local/schemas"' not in page
            until(client, "/c/local/security", "no authorizer")
            until(client, "/c/local/tier", "remote.log.storage.system.enable=true")


def test_case_75_rights_as_a_user_without_them_and_as_an_admin() -> None:
    secured = Secured(
        users={"admin": "secret", "bob": "secret"},
        super_users=["admin"],
        acls=["allow bob read,describe topic:orders*"],
        quotas={"bob": {"producer_byte_rate": 1e6}},
        protocol="SASL_PLAINTEXT",
    )
    with EmbeddedBroker(security=secured) as broker:
        names = ("admin", "bob")
        settings = Settings(
            clusters=tuple(
                ClusterSettings(one, broker.bootstrap, str(broker.properties_file(one)))
                for one in names
            )
        )
        with TestClient(make_app(settings), base_url=URL) as client:
            seen = client.get("/api/v1/c/admin/security").json()
            hidden = client.get("/api/v1/c/bob/security").json()
            page = client.get("/c/bob/security").text
        with Admin(broker.bootstrap, security=broker.security("admin")) as admin:
            users, acls, quotas = (
                admin.describe_users(),
                admin.describe_acls(),
                admin.describe_quotas(),
            )
    assert [one["name"] for one in seen["users"]] == sorted(one.name for one in users)
    assert seen["acls"]["total"] == len(acls) > 0
    assert len(seen["quotas"]) == sum(len(one.values) for one in quotas) > 0
    for kind in ("users", "acls", "quotas"):
        assert hidden[kind]["missing"].startswith("not allowed: needs Describe"), hidden[kind]
    assert "not allowed: needs Describe on the cluster" in page
