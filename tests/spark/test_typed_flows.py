"""Flows over topics whose schemas are in a registry: cases 89 and 90."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.schemas.encode import encode
from ottla.sync import Producer, Reader, SchemaRegistry
from ottla.testing.embedded import EmbeddedBroker
from tests.support.pipelines import iceberg_rows, run_once, running
from tests.support.spark_source import new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
PIPELINE: Final = """
from ottla.spark.pipelines import flow, registry, source, topic

source("orders", topic="{topic}", schema=registry())

@flow("large", reads=["orders"], writes=topic("{topic}-large", key="shop", schema=registry()))
def large(orders):
    return orders.where("amount > 1"){more}
"""
FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "shop", "type": "string"},
    {"name": "amount", "type": "long"},
]
CUSTOMER: Final = {"name": "customer", "type": ["null", "string"], "default": None}


@pytest.fixture(scope="module")
def registered() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as running:
        yield running


def send(
    broker: EmbeddedBroker, topic: str, fields: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> None:
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    with SchemaRegistry(broker.registry_url) as registry:
        found = registry.register(f"{topic}-value", schema)
    values = encode(pa.RecordBatch.from_pylist(rows), found.schema, id=found.id)
    with Producer(broker.bootstrap) as producer:
        producer.send_arrow(topic, pa.table({"value": values}))


def received(broker: EmbeddedBroker, topic: str) -> list[tuple[bytes | None, Any]]:
    """The records as confluent-kafka reads them."""
    context = SerializationContext(topic, MessageField.VALUE)
    with (
        SchemaRegistryClient({"url": broker.registry_url}) as client,
        Reader(broker.bootstrap, topic, stop="latest") as reader,
    ):
        read = AvroDeserializer(client)
        return [(one.key, read(one.value, context)) for one in reader.records()]


def test_case_89_and_90_columns_of_a_subject_become_avro_and_newer_values_are_resolved(
    spark: SparkSession, registered: EmbeddedBroker, tmp_path: Path
) -> None:
    broker = registered
    topic = new_topic(broker, 1)
    file, state = tmp_path / "p.py", tmp_path / "state"
    file.write_text(PIPELINE.format(topic=topic, more=""))
    send(broker, topic, FIELDS, [{"shop": "a", "amount": one} for one in range(4)])
    run_once(spark, broker.bootstrap, file, state)
    large = f"{topic}-large"
    first = [(b"a", {"shop": "a", "amount": one}) for one in (2, 3)]
    assert received(broker, large) == first

    # Another version: the flow starts again with its columns.
    rows = [{"shop": "b", "amount": 5, "customer": "Ada"}]
    send(broker, topic, [*FIELDS, CUSTOMER], rows)
    run_once(spark, broker.bootstrap, file, state)
    found = received(broker, large)
    assert found[:2] == first
    assert found[2:] == [(b"b", {"shop": "b", "amount": 5, "customer": "Ada"})]
    with SchemaRegistry(broker.registry_url) as registry:
        assert registry.versions(f"{large}-value") == [1, 2]


def test_case_89_columns_that_the_level_refuses_fail_the_start(
    spark: SparkSession, registered: EmbeddedBroker, tmp_path: Path
) -> None:
    broker = registered
    topic = new_topic(broker, 1)
    send(broker, topic, FIELDS, [{"shop": "a", "amount": 7}])
    with SchemaRegistry(broker.registry_url) as registry:
        taken = {"type": "record", "name": "Other", "fields": [{"name": "shop", "type": "int"}]}
        registry.register(f"{topic}-large-value", json.dumps(taken))
    file = tmp_path / "p.py"
    file.write_text(PIPELINE.format(topic=topic, more=""))
    with pytest.raises(AssertionError, match="refuses the flow's columns"):
        run_once(spark, broker.bootstrap, file, tmp_path / "state")


EVOLVING: Final = """
from ottla.spark.pipelines import flow, registry, source, table

source("orders", topic="{topic}", schema=registry(), options={{"schemaEvolution": "restart"}})

@flow("archive", reads=["orders"], writes=table("archive", format="iceberg"))
def archive(orders):
    return orders

@flow("distinct", reads=["orders"], writes=table("distinct"))
def distinct(orders):
    return orders.dropDuplicates()
"""


def test_case_90_a_flow_starts_again_with_the_columns_of_a_newer_schema(
    spark: SparkSession,
    registered: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else a missing plugin is a warning
    broker = registered
    topic = new_topic(broker, 1)
    file, state = tmp_path / "p.py", tmp_path / "state"
    file.write_text(EVOLVING.format(topic=topic))
    first = [{"shop": "a", "amount": one} for one in range(3)]
    second = [{"shop": "b", "amount": one, "customer": "Ada"} for one in range(3, 5)]
    send(broker, topic, FIELDS, first)
    with running(spark, broker.bootstrap, file, state) as (board, until):
        until(lambda: all(one.batches for one in board.views()))
        send(broker, topic, [*FIELDS, CUSTOMER], second)
        every = [{**one, "customer": None} for one in first] + second
        until(
            lambda: (
                sorted(iceberg_rows(file, state, "archive"), key=lambda one: one["amount"]) == every
            )
        )
        # State has the columns of its first run: such a flow fails for good, and says why.
        until(lambda: board.view("distinct").state == "failed")
        assert board.view("archive").state == "running"
        assert "schema" in str(board.view("distinct").error)
