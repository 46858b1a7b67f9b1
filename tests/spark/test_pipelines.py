"""Pipelines in a real Spark: in the session of the other tests, and as `ottla run` runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import ottla
from ottla.console.pipelines import Fold, Pipelines
from ottla.metadata.names import PIPELINES_TOPIC
from ottla.spark.pipelines.compiler import Compiler
from ottla.spark.pipelines.load import load
from ottla.spark.pipelines.preflight import fill
from ottla.sync import Producer, Reader
from ottla.testing.embedded import EmbeddedBroker
from tests.support.pipelines import run_once
from tests.support.processes import descendants
from tests.support.spark import pyspark_warnings
from tests.support.spark_source import new_topic
from tests.support.spark_tier import upload_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 240
STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
STATES: Final = "org.apache.spark.sql.execution.streaming.state"
# What Spark needs of the system: its launcher is a script, and files get their rights by chmod.
PROGRAMS: Final = (
    *("bash", "sh", "env", "dirname", "basename", "cat", "id", "hostname", "uname"),
    *("chmod", "ls", "stat", "readlink", "ln", "rm", "ps"),
)

THREE: Final = """
from pyspark.sql import functions as f
from ottla.spark.pipelines import flow, reject, source, table, topic

source("orders", topic="{topic}", schema="shop string, amount long, _corrupt_record string")

@flow("clean", reads=["orders"], writes=topic("{topic}-clean", key="shop"))
@reject(to="{topic}-bad", when="_corrupt_record is not null or amount < 0")
def clean(orders):
    return orders

@flow("large", inline=True)
def large(clean):
    return clean.where("amount >= 50").drop("_corrupt_record")

@flow("archive", reads=["large"], writes=table("large", partition_by=["shop"]))
def archive(large):
    return large

@flow("totals", reads=["clean"], writes=topic("{topic}-totals", key="shop"), mode="update")
def totals(clean):
    return clean.groupBy("shop").agg(f.sum("amount").alias("amount"))
"""


def send(broker: EmbeddedBroker, topic: str, values: Sequence[object]) -> None:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in values]
    with Producer(broker.bootstrap) as producer:
        producer.send_many(topic, [ottla.ProducerRecord(text.encode()) for text in texts])


def received(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> list[tuple[str, str]]:
    frame = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = frame.option("subscribe", topic).load().orderBy("partition", "offset").collect()
    return [(bytes(row.key or b"").decode(), bytes(row.value).decode()) for row in rows]


def test_case_48_three_flows_over_an_intermediate_topic(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    file = tmp_path / "p.py"
    file.write_text(THREE.format(topic=topic))
    good: list[object] = [{"shop": "ab"[n % 2], "amount": n} for n in range(100)]
    send(broker, topic, [*good, {"shop": "a", "amount": -1}, "no JSON"])
    board = run_once(spark, broker.bootstrap, file, tmp_path / "state")
    assert [view.rows for view in board.views()] == [102, 100, 100]

    table = tmp_path / "state" / "tables" / "large"
    assert spark.read.parquet(str(table)).count() == 50
    bad = [json.loads(value) for _, value in received(spark, broker, f"{topic}-bad")]
    assert {one.get("amount", one.get("_corrupt_record")) for one in bad} == {-1, "no JSON"}
    totals = received(spark, broker, f"{topic}-totals")
    assert {key: json.loads(value)["amount"] for key, value in totals} == {"a": 2450, "b": 2500}

    send(broker, topic, [{"shop": "b", "amount": 1000}])
    again = run_once(spark, broker.bootstrap, file, tmp_path / "state")
    assert [view.rows for view in again.views()] == [1, 1, 1]
    assert spark.read.parquet(str(table)).count() == 51
    [*_, (key, value)] = received(spark, broker, f"{topic}-totals")
    assert (key, json.loads(value)) == ("b", {"shop": "b", "amount": 3500})


def test_the_parquet_example_grows_by_what_is_new(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    file = ROOT / "examples" / "stream_to_parquet.py"
    assert fill(broker.bootstrap, load(file).definition) == 720
    table = str(tmp_path / "tables" / "readings")
    run_once(spark, broker.bootstrap, file, tmp_path)
    assert {
        row.day: row["count"] for row in spark.read.parquet(table).groupBy("day").count().collect()
    } == {date(2026, 3, day): 240 for day in (1, 2, 3)}
    assert fill(broker.bootstrap, load(file).definition) == 0
    send(broker, "readings", [{"sensor": "s", "at": "2026-03-09T10:00:00Z", "degrees": 1.5}])
    run_once(spark, broker.bootstrap, file, tmp_path)
    assert spark.read.parquet(table).count() == 721


def test_the_parquet_example_begins_in_the_tier_and_goes_on_with_the_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Object storage first, with the broker down; then what only the broker has."""
    file = ROOT / "examples" / "stream_to_parquet.py"
    data, url = tmp_path / "data", f"file://{tmp_path}/store"
    with EmbeddedBroker(data) as broker:
        total = fill(broker.bootstrap, load(file).definition)
        for day in range(10, 18):
            reading = {"sensor": "s", "at": f"2026-03-{day}T10:00:00Z", "degrees": 1.5}
            send(broker, "readings", [reading] * 20)
            total += 20
        in_tier = upload_topic(broker, data, "readings", url, tmp_path)[0]
    assert 0 < in_tier < total
    table = str(tmp_path / "tables" / "readings")
    monkeypatch.setenv("TIER_URL", url)
    run_once(spark, "127.0.0.1:1", file, tmp_path, env="backfill")
    assert spark.read.parquet(table).count() == in_tier
    with EmbeddedBroker(data) as broker:
        run_once(spark, broker.bootstrap, file, tmp_path)
    assert spark.read.parquet(table).count() == total


