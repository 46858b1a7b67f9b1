"""Flows that write Iceberg tables, in a real Spark: case 91 of the specification of tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

import ottla
from ottla.sync import Producer
from tests.support.pipelines import iceberg_rows, run_once
from tests.support.spark_source import new_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.testing.embedded import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
PIPELINE: Final = """
from pyspark.sql import functions as f
from ottla.spark.pipelines import flow, source, table

source("orders", topic="{topic}", schema="number long, shop string, amount double, at timestamp")

@flow(
    "archive",
    reads=["orders"],
    writes=table("archive", format="iceberg", partition_by=["day(at)"]),
)
def archive(orders):
    return orders{more}

@flow("totals", reads=["orders"], writes=table("totals", format="iceberg"), mode="complete")
def totals(orders):
    return orders.groupBy("shop").agg(f.sum("amount").alias("amount"), f.count("*").alias("orders"))
"""


@pytest.fixture(autouse=True)
def no_warning_of_a_missing_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


def send(broker: EmbeddedBroker, topic: str, numbers: range) -> None:
    orders = (
        {
            "number": number,
            "shop": "ab"[number % 2],
            "amount": 1.5,
            "at": f"2026-03-0{1 + number % 3}T10:00:00Z",
        }
        for number in numbers
    )
    with Producer(broker.bootstrap) as producer:
        producer.send_many(
            topic, [ottla.ProducerRecord(json.dumps(one).encode()) for one in orders]
        )


def test_case_91_a_repeated_batch_is_not_written_twice(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 2)
    file, state = tmp_path / "p.py", tmp_path / "state"
    file.write_text(PIPELINE.format(topic=topic, more=""))
    send(broker, topic, range(100))
    run_once(spark, broker.bootstrap, file, state)
    assert sorted(one["number"] for one in iceberg_rows(file, state, "archive")) == list(range(100))
    for flow in ("archive", "totals"):  # as if the driver had died before Spark's log had the batch
        for done in (state / "checkpoints" / flow / "commits").iterdir():
            done.unlink()
    send(broker, topic, range(100, 130))
    run_once(spark, broker.bootstrap, file, state)
    assert sorted(one["number"] for one in iceberg_rows(file, state, "archive")) == list(range(130))
    totals = {one["shop"]: one for one in iceberg_rows(file, state, "totals")}
    assert {shop: (one["amount"], one["orders"]) for shop, one in totals.items()} == {
        "a": (97.5, 65),
        "b": (97.5, 65),
    }


def test_a_flow_that_returns_a_further_column_adds_it_to_the_table(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    file, state = tmp_path / "p.py", tmp_path / "state"
    file.write_text(PIPELINE.format(topic=topic, more=".drop('shop')"))
    send(broker, topic, range(4))
    run_once(spark, broker.bootstrap, file, state)
    file.write_text(PIPELINE.format(topic=topic, more=""))
    send(broker, topic, range(4, 6))
    run_once(spark, broker.bootstrap, file, state)
    found = {one["number"]: one["shop"] for one in iceberg_rows(file, state, "archive")}
    assert found == {0: None, 1: None, 2: None, 3: None, 4: "a", 5: "b"}


def test_rows_that_do_not_fit_fail_the_start(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    file, state = tmp_path / "p.py", tmp_path / "state"
    file.write_text(PIPELINE.format(topic=topic, more=""))
    run_once(spark, broker.bootstrap, file, state)
    text = ".withColumn('amount', f.col('amount').cast('string'))"
    file.write_text(PIPELINE.format(topic=topic, more=text))
    with pytest.raises(AssertionError, match="cannot become those of the schema"):
        run_once(spark, broker.bootstrap, file, state)
