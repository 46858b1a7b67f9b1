"""Flows that read the table of a topic, and then its log: case 92 of tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from ottla.client.producer.types import ProducerRecord
from ottla.spark.pipelines import compiler as compiling
from ottla.spark.pipelines.backfill import mark_done, read_note
from ottla.spark.pipelines.compiler import Compiler
from ottla.spark.pipelines.errors import DefinitionError
from ottla.spark.pipelines.load import load
from tests.support.pipelines import iceberg_rows, run_once
from tests.support.spark_source import delete_below
from tests.support.table_worker import NOON, new_topic, send, take

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.spark.pipelines.backfill import Note
    from ottla.spark.pipelines.places import Places
    from ottla.testing.embedded import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
PIPELINE: Final = """
from pyspark.sql import functions as f
from ottla.spark.pipelines import flow, source, table

source("orders", table="{topic}", options={{"tableMinRows": 1}})

@flow("archive", reads=["orders"], writes=table("archive", format="iceberg"))
def archive(orders):
    return orders.where("amount % 2 = 0").select("shop", f.expr("amount + 1").alias("n"), "_offset")
"""
TOTALS: Final = """
@flow("totals", reads=["orders"], writes=table("totals", format="iceberg"), mode="complete")
def totals(orders):
    return orders.groupBy("shop").agg(f.sum("amount").alias("amount"))
"""


@pytest.fixture(autouse=True)
def no_warning_of_a_missing_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture
def topic(broker: EmbeddedBroker, tmp_path: Path) -> str:
    """40 orders in the table, the first 30 of which the log has lost, and 10 after it."""
    name = new_topic(broker, value_format="json", value_schema="shop string, amount bigint")
    fill(broker, name, range(40))
    take(broker, tmp_path, name)
    delete_below(broker, name, 0, 30)
    fill(broker, name, range(40, 50))
    return name


def fill(broker: EmbeddedBroker, topic: str, numbers: range) -> None:
    orders = ({"shop": "ab"[number % 2], "amount": number} for number in numbers)
    send(
        broker,
        topic,
        [ProducerRecord(json.dumps(one).encode(), timestamp_ms=NOON) for one in orders],
    )


def archived(file: Path, state: Path) -> list[tuple[int, int]]:
    return sorted((one["_offset"], one["n"]) for one in iceberg_rows(file, state, "archive"))


def expected(end: int) -> list[tuple[int, int]]:
    return [(number, number + 1) for number in range(0, end, 2)]


def test_case_92_archive_and_stream_once_each_also_when_killed_between_the_two(
    spark: SparkSession,
    broker: EmbeddedBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, state = tmp_path / "p.py", tmp_path / "state"
    file.write_text(PIPELINE.format(topic=topic))
    places = load(file, state=str(state)).places
    failed: list[Note] = []

    def killed_first(of: Places, flow: str, note: Note) -> None:
        if not failed:
            failed.append(note)
            raise RuntimeError("killed after the batch is in the table, before that is noted")
        mark_done(of, flow, note)

    monkeypatch.setattr(compiling, "mark_done", killed_first)
    board = run_once(spark, broker.bootstrap, file, state, backfill=True)
    assert board.view("archive").restarts == 1
    note = read_note(places, "archive")
    assert note is not None
    assert (note.id, note.cut, note.done) == (failed[0].id, {"0": 40}, True)
    assert archived(file, state) == expected(50)
    started = (state / "checkpoints" / "archive" / "offsets" / "0").read_text()
    assert json.loads(started.splitlines()[2])["@initial"] == {topic: {"0": 40}}
    # The stream goes on from its checkpoint, with the option and without it.
    fill(broker, topic, range(50, 60))
    run_once(spark, broker.bootstrap, file, state, backfill=True)
    assert archived(file, state) == expected(60)


def test_case_92_a_flow_with_state_reads_the_table_as_a_stream(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    file, state = tmp_path / "p.py", tmp_path / "state"
    file.write_text(PIPELINE.format(topic=topic) + TOTALS)
    pipeline = load(file, state=str(state))
    compiler = Compiler(pipeline, spark, broker.bootstrap, backfill=True)
    compiler.check_backfill(pipeline.definition.flows["archive"])
    with pytest.raises(DefinitionError, match=r"flow totals may keep state .*Aggregate"):
        compiler.check_backfill(pipeline.definition.flows["totals"])
    run_once(spark, broker.bootstrap, file, state)
    assert archived(file, state) == expected(50)
    totals = {one["shop"]: one["amount"] for one in iceberg_rows(file, state, "totals")}
    assert totals == {"a": sum(range(0, 50, 2)), "b": sum(range(1, 50, 2))}
