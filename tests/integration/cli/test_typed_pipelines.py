"""`ottla pipeline check` with a registry and a catalogue: case 93 of tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ottla.cli.pipeline import app
from ottla.objects.location import StoreLocation
from ottla.sync import Admin, SchemaRegistry
from ottla.tables.iceberg_catalogs import open_catalog
from ottla.tables.iceberg_types import iceberg_schema
from ottla.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long("brokers, and pyiceberg's import")

PIPELINE = """
from pyspark.sql import functions as f
from ottla.spark.pipelines import flow, registry, source, table, topic

source("orders", topic="{topics}", schema=registry({arguments}))

@flow("totals", reads=["orders"], writes={writes})
def totals(orders):
    return orders.where(orders.{field} > 1).select("shop", f.col("amount"))
"""
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "shop", "type": "string"}, {"name": "amount", "type": "double"}],
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as running:
        with Admin(running.bootstrap) as admin:
            for name in ("orders", "shops"):
                admin.create_topic(name)
        with SchemaRegistry(running.registry_url) as registry:
            registry.register("orders-value", json.dumps(ORDER))
            registry.register("shops-value", '{"type": "record", "name": "S", "fields": []}')
        yield running


def checked(
    broker: EmbeddedBroker,
    directory: Path,
    *options: str,
    topics: str = "orders",
    arguments: str = "",
    field: str = "amount",
    writes: str = "topic('totals')",
) -> tuple[int, str]:
    file = directory / "p.py"
    file.write_text(PIPELINE.format(topics=topics, arguments=arguments, field=field, writes=writes))
    state = str(directory / "state")
    command = ["check", str(file), "--bootstrap", broker.bootstrap, "--state", state]
    done = CliRunner().invoke(app, [*command, *options])
    return done.exit_code, done.output


def test_case_93_the_columns_of_a_subject_are_shown(broker: EmbeddedBroker, tmp_path: Path) -> None:
    status, said = checked(broker, tmp_path, "--json")
    assert status == 0, said
    assert json.loads(said)["sources"] == {"orders": ["shop string", "amount double"]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"field": "amuont"}, "orders has no field amuont; did you mean amount?"),
        ({"arguments": "'nothing-value'"}, "no version latest of subject nothing-value"),
        ({"arguments": "version=7"}, "no version 7 of subject orders-value"),
        ({"topics": "orders,shops"}, "topics of different schemas (orders-value and shops-value)"),
        ({"arguments": "invalid='no'"}, "invalid is one of fail, null, drop"),
    ],
)
def test_case_93_what_is_wrong_is_found_before_spark_starts(
    broker: EmbeddedBroker, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    status, told = checked(broker, tmp_path, **changes)
    assert status == 2
    assert said in " ".join(told.split())


def test_case_93_a_sink_into_the_table_of_a_topic(broker: EmbeddedBroker, tmp_path: Path) -> None:
    writes = "table('totals', format='iceberg')"
    assert checked(broker, tmp_path, writes=writes)[0] == 0
    assert not (tmp_path / "state").exists()  # looking does not make
    tables = tmp_path / "state" / "tables"
    tables.mkdir(parents=True)

    catalog = open_catalog(f"sqlite:///{tables}/catalog.db", StoreLocation("file", str(tables), ""))
    catalog.create_namespace("ottla")
    columns = iceberg_schema(pa.schema([("a", pa.int64())]))
    catalog.create_table("ottla.totals", columns, properties={"ottla.topic": "orders"})
    catalog.close()
    status, told = checked(broker, tmp_path, writes=writes)
    assert status == 2
    assert "ottla.totals is the table of topic orders" in " ".join(told.split())


def test_case_93_a_source_whose_topic_has_no_table(broker: EmbeddedBroker, tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(
        "from ottla.spark.pipelines import *\nsource('orders', table='orders')\n"
        "@flow('f', reads=['orders'], writes=console())\ndef f(orders): return orders\n"
    )
    done = CliRunner().invoke(app, ["check", str(file), "--bootstrap", broker.bootstrap])
    assert done.exit_code == 2
    assert "topic orders has no table yet" in " ".join(done.output.split())


def test_a_broker_without_a_registry_is_told(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("orders")
        status, told = checked(broker, tmp_path)
    assert status == 4
    assert "start them with --registry" in " ".join(told.split())