def test_flows_of_sql_alone(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker, 2)
    send(broker, topic, [{"n": n, "at": f"2026-01-01T00:00:00.{n:06d}Z"} for n in range(10)])
    file = tmp_path / "p.yaml"
    file.write_text(
        f"sources: {{numbers: {{topic: {topic}, schema: 'n long, at timestamp'}}}}\n"
        "flows:\n"
        "  even:\n    reads: numbers\n    sql: SELECT * FROM numbers WHERE n % 2 = 0\n"
        f"    writes: {{topic: {topic}-even}}\n    read_options: {{maxOffsetsPerTrigger: 4}}\n"
        "  filed:\n    reads: even\n    sql: SELECT n + 1 AS m, at FROM even\n"
        "    writes: {table: filed}\n"
    )
    board = run_once(spark, broker.bootstrap, file, tmp_path / "state")
    even, filed = board.views()
    assert (even.rows, filed.rows) == (10, 5)
    assert even.batches == 3
    rows = spark.read.parquet(str(tmp_path / "state" / "tables" / "filed")).orderBy("m").collect()
    assert [row.m for row in rows] == [1, 3, 5, 7, 9]
    assert [row["at"].microsecond for row in rows] == [0, 2, 4, 6, 8]


def test_case_54_state_is_right_after_a_restart_of_a_windowed_count(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 2)
    file = tmp_path / "p.yaml"
    file.write_text(
        f"sources: {{s: {{topic: {topic}, schema: 'at timestamp'}}}}\n"
        "flows:\n  counts:\n    reads: s\n    mode: update\n"
        "    sql: SELECT date_format(window.start, 'mm') AS minute, count(*) AS n FROM s "
        f"GROUP BY window(at, '1 minute')\n    writes: {{topic: {topic}-counts, key: minute}}\n"
    )
    for turn in (1, 2):
        send(broker, topic, [{"at": f"2026-01-01T00:{n % 3:02d}:00Z"} for n in range(30)])
        run_once(spark, broker.bootstrap, file, tmp_path / "state")
        last = dict(received(spark, broker, f"{topic}-counts"))
        counts = {minute: json.loads(value)["n"] for minute, value in last.items()}
        assert counts == {"00": 10 * turn, "01": 10 * turn, "02": 10 * turn}


COUNTING: Final = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from ottla.spark.pipelines import flow, source, topic

source("words", topic="{topic}", schema="word string")

class Counter(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key, rows, timers):
        before = self.seen.get()
        seen = (before[0] if before else 0) + sum(1 for _ in rows)
        self.seen.update((seen,))
        yield Row(word=key[0], n=seen)

    def close(self):
        pass

@flow("counts", reads=["words"], writes=topic("{topic}-counts", key="word"), mode="update")
def counts(words):
    grouped = words.groupBy("word")
    return grouped.transformWithState(Counter(), "word string, n long", "update", "None")
"""


@pytest.mark.soak("RocksDB and a process for the state of each task")
def test_case_54_state_of_ones_own_is_right_after_a_restart(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Spark's `transformWithState`, which keeps its state in RocksDB alone."""
    topic = new_topic(broker, 1)
    file = tmp_path / "p.py"
    file.write_text(COUNTING.format(topic=topic))
    spark.conf.set(STATE_STORE, f"{STATES}.RocksDBStateStoreProvider")
    try:
        for turn in (1, 2):
            send(broker, topic, [{"word": "ab"[n % 2]} for n in range(10)])
            with pyspark_warnings():
                run_once(spark, broker.bootstrap, file, tmp_path / "state")
            last = dict(received(spark, broker, f"{topic}-counts"))
            counts = {word: json.loads(value)["n"] for word, value in last.items()}
            assert counts == {"a": 5 * turn, "b": 5 * turn}
    finally:
        spark.conf.unset(STATE_STORE)


