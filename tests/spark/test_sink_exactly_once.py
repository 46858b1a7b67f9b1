"""Exactly once: processes that end at each point of a batch, two drivers, lost answers, timeouts.

What counts is what readers of committed records see: each batch whole or not at all, and each row
once when the query has come through. A process that ends costs seconds, a driver of its own half a
minute: the short run has the points that tell most; tests/integration/spark takes all steps
by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from subprocess import DEVNULL, Popen
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import PySparkException

from ottla.client.cluster.view import TopicPartition
from ottla.spark.client_settings import client_settings
from ottla.spark.cluster import Cluster
from ottla.spark.errors import BatchLost
from ottla.spark.sink.owners import by_partition
from ottla.testing.embedded import EmbeddedBroker
from tests.support.faults_broker import soak
from tests.support.pipelines import run_once
from tests.support.processes import descendants
from tests.support.spark_faults import (
    ENDED,
    GO,
    HELD,
    LOST,
    MARKED,
    POINTS,
    RETRIED,
    SLOW,
    TASK,
    THERE,
    WRITING,
    Faults,
)
from tests.support.spark_once import FAILURE, OnceQuery, outcome
from tests.support.spark_sink import Sink, rows, task
from tests.support.spark_source import fill, new_topic
from tests.support.topics import read_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PATIENCE: Final = 300.0
PARTITIONS: Final = 3
PIPELINE: Final = """
from ottla.spark.pipelines import flow, source, topic

source("records", topic="{source}")

@flow("keyed", reads=["records"], delivery="exactly-once",
      writes=topic("{source}-keyed", key="text", partitions=3))
def keyed(records):
    return records.selectExpr("cast(value as string) as text")

@flow("unkeyed", reads=["keyed"], delivery="exactly-once",
      writes=topic("{source}-unkeyed", partitions=3))
def unkeyed(keyed):
    return keyed