@contextmanager
def running(*args: object, path: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """`ottla run` with these arguments, in a process group of its own as in a terminal."""
    environment = {name: one for name, one in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PYTHONPATH": str(Path(ottla.__file__).parents[1])}
    if path is not None:
        environment["PATH"] = str(path)
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "run", *map(str, args), "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def events_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_case_49_50_the_orders_example_runs_on_the_bundled_java_with_nothing_set_up(
    tmp_path: Path,
) -> None:
    """No Java, no activated environment and no broker: `python3` on PATH is not this one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        found = next(p for p in (Path("/bin") / name, Path("/usr/bin") / name) if p.exists())
        (programs / name).symlink_to(found)
    with running(ROOT / "examples" / "orders.py", "--once", path=programs) as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors + output
    assert "started a broker" in errors
    events = events_of(output)
    rows = {
        one["shop"]: one for event in events if event["event"] == "rows" for one in event["rows"]
    }
    assert sum(one["orders"] for one in rows.values()) == 990
    progress = {one["flow"]: one["rows"] for one in events if one["event"] == "progress"}
    assert progress == {"valid": 1001, "totals": 990, "show": 4}
    states = [(one["flow"], one["state"]) for one in events if one["event"] == "state"]
    assert states[-1] == ("show", "done")


SLOW: Final = """
import os, time
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType
from ottla.spark.pipelines import flow, source, table
source("numbers", topic="{topic}")

def slowly(batches):
    for batch in batches:
        while not os.path.exists("{go}"):
            time.sleep(0.05)
        yield batch

@udf(LongType())
def same(number):
    return number

@flow("slow", reads=["numbers"], writes=table("slow"))
def slow(numbers):
    return numbers.select(same("offset").alias("offset")).mapInArrow(slowly, "offset long")
"""


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_case_50_a_killed_jvm_is_replaced_and_one_ctrl_c_ends_a_run_after_its_batch(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    send(broker, topic, [{"n": n} for n in range(100)])
    file, go = tmp_path / "slow.py", tmp_path / "go"
    file.write_text(SLOW.format(topic=topic, go=go))
    state = tmp_path / "state"
    checkpoint = state / "checkpoints" / "slow"
    broker.create_topic(PIPELINES_TOPIC)
    with running(file, "--bootstrap", broker.bootstrap, "--state", state) as process:
        wait_for(checkpoint / "offsets" / "0", process)
        [java] = [
            pid for pid, command in descendants(process.pid).items() if b"pyspark-shell" in command
        ]
        os.kill(java, signal.SIGKILL)
        go.touch()
        wait_for(checkpoint / "commits" / "0", process)
        go.unlink()
        send(broker, topic, [{"n": n} for n in range(50)])
        wait_for(checkpoint / "offsets" / "1", process)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.5)  # that it stops is known before the batch ends, on most machines
        go.touch()
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    events = events_of(output)
    rows = [one["rows"] for one in events if one["event"] == "progress"]
    assert rows == [100, 50], output + errors
    [lost] = [one for one in events if one["event"] == "session"]
    assert (lost["state"], lost["pause"]) == ("lost", 1)
    assert events[-1]["state"] == "stopped"
    assert (checkpoint / "commits" / "1").exists()
    assert errors.count("Traceback") == 0, errors
    told = told_in(broker)
    run, flow = told.pipelines["slow"], told.flows["slow", "slow"]
    assert run.ended_ms is not None
    assert run.flows == {"slow"}
    assert (flow.state, flow.batches, flow.rows, flow.restarts) == ("stopped", 2, 150, 1)
    assert flow.run == run.run


def told_in(broker: EmbeddedBroker) -> Pipelines:
    """What runs told the topic, as the console reads it."""
    fold = Fold()
    with Reader(broker.bootstrap, PIPELINES_TOPIC, stop="latest") as reader:
        while records := reader.read_many():
            for record in records:
                fold.add(record.key, record.value)
    return fold.value()


def test_a_plan_that_cannot_be_is_status_2_before_anything_runs(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    from ottla.spark.pipelines.deep_check import checked_schema
    from ottla.spark.pipelines.errors import DefinitionError

    topic = new_topic(broker, 1)
    file = tmp_path / "p.yaml"
    file.write_text(
        f"sources: {{s: {{topic: {topic}}}}}\n"
        "flows: {f: {reads: s, sql: SELECT valu FROM s, writes: console}}\n"
    )
    pipeline = load(file, state=str(tmp_path / "state"))
    compiler = Compiler(pipeline, spark, broker.bootstrap)
    with pytest.raises(DefinitionError, match=r"flow f: .*UNRESOLVED_COLUMN.*valu"):
        checked_schema(compiler, pipeline.definition.flows["f"])