"""
CONFIG: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=CONFIG) as running:
        yield running


def new_query(
    spark: SparkSession, broker: EmbeddedBroker, directory: Path, rows: int, **options: str
) -> OnceQuery:
    """A query over so many records in each of two partitions."""
    source, target = new_topic(broker, 2), new_topic(broker, PARTITIONS)
    fill(broker, source, {0: rows, 1: rows})
    return OnceQuery(spark, broker.bootstrap, source, target, directory, options)


def wait_for(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_case_40_batches_are_whole_and_there_once_wherever_a_process_ends(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    points = POINTS if soak() else (WRITING, MARKED, ENDED)
    query = new_query(spark, broker, tmp_path, 8 * (len(points) + 2))
    for batch, point in enumerate(points):
        query.faults.order(point, batch)
        assert query.run(), f"nothing has ended at {point!r}"
        assert query.faults.nobody_aborts
        assert len(query.batches()) == batch + 1
        assert query.committed() == query.expected(batch + (point == ENDED)), point
    assert query.run() == ""
    assert len(query.batches()) == len(points) + 2
    assert query.committed() == query.expected()
    assert set(query.expected().values()) == {1}
    # What the ended ones had written is in the log, and stays hidden.
    assert len(read_all(broker.bootstrap, query.target)) > query.committed().total()


@contextmanager
def another_driver(query: OnceQuery, directory: Path, point: str) -> Iterator[Popen[bytes]]:
    """A driver of its own for the same query, on its way to a point of its second batch."""
    directory.mkdir()
    Faults(str(directory)).order(point, 1)
    command = [sys.executable, "-m", "tests.support.spark_once", query.bootstrap]
    command += [query.source, query.target, str(directory), query.options["sinkId"]]
    log = directory / "log"
    with log.open("wb") as said, Popen(command, stdin=DEVNULL, stdout=said, stderr=said) as driver:
        try:
            wait_for(lambda: (directory / THERE).exists() or driver.poll() is not None)
            assert driver.poll() is None, log.read_text()[-3000:]
            yield driver
        finally:
            for pid in [*descendants(driver.pid), driver.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_case_41_an_older_driver_is_fenced_and_nothing_is_mixed(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    query = new_query(spark, broker, tmp_path, 16, sinkId="older by hand")
    query.faults.order(TASK, 1)
    assert query.run()
    metadata = json.loads((query.checkpoint / "metadata").read_text())
    older = Sink(broker.bootstrap, query.target, sinkId="older by hand")
    planned = older.planned()
    written = task(planned, [rows(0, b"older")], batch=1, query=metadata["id"])
    assert query.committed() == query.expected(1)
    assert query.run() == ""
    with pytest.raises(BatchLost, match="another run of the query has taken over"):
        task(planned, [rows(1, b"older")], number=1, batch=1, query=metadata["id"])
    with pytest.raises(BatchLost, match="another run of the query has taken over"):
        older.writer().commit([written], 1)
    assert query.committed() == query.expected()
    assert query.committed().total() == 32


@pytest.mark.soak("each driver is a JVM")
def test_case_41_the_older_of_two_drivers_is_fenced(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    query = new_query(spark, broker, tmp_path / "newer", 32, sinkId="two drivers")
    older = tmp_path / "older"
    with another_driver(query, older, SLOW) as driver:
        shutil.copytree(older / "checkpoint", query.checkpoint)
        assert query.committed() == query.expected(1)
        assert query.run() == ""
        (older / GO).touch()
        assert driver.wait(PATIENCE) == 0, (older / "log").read_text()[-3000:]
    assert "another run of the query has taken over" in (older / FAILURE).read_text()
    assert query.committed() == query.expected()
    assert query.committed().total() == 64


@pytest.mark.soak("each driver is a JVM")
@pytest.mark.parametrize("point", [SLOW, HELD])
def test_case_40_the_next_driver_goes_on_where_one_was_killed(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, point: str
) -> None:
    query = new_query(spark, broker, tmp_path / "next", 32, sinkId=f"killed while {point}")
    killed = tmp_path / "killed"
    with another_driver(query, killed, point):
        pass
    shutil.copytree(killed / "checkpoint", query.checkpoint)
    assert len(query.batches()) == 2
    assert query.committed() == query.expected(2 if point == HELD else 1)
    assert query.run() == ""
    assert query.committed() == query.expected()
    assert query.committed().total() == 64


def test_case_42_two_tasks_on_one_partition_fail_with_the_rule(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    query = new_query(spark, broker, tmp_path, 0)
    fill(broker, query.source, {0: 5, 1: 9})
    forced = query.frame().selectExpr("*", "0 as partition")
    failure = query.run(forced)
    assert "each partition has to be written by one task" in failure
    assert not query.committed()
    assert query.run(forced.repartition(1)) == ""
    assert query.committed() == query.expected()
    assert query.committed().total() == 14


def test_case_42_a_task_that_is_tried_again_fails_the_batch_and_a_restart_succeeds(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    query = new_query(spark, broker, tmp_path, 8)
    query.faults.order(RETRIED, 0)
    assert "has failed, and rows of it may be written" in query.run()
    assert not query.committed()
    assert query.run() == ""
    assert query.committed() == query.expected()


def test_case_43_the_answer_to_a_commit_is_lost_and_the_batch_is_not_written_again(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    query = new_query(spark, broker, tmp_path, 24)
    query.faults.order(LOST, 1)
    assert "no answer in time" in query.run()
    # Spark has asked for an abort since, which came too late.
    assert not query.faults.nobody_aborts
    assert query.committed() == query.expected(2)
    assert not (query.checkpoint / "commits" / "1").exists()
    assert query.run() == ""
    assert query.committed() == query.expected()
    assert query.committed().total() == 48


def test_case_44_a_batch_that_takes_too_long_leaves_nothing_and_is_repeated(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    query = new_query(spark, broker, tmp_path, 16)
    query.faults.order(SLOW, 0)
    running = query.start(transactionTimeoutMs="1000")
    wait_for(lambda: (tmp_path / THERE).exists() or not running.isActive)
    places = dict.fromkeys((TopicPartition(query.target, n) for n in range(PARTITIONS)), -1)
    ends = [
        Cluster(
            client_settings(
                {"kafka.bootstrap.servers": broker.bootstrap, "kafka.isolation.level": level},
                writes=False,
            )
        )
        for level in ("read_committed", "read_uncommitted")
    ]
    try:
        assert not query.committed()
        # Until the broker has aborted it, rows that are written hold readers back.
        wait_for(lambda: ends[0].offsets(places) == ends[1].offsets(places))
        (tmp_path / GO).touch()
        assert "transactionTimeoutMs=1000" in outcome(running)
    finally:
        running.stop()
        for one in ends:
            one.close()
    assert not query.committed()
    query.faults.forget()
    assert query.run() == ""
    assert query.committed() == query.expected()
    assert query.committed().total() == 32


def test_a_pipeline_delivers_exactly_once(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    source = new_topic(broker, 2)
    fill(broker, source, {0: 40, 1: 40})
    file = tmp_path / "p.py"
    file.write_text(PIPELINE.format(source=source))
    run_once(spark, broker.bootstrap, file, tmp_path / "state")
    # Spark did not learn that the last batches were written.
    for flow in ("keyed", "unkeyed"):
        for path in (tmp_path / "state" / "checkpoints" / flow / "commits").glob("*0*"):
            path.unlink()
    fill(broker, source, {0: 1})
    run_once(spark, broker.bootstrap, file, tmp_path / "state")
    for flow in ("keyed", "unkeyed"):
        found = read_all(broker.bootstrap, f"{source}-{flow}", isolation="read_committed")
        values = Counter(json.loads(one.record.value or b"")["text"] for one in found)
        # "0:0" was sent twice.
        assert values == Counter([f"{n % 2}:{n // 2}" for n in range(80)] + ["0:0"])
        assert len({one.partition for one in found}) > 1


def test_the_result_of_a_query_is_there_whole_or_not_at_all(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    topic = new_topic(broker, PARTITIONS)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    options["delivery"] = "exactly-once"
    text = "cast(id as string)"
    fails = f"if(id = 90, raise_error('no more'), {text})"
    with pytest.raises(PySparkException, match="no more"):
        write(spark.range(100).selectExpr(f"{fails} as value"), options)
    write(spark.range(100).selectExpr(f"{text} as key", f"{text} as value"), options)
    found = read_all(broker.bootstrap, topic, isolation="read_committed")
    assert Counter(one.record.value for one in found) == Counter(b"%d" % n for n in range(100))


def write(frame: DataFrame, options: dict[str, str]) -> None:
    arranged = by_partition(frame, options)
    arranged.write.format("ottla").mode("append").options(**options).save()
